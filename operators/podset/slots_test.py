from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Manifest
from operators.podset.naming import SET_LABEL
from operators.podset.simulation import build_owner
from operators.podset.slots import Slots


def build_slots(own: set[int], others: dict[int, Manifest] | None = None, **extra: Any) -> Slots:
    """Build the slots of the set `web`, some of them held by pods of others."""
    held = {f"web-pod-{slot}": pod for slot, pod in (others or {}).items()}
    return Slots("web", frozenset(own), frozenset(extra.get("expected", ())), held.get)


def foreign(owner: Manifest | None = None, **metadata: Any) -> Manifest:
    """Build a pod of somebody else."""
    references = {"ownerReferences": [owner]} if owner else {}
    return {"metadata": {**references, **metadata}}


def test_lowest_free_slots_come_first() -> None:
    assert list(islice(build_slots({0, 2}).free(), 3)) == [1, 3, 4]


def test_slot_of_somebody_else_is_skipped() -> None:
    assert list(islice(build_slots({0}, {1: foreign()}).free(), 2)) == [2, 3]


def test_slot_that_is_about_to_be_free_counts_as_free() -> None:
    assert list(islice(build_slots({0, 1}).free(besides={1}), 2)) == [1, 2]


def test_bound_ends_the_search() -> None:
    assert list(build_slots({0}, {1: foreign()}).free(limit=3)) == [2]


def test_conflict_names_the_pod_and_its_owner() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": True}
    slots = build_slots({0}, {1: foreign(owner), 2: foreign(), 9: foreign()})

    assert slots.conflicts(3, released=False) == [
        "web-pod-1 (controlled by ReplicaSet rs)",
        "web-pod-2 (no controller)",
    ]


def test_pod_that_leaves_by_itself_is_no_conflict() -> None:
    earlier = foreign(build_owner(uid="earlier"))
    going = foreign(deletionTimestamp="2026-01-31T12:00:00Z")

    assert build_slots(set(), {0: earlier, 1: going}).conflicts(2, released=False) == []


def test_pod_that_the_set_let_go_is_a_conflict_only_where_its_slot_is_needed() -> None:
    pod = foreign(labels={SET_LABEL: "web", "app": "debug"})

    assert build_slots(set(), {0: pod}).conflicts(1, released=False) == []
    assert build_slots(set(), {0: pod}).conflicts(1, released=True) == ["web-pod-0 (no controller)"]


def test_orphan_that_is_about_to_be_adopted_is_no_conflict() -> None:
    slots = build_slots(set(), {0: foreign()}, expected=["web-pod-0"])

    assert slots.conflicts(1, released=False) == []
    assert next(slots.free()) == 1


@given(own=st.sets(st.integers(0, 20)), others=st.sets(st.integers(0, 20)), count=st.integers(0, 9))
def test_free_slots_are_the_lowest_that_nobody_holds(
    own: set[int], others: set[int], count: int
) -> None:
    slots = build_slots(own, {slot: foreign() for slot in others})
    free = [slot for slot in range(60) if slot not in own | others]

    assert list(islice(slots.free(), count)) == free[:count]
