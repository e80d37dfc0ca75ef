"""When an address is given back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.ipam.allocation.reconcile import (
    Hold,
    Holder,
    Move,
    ReleasePlan,
    judge_hold,
    plan_release,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
ADDRESS = "203.0.113.7"


@pytest.mark.parametrize(
    ("holder", "hold"),
    [
        pytest.param(None, Hold.GONE, id="no claim of that name"),
        pytest.param(Holder("other", {"p": ADDRESS}), Hold.GONE, id="another claim of that name"),
        pytest.param(Holder("u", {}), Hold.HELD, id="the status says nothing yet"),
        pytest.param(Holder("u", {"p": ""}), Hold.HELD, id="the status says nothing of the pool"),
        pytest.param(Holder("u", {"p": ADDRESS}), Hold.HELD, id="the status says this address"),
        pytest.param(Holder("u", {"p": "203.0.113.8"}), Hold.SURPLUS, id="another address"),
        pytest.param(Holder("u", {"q": "2001:db8::1"}), Hold.HELD, id="that of the other pool"),
    ],
)
def test_claim_holds_its_address_until_the_opposite_is_certain(
    holder: Holder | None, hold: Hold
) -> None:
    assert judge_hold("p", ADDRESS, "u", holder) is hold


@pytest.mark.parametrize("released", [None, NOW - timedelta(hours=1)])
def test_address_that_is_held_is_kept_whatever_else_is_known(released: datetime | None) -> None:
    plan = plan_release(Hold.HELD, grace_seconds=0, released_at=released, now=NOW)

    assert plan == ReleasePlan(Move.KEEP)


def test_address_rests_from_the_moment_at_which_its_claim_was_missed() -> None:
    began = NOW.replace(microsecond=0)
    first = plan_release(Hold.GONE, grace_seconds=60, released_at=None, now=NOW)
    later = plan_release(
        Hold.GONE, grace_seconds=60, released_at=began, now=NOW + timedelta(seconds=30)
    )
    last = plan_release(
        Hold.GONE, grace_seconds=60, released_at=began, now=NOW + timedelta(seconds=60)
    )

    assert first == ReleasePlan(Move.REST, began, began + timedelta(seconds=60))
    assert (later.move, last.move) == (Move.WAIT, Move.RETURN)


def test_rest_that_is_made_shorter_ends_sooner() -> None:
    began = NOW - timedelta(seconds=30)

    assert plan_release(Hold.GONE, grace_seconds=20, released_at=began, now=NOW).move is Move.RETURN
    assert plan_release(Hold.GONE, grace_seconds=60, released_at=began, now=NOW).move is Move.WAIT


def test_surplus_address_was_never_in_use_and_does_not_rest() -> None:
    plan = plan_release(Hold.SURPLUS, grace_seconds=60, released_at=None, now=NOW)

    assert plan.move is Move.RETURN


@given(st.sampled_from([Hold.GONE, Hold.SURPLUS]), st.integers(0, 100), st.integers(0, 200))
def test_release_comes_to_an_end(hold: Hold, grace: int, passed: int) -> None:
    first = plan_release(hold, grace_seconds=grace, released_at=None, now=NOW)
    now = NOW + timedelta(seconds=passed)
    plan = plan_release(hold, grace_seconds=grace, released_at=first.released_at, now=now)

    assert (plan.move is Move.RETURN) == (
        hold is Hold.SURPLUS or passed >= grace or first.move is Move.RETURN
    )
