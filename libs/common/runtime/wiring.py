"""Wiring: from the watches that controllers declare to one informer a kind."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.clock import Clock
from libs.common.kinds import Kind
from libs.common.metrics import Metrics
from libs.common.runtime.cache import Cache
from libs.common.runtime.controller import Controller, Watch
from libs.common.runtime.informer import Informer
from libs.common.runtime.store import strip_noise


def build_cache(
    controllers: Sequence[Controller], namespaces: Sequence[str], clock: Clock, metrics: Metrics
) -> Cache:
    """Build the informers of all that some controllers watch, each kind once.

    Args:
        controllers: What declares the watches.
        namespaces: Where to watch; empty for the whole cluster.
        clock: Time source.
        metrics: Metrics of the process.

    Raises:
        ValueError: Two watches of a kind want it in different ways.
    """
    wanted: dict[tuple[str, str], list[Watch]] = {}
    for controller in controllers:
        primary = Watch(controller.primary, source=controller.source)
        for watch in (primary, *controller.watched):
            wanted.setdefault((watch.kind.group, watch.kind.kind), []).append(watch)
    cache = Cache()
    for watches in wanted.values():
        cache.add(_build_informer(watches, namespaces, clock, metrics))
    # Before any controller listens: a mapper may ask a projection.
    cache.keep_projections(each for controller in controllers for each in controller.projections)
    return cache


def _build_informer(
    watches: Sequence[Watch], namespaces: Sequence[str], clock: Clock, metrics: Metrics
) -> Informer:
    kind = watches[0].kind
    optional = all(watch.optional for watch in watches)
    source = _agree(kind, "source", {w.source for w in watches if w.source}) or "kopf"
    transform = _agree(kind, "transform", {w.transform for w in watches if w.transform})
    informer = Informer(
        kind,
        namespaces=namespaces,
        label_selector=_agree(kind, "label_selector", {w.label_selector for w in watches}) or "",
        transform=transform or strip_noise,
        # kopf ends the process over a kind that is not there; the reflector waits for it.
        source="reflector" if optional else source,
        optional=optional,
        clock=clock,
        metrics=metrics.cache(kind.resource),
    )
    for watch in watches:
        for name, function in watch.indexes.items():
            informer.store.add_index(name, function)
    return informer


def _agree[T](kind: Kind, what: str, wishes: set[T]) -> T | None:
    """Return the one wish that all watches of a kind have.

    Raises:
        ValueError: They differ: a kind is watched once, for all.
    """
    if len(wishes) > 1:
        raise ValueError(f"{kind} is watched with different {what} values; agree on one")
    return next(iter(wishes), None)
