"""Read the objects of a PrometheusJmxExporter from the cache, and map changes to exporters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from libs.common.conditions import find_condition, parse_time
from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest, key_of, uid_of
from libs.common.labels import matches_selector
from libs.common.reading import map_at, text_at, text_map_at
from libs.common.runtime import Cache, Context
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.config import Config, evaluate_patterns, read_config
from operators.jmxexporter.discovery import KINDS, MONITORS
from operators.jmxexporter.naming import ENDPOINT, OWNER, RESUME
from operators.jmxexporter.pods import Pod, is_opted_out
from operators.jmxexporter.reasons import ConditionType
from operators.jmxexporter.reconcile import Observed

BY_EXPORTER = "exporter"
"""Index of pods by the UIDs of the exporters that had injectors in them or annotated them."""


async def read_source(ctx: Context, exporter: PrometheusJmxExporter) -> Config:
    """Read the configuration; the cache holds only the metadata of ConfigMaps."""
    source = exporter.spec.config
    key = Key(ctx.key.namespace, source.config_map_name or "")
    found = ctx.get(CONFIG_MAP, key) and await ctx.live_get(CONFIG_MAP, key)
    return evaluate_patterns(exporter.spec, read_config(source, found))


def observe(ctx: Context, exporter: PrometheusJmxExporter, config: Config) -> Observed:
    """Read all other objects that the plan and the status depend on."""
    pods = ctx.list(POD, selector=exporter.spec.pod_selector)
    selected = [Pod.parse(pod) for pod in pods if not is_opted_out(pod)]
    own = _age(ctx.primary)
    exporters = ctx.list(PROMETHEUS_JMX_EXPORTER)
    older = [each for each in exporters if _age(each) < own]
    had: list[Pod] = []
    contested: dict[str, str] = {}
    for pod in selected:
        if pod.active and (holder := find_holder(older, ctx.get(POD, pod.key) or {})):
            contested[pod.key.name] = holder
        elif pod.active:
            had.append(pod)
    mine = {pod.key for pod in had}
    resume_at = _read_time(text_at(ctx.primary, "metadata", "annotations", RESUME))
    # A later time would let JVMs end until then.
    resumed = resume_at if resume_at is not None and resume_at <= ctx.now() else None
    strays = [pod for pod in observe_traces(ctx) if pod.key not in mine]
    return Observed(
        config=config,
        pods=had,
        contested=contested,
        coming=sum(pod.coming for pod in selected),
        strays=strays,
        broken=_is_broken(ctx, resumed),
        resumed=resumed,
        resume_at=resume_at,
        exporters=frozenset(map(uid_of, exporters)),
        monitored=frozenset(kind for kind in MONITORS if ctx.is_served(kind)),
        published=[(kind, each) for kind in KINDS for each in ctx.children(kind)],
    )


def observe_traces(ctx: Context) -> list[Pod]:
    """Return the pods of the namespace that have injectors or annotations of the exporter."""
    return [
        Pod.parse(pod)
        for pod in ctx.indexed(POD, BY_EXPORTER, ctx.uid)
        if key_of(pod).namespace == ctx.key.namespace
    ]


def _read_time(text: str) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _is_broken(ctx: Context, resumed: datetime | None) -> bool:
    held = find_condition(ctx.primary, ConditionType.DEGRADED)
    return (
        held is not None
        and held["status"] == "True"
        and held.get("observedGeneration") == ctx.generation
        and not (resumed and parse_time(held["lastTransitionTime"]) <= resumed)
    )


def find_holder(exporters: Iterable[Mapping[str, Any]], pod: Mapping[str, Any]) -> str:
    """Return the name of the oldest exporter that selects a pod; empty for none.

    Several exporters may select a pod, and only one may manage it. Their age never changes, so the
    decision does not depend on the order of events and survives a restart of the operator.
    """
    oldest_first = sorted(exporters, key=_age)
    return next((key_of(each).name for each in oldest_first if selects(each, pod)), "")


def _age(exporter: Mapping[str, Any]) -> tuple[str, str]:
    return text_at(exporter, "metadata", "creationTimestamp"), uid_of(exporter)


def selects(exporter: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether an exporter selects a pod."""
    if is_opted_out(pod):
        return False
    labels = text_map_at(pod, "metadata", "labels")
    equal = text_map_at(exporter, "spec", "labelSelector")
    selector = map_at(exporter, "spec", "selector") or {"matchLabels": equal}
    return any(selector.values()) and matches_selector(selector, labels)


# Index and mapping functions: they determine the exporters to reconcile after a change.


def index_pod_by_exporter(pod: Manifest) -> Iterable[str]:
    """Index a pod by the exporters that have injectors or annotations in it."""
    uids = {run.request.id for run in Pod.parse(pod).runs}
    owner = text_at(pod, "metadata", "annotations", OWNER)
    endpoint = text_at(pod, "metadata", "annotations", ENDPOINT).partition(":")[0]
    return sorted((uids | {owner, endpoint}) - {""})


def map_pod(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the exporters that select a pod, or have injectors or annotations in it."""
    uids = set(index_pod_by_exporter(pod))
    for exporter in cache.store(PROMETHEUS_JMX_EXPORTER).list(key_of(pod).namespace):
        if selects(exporter, pod) or uid_of(exporter) in uids:
            yield key_of(exporter)


def map_config_map(config_map: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the exporters that are configured by a ConfigMap."""
    key = key_of(config_map)
    for exporter in cache.store(PROMETHEUS_JMX_EXPORTER).list(key.namespace):
        if text_at(exporter, "spec", "config", "configMapName") == key.name:
            yield key_of(exporter)


def map_exporter(exporter: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the other exporters of the namespace, since they may select the same pods."""
    key = key_of(exporter)
    for other in cache.store(PROMETHEUS_JMX_EXPORTER).list(key.namespace):
        if key_of(other) != key:
            yield key_of(other)
