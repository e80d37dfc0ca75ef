"""When an address is released."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.ipam.allocation.reconcile import (
    ClaimState,
    CurrentClaim,
    EntryAction,
    ReleasePlan,
    evaluate_hold,
    plan_release,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
ADDRESS = "203.0.113.7"


@pytest.mark.parametrize(
    ("holder", "hold"),
    [
        pytest.param(None, ClaimState.GONE, id="no claim of that name"),
        pytest.param(
            CurrentClaim("other", {"p": ADDRESS}), ClaimState.GONE, id="another claim of that name"
        ),
        pytest.param(CurrentClaim("u", {}), ClaimState.HELD, id="the status says nothing yet"),
        pytest.param(
            CurrentClaim("u", {"p": ""}), ClaimState.HELD, id="the status says nothing of the pool"
        ),
        pytest.param(
            CurrentClaim("u", {"p": ADDRESS}), ClaimState.HELD, id="the status says this address"
        ),
        pytest.param(
            CurrentClaim("u", {"p": "203.0.113.8"}), ClaimState.SURPLUS, id="another address"
        ),
        pytest.param(
            CurrentClaim("u", {"q": "2001:db8::1"}), ClaimState.GONE, id="only another pool"
        ),
    ],
)
def test_claim_holds_its_address_until_the_opposite_is_certain(
    holder: CurrentClaim | None, hold: ClaimState
) -> None:
    assert evaluate_hold("p", ADDRESS, "u", holder) is hold


@pytest.mark.parametrize("released", [None, NOW - timedelta(hours=1)])
def test_address_that_is_held_is_kept_whatever_else_is_known(released: datetime | None) -> None:
    plan = plan_release(ClaimState.HELD, grace_seconds=0, released_at=released, now=NOW)

    assert plan == ReleasePlan(EntryAction.KEEP)


def test_address_rests_from_the_moment_at_which_its_claim_was_missed() -> None:
    began = NOW.replace(microsecond=0)
    first = plan_release(ClaimState.GONE, grace_seconds=60, released_at=None, now=NOW)
    later = plan_release(
        ClaimState.GONE, grace_seconds=60, released_at=began, now=NOW + timedelta(seconds=30)
    )
    last = plan_release(
        ClaimState.GONE, grace_seconds=60, released_at=began, now=NOW + timedelta(seconds=60)
    )

    assert first == ReleasePlan(EntryAction.REST, began, began + timedelta(seconds=60))
    assert (later.move, last.move) == (EntryAction.WAIT, EntryAction.RETURN)


def test_rest_that_is_made_shorter_ends_sooner() -> None:
    began = NOW - timedelta(seconds=30)

    assert (
        plan_release(ClaimState.GONE, grace_seconds=20, released_at=began, now=NOW).move
        is EntryAction.RETURN
    )
    assert (
        plan_release(ClaimState.GONE, grace_seconds=60, released_at=began, now=NOW).move
        is EntryAction.WAIT
    )


def test_surplus_address_was_never_in_use_and_does_not_rest() -> None:
    plan = plan_release(ClaimState.SURPLUS, grace_seconds=60, released_at=None, now=NOW)

    assert plan.move is EntryAction.RETURN


@given(
    st.sampled_from([ClaimState.GONE, ClaimState.SURPLUS]), st.integers(0, 100), st.integers(0, 200)
)
def test_release_comes_to_an_end(hold: ClaimState, grace: int, passed: int) -> None:
    first = plan_release(hold, grace_seconds=grace, released_at=None, now=NOW)
    now = NOW + timedelta(seconds=passed)
    plan = plan_release(hold, grace_seconds=grace, released_at=first.released_at, now=now)

    assert (plan.move is EntryAction.RETURN) == (
        hold is ClaimState.SURPLUS or passed >= grace or first.move is EntryAction.RETURN
    )
