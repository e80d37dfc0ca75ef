"""Predicates filter which changes enqueue a primary, and never a resync."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libs.common.clock import SystemClock
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object, is_deleting
from libs.common.metrics import Metrics
from libs.common.runtime import Cache, Controller
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.queue import WorkQueue
from libs.common.runtime.triggers import Triggers
from libs.common.runtime.wiring import build_cache

BOAT = Kind("sea.example.com", "v1", "Boat", "boats")


async def reconcile(_: object) -> None:
    """Do nothing."""


def build_boat(version: int, generation: int = 1, **metadata: str) -> Manifest:
    known = {"uid": "u", "resourceVersion": str(version), "generation": generation}
    status = {"floats": version}
    return build_object(BOAT, "b", "default", metadata={**known, **metadata}, status=status)


def build(controller: Controller) -> tuple[Cache, WorkQueue, Triggers]:
    cache = build_cache([controller], (), SystemClock(), Metrics())
    queue = WorkQueue(backoff=BackoffPolicy())
    triggers = Triggers(controller, queue, cache, forget=lambda key: None)
    triggers.begin()
    return cache, queue, triggers


async def drain(queue: WorkQueue) -> None:
    while len(queue):
        queue.done(await queue.get())


def generation_changed(old: Manifest | None, new: Manifest | None) -> bool:
    if old is None or new is None or is_deleting(old) != is_deleting(new):
        return True
    return bool(old["metadata"].get("generation") != new["metadata"].get("generation"))


def boats() -> Controller:
    return Controller("boat", primary=BOAT, reconcile=reconcile, predicate=generation_changed)


async def test_status_of_a_primary_enqueues_nothing_and_its_spec_does() -> None:
    cache, queue, _ = build(boats())
    cache.informer(BOAT).put(build_boat(1))
    assert len(queue) == 1
    await drain(queue)

    cache.informer(BOAT).put(build_boat(2))
    assert len(queue) == 0

    cache.informer(BOAT).put(build_boat(3, generation=2))
    assert len(queue) == 1


async def test_deletion_of_a_primary_is_never_filtered_by_generation() -> None:
    cache, queue, _ = build(boats())
    cache.informer(BOAT).put(build_boat(1))
    await drain(queue)

    cache.informer(BOAT).put(build_boat(2, deletionTimestamp="2024-01-01T00:00:00Z"))

    assert len(queue) == 1


async def test_namesake_is_a_new_object_for_the_predicate() -> None:
    cache, queue, _ = build(boats())
    cache.informer(BOAT).put(build_boat(1))
    await drain(queue)

    cache.informer(BOAT).put(build_boat(2, uid="another"))

    assert len(queue) == 1


async def test_resync_enqueues_what_the_predicate_left_out() -> None:
    cache, queue, triggers = build(replace(boats(), predicate=lambda old, new: False))
    cache.informer(BOAT).put(build_boat(1))
    assert len(queue) == 0

    triggers.resync()

    assert len(queue) == 1


@pytest.mark.parametrize(("before", "after", "enqueued"), [("a", "a", 0), ("a", "b", 1)])
async def test_predicate_of_a_watch_sees_both_versions(
    before: str, after: str, enqueued: int
) -> None:
    def data_changed(old: Manifest | None, new: Manifest | None) -> bool:
        return old is None or new is None or old["data"] != new["data"]

    controller = Controller("boat", primary=BOAT, reconcile=reconcile).watches(
        CONFIG_MAP, lambda manifest, _: [Key("default", "b")], predicate=data_changed
    )
    cache, queue, _ = build(controller)

    def put(version: int, value: str) -> None:
        metadata = {"uid": "m", "resourceVersion": str(version)}
        chart = build_object(CONFIG_MAP, "m", "default", metadata=metadata, data={"x": value})
        cache.informer(CONFIG_MAP).put(chart)

    put(1, before)
    await drain(queue)

    put(2, after)

    assert len(queue) == enqueued
