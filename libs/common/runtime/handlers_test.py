"""No change is lost permanently if a mapper or a projection raises an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest

from libs.common.clock import SystemClock
from libs.common.kinds import CONFIG_MAP, POD, Key, Kind, Manifest, build_object
from libs.common.metrics import Metrics
from libs.common.runtime import Cache, Controller
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.queue import WorkQueue
from libs.common.runtime.store import Change
from libs.common.runtime.triggers import Triggers
from libs.common.runtime.wiring import build_cache
from libs.common.testing.clock import FakeClock


async def reconcile(_: object) -> None:
    """Do nothing."""


def build_map(version: int, **data: str) -> Manifest:
    manifest = build_object(CONFIG_MAP, "m", "default", data=data)
    manifest["metadata"] |= {"uid": "u", "resourceVersion": str(version)}
    return manifest


def build_pod(name: str) -> Manifest:
    pod = build_object(POD, name, "default")
    pod["metadata"] |= {"uid": name, "resourceVersion": "1"}
    return pod


def target_of(manifest: Manifest, _: Cache) -> Iterable[Key]:
    return [Key("default", manifest["data"]["target"])]


def build(
    controller: Controller, clock: FakeClock | None = None
) -> tuple[Cache, WorkQueue, Metrics]:
    metrics = Metrics()
    cache = build_cache([controller], (), SystemClock(), metrics)
    queue = WorkQueue(backoff=BackoffPolicy())
    triggers = Triggers(
        controller, queue, cache, forget=lambda key: None, clock=clock or FakeClock()
    )
    triggers.begin()
    return cache, queue, metrics


def controller() -> Controller:
    return Controller("c", primary=POD, reconcile=reconcile)


def test_version_that_the_mapper_cannot_read_does_not_hide_the_next_one() -> None:
    cache, queue, _ = build(controller().watches(CONFIG_MAP, target_of))
    cache.informer(CONFIG_MAP).put(build_map(1))

    cache.informer(CONFIG_MAP).put(build_map(2, target="a"))

    assert len(queue) == 1


def test_all_primaries_are_looked_at_after_an_error_of_a_mapper() -> None:
    """Which of them the change concerned is not known."""
    cache, queue, metrics = build(controller().watches(CONFIG_MAP, target_of))
    for name in ("a", "b"):
        cache.store(POD).put(build_pod(name))

    cache.informer(CONFIG_MAP).put(build_map(1))

    assert len(queue) == 2
    assert metrics.value("operator_mapper_errors_total", resource="configmaps") == 1


async def test_object_that_a_mapper_never_reads_causes_one_resync_a_minute() -> None:
    clock = FakeClock()
    cache, queue, _ = build(controller().watches(CONFIG_MAP, target_of), clock)
    cache.store(POD).put(build_pod("a"))

    async def count_reconciles() -> int:
        taken = 0
        while len(queue):
            queue.done(await queue.get())
            taken += 1
        return taken

    reconciles = []
    for version in range(1, 4):
        cache.informer(CONFIG_MAP).put(build_map(version, text=str(version)))
        reconciles.append(await count_reconciles())
    for _ in range(3):
        clock.advance(60)
        reconciles.append(await count_reconciles())

    assert reconciles == [1, 0, 0, 1, 0, 0], "the last change is looked at, and nothing more"


class Total:
    """A projection that counts objects, and cannot take in those with a bad size."""

    kinds: ClassVar[tuple[Kind, ...]] = (CONFIG_MAP,)

    def __init__(self) -> None:
        self.total = 0

    def changed(self, change: Change) -> None:
        for manifest, sign in ((change.old, -1), (change.new, 1)):
            if manifest is not None:
                self.total += sign * int(manifest["data"]["size"])


def test_projection_that_raised_is_built_again_from_the_stores() -> None:
    cache, _, _ = build(controller().reads(CONFIG_MAP).projects(Total))
    informer = cache.informer(CONFIG_MAP)
    other = build_map(1, size="5")
    other["metadata"] |= {"name": "other", "uid": "o"}
    informer.put(other)
    informer.put(build_map(2, size="odd"))
    assert cache.projection(Total).total == 5, "the odd object is left out"

    informer.put(build_map(3, size="2"))
    assert cache.projection(Total).total == 7

    informer.put(build_map(4, size="3"))
    assert cache.projection(Total).total == 8


BETA = Kind("", "v1beta1", "ConfigMap", "configmaps")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda c: c.reads(CONFIG_MAP).reads(BETA), "use one"),
        (lambda c: c.reads(CONFIG_MAP, optional=True, source="kopf"), "kopf cannot watch"),
        (lambda c: c.reads(CONFIG_MAP, metadata_only=True, source="kopf"), "kopf cannot watch"),
    ],
)
def test_watches_that_cannot_be_had_are_refused(
    declare: Callable[[Controller], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_cache([declare(controller())], (), SystemClock(), Metrics())
