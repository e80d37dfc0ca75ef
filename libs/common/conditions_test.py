"""Conditions: written only when they say something new."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.conditions import (
    MESSAGE_LIMIT,
    Condition,
    ConditionStatus,
    build_conditions,
    build_status,
    find_condition,
    find_new_reason,
    is_true,
    parse_time,
    render_time,
)
from libs.common.kinds import Manifest

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
STATUSES: list[ConditionStatus] = ["True", "False", "Unknown"]
CONDITIONS = st.builds(
    Condition,
    st.sampled_from(["Ready", "Stalled"]),
    st.sampled_from(STATUSES),
    st.sampled_from(["One", "Two"]),
    st.text(max_size=300),
)


def test_time_of_transition_moves_with_the_status_alone() -> None:
    first = build_conditions([], [Condition.true("Ready", "A")], generation=1, now=NOW)

    reworded = build_conditions(
        first, [Condition.true("Ready", "B", "other words")], generation=2, now=LATER
    )
    turned = build_conditions(reworded, [Condition.false("Ready", "C")], generation=2, now=LATER)

    assert reworded[0]["lastTransitionTime"] == render_time(NOW)
    assert (reworded[0]["reason"], reworded[0]["observedGeneration"]) == ("B", 2)
    assert turned[0]["lastTransitionTime"] == render_time(LATER)


def test_conditions_of_others_are_left_to_them() -> None:
    theirs = {"type": "Theirs", "status": "True", "lastTransitionTime": render_time(NOW)}

    built = build_conditions([theirs], [Condition.unknown("Ready", "A")], generation=1, now=NOW)

    assert [each["type"] for each in built] == ["Ready"]


def test_condition_without_a_time_gets_one() -> None:
    held = {"type": "Ready", "status": "True"}

    (built,) = build_conditions([held], [Condition.true("Ready", "A")], generation=1, now=NOW)

    assert built["lastTransitionTime"] == render_time(NOW)


@given(st.lists(CONDITIONS, unique_by=lambda each: each.type, max_size=2))
def test_equal_input_gives_equal_output(desired: list[Condition]) -> None:
    once = build_conditions([], desired, generation=3, now=NOW)

    assert build_conditions(once, desired, generation=3, now=LATER) == once
    assert all(len(each["message"]) <= MESSAGE_LIMIT for each in once)


def test_long_message_is_cut_visibly() -> None:
    (built,) = build_conditions(
        [], [Condition.true("Ready", "A", "x" * 40_000)], generation=1, now=NOW
    )

    assert built["message"] == "x" * (MESSAGE_LIMIT - 1) + "…"


def build_object(generation: int, **condition: object) -> Manifest:
    return {
        "metadata": {"generation": generation},
        "status": {"conditions": [{"type": "Ready", **condition}]},
    }


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (build_object(2, status="True", observedGeneration=2), True),
        (build_object(2, status="True", observedGeneration=1), False),
        (build_object(2, status="True"), True),
        (build_object(2, status="False", observedGeneration=2), False),
        ({"metadata": {}}, False),
        ({"metadata": {}, "status": None}, False),
        ({"metadata": {}, "status": {"conditions": None}}, False),
    ],
)
def test_condition_holds_for_the_present_generation_only(
    manifest: Manifest, expected: bool
) -> None:
    assert is_true(manifest) is expected


@pytest.mark.parametrize(
    ("before", "after", "turned"),
    [
        (None, "Failed", True),
        ("Working", "Failed", True),
        ("Broken", "Failed", True),
        ("Failed", "Failed", False),
        ("Failed", "Working", False),
        ("Failed", None, False),
    ],
)
def test_condition_turns_when_it_gets_a_reason(
    before: str | None, after: str | None, turned: bool
) -> None:
    def show(reason: str | None) -> Manifest:
        held = [] if reason is None else [{"type": "Ready", "status": "False", "reason": reason}]
        return {"status": {"conditions": held}}

    found = find_new_reason(show(before), show(after), "Ready", {"Failed", "Broken"})
    assert (found is not None) is turned


def test_condition_that_is_not_there_is_none() -> None:
    assert find_condition(build_object(1, status="True"), "Stalled") is None


def test_status_has_the_generation_and_keeps_the_times_of_unchanged_conditions() -> None:
    manifest = {"metadata": {"generation": 3}, "status": {}}
    ready = Condition.true("Ready", "Done")
    first = build_status(manifest, [ready], NOW)
    later = build_status({**manifest, "status": first}, [ready], NOW + timedelta(days=1), size=2)

    assert first["observedGeneration"] == first["conditions"][0]["observedGeneration"] == 3
    assert later == {**first, "size": 2}


@given(
    st.integers(0, 100 * 365 * 86_400).map(lambda seconds: NOW + timedelta(seconds=seconds / 7)),
    st.integers(-12, 12),
)
def test_time_is_rendered_in_utc_and_read_back(moment: datetime, hours: int) -> None:
    aware = moment.astimezone(timezone(timedelta(hours=hours)))

    text = render_time(aware)

    assert text.endswith("Z")
    assert abs(parse_time(text) - aware) < timedelta(seconds=1)


def test_times_of_leases_are_read_too() -> None:
    assert parse_time("2026-01-31T12:00:00.500000Z") == NOW + timedelta(seconds=0.5)
