"""Wiring: build one informer for each kind from the declared watches."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.clock import Clock
from libs.common.kinds import Kind
from libs.common.metrics import Metrics
from libs.common.runtime.cache import Cache
from libs.common.runtime.controller import Controller, Watch
from libs.common.runtime.informer import Informer
from libs.common.runtime.scope import PATIENCE_SECONDS
from libs.common.runtime.store import strip_noise


def build_cache(
    controllers: Sequence[Controller],
    namespaces: Sequence[str],
    clock: Clock,
    metrics: Metrics,
    *,
    patience: float = PATIENCE_SECONDS,
    dynamic: bool = False,
    fields: str = "",
) -> Cache:
    """Build the informers for the watches of all controllers, one for each kind.

    Args:
        controllers: Controllers that declare the watches.
        namespaces: Namespaces to watch; empty for the whole cluster.
        clock: Time source.
        metrics: Metrics of the process.
        patience: Seconds after which nobody waits any more for a namespace that cannot be read.
        dynamic: Whether the namespaces change at run time. kopf would restart at each change, so
            reflectors watch all kinds then.
        fields: Field selector for all namespaced kinds.

    Raises:
        ValueError: Two watches of a kind have different options.
    """
    wanted: dict[tuple[str, str], list[Watch]] = {}
    for controller in controllers:
        primary = Watch(
            controller.primary,
            source=controller.source,
            optional=controller.optional,
            label_selector=controller.label_selector,
            field_selector=controller.field_selector,
        )
        for watch in (primary, *controller.watched):
            wanted.setdefault((watch.kind.group, watch.kind.kind), []).append(watch)
    cache = Cache()
    for watches in wanted.values():
        cache.add(_build_informer(watches, namespaces, clock, metrics, patience, dynamic, fields))
    # Before any controller registers: a mapper may read a projection.
    cache.keep_projections(each for controller in controllers for each in controller.projections)
    return cache


def _build_informer(
    watches: Sequence[Watch],
    namespaces: Sequence[str],
    clock: Clock,
    metrics: Metrics,
    patience: float,
    dynamic: bool,
    fields: str,
) -> Informer:
    kind = watches[0].kind
    if others := {watch.kind for watch in watches} - {kind}:
        # The versions of a kind are views of the same objects, and the cache holds one view.
        raise ValueError(f"{kind} is watched as {', '.join(map(str, others))} too; use one")
    optional = all(watch.optional for watch in watches)
    source = _agree(kind, "source", {w.source for w in watches if w.source})
    metadata_only = bool(_agree(kind, "metadata_only", {w.metadata_only for w in watches}))
    if (optional or metadata_only) and source == "kopf":
        # kopf exits if a kind is missing, and always reads whole objects.
        what = "optional" if optional else "watched by metadata"
        raise ValueError(f"kopf cannot watch {kind}, which is {what}; omit the source")
    transform = _agree(kind, "transform", {w.transform for w in watches if w.transform})
    own = _agree(kind, "field_selector", {w.field_selector for w in watches})
    informer = Informer(
        kind,
        namespaces=namespaces,
        label_selector=_agree(kind, "label_selector", {w.label_selector for w in watches}) or "",
        field_selector=",".join(filter(None, (own, fields if kind.namespaced else ""))),
        transform=transform or strip_noise,
        metadata_only=metadata_only,
        source="reflector" if optional or metadata_only or dynamic else source or "kopf",
        optional=optional,
        clock=clock,
        metrics=metrics.cache(kind.resource),
        patience=patience,
    )
    for watch in watches:
        for name, function in watch.indexes.items():
            informer.store.add_index(name, function)
    return informer


def _agree[T](kind: Kind, what: str, wishes: set[T]) -> T | None:
    """Return the common option of all watches of a kind.

    Raises:
        ValueError: The options differ; a kind is watched once for all controllers.
    """
    if len(wishes) > 1:
        raise ValueError(f"{kind} is watched with different {what} values; use one")
    return next(iter(wishes), None)
