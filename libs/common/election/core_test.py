"""Tests of the rules of the election, one by one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from libs.common.election.core import Decision, LeaseCore, LeaseState, Step, Timing, Verb, decide
from libs.common.election.lease import LeaseRecord

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HELD = LeaseRecord("other", 15, 3, "t0", "t1", "7")


@pytest.mark.parametrize(
    ("record", "now", "expected"),
    [
        pytest.param(LeaseRecord(), 0, Decision(LeaseState.FREE), id="no-lease"),
        pytest.param(replace(HELD, holder=""), 0, Decision(LeaseState.FREE), id="released"),
        pytest.param(replace(HELD, holder="me"), 999, Decision(LeaseState.MINE), id="mine"),
        pytest.param(HELD, 14.9, Decision(LeaseState.HELD, 15), id="held"),
        pytest.param(HELD, 15, Decision(LeaseState.FREE, 15), id="expired"),
        pytest.param(
            replace(HELD, duration_seconds=30),
            20,
            Decision(LeaseState.HELD, 30),
            id="their-duration",
        ),
        pytest.param(
            replace(HELD, duration_seconds=0), 5, Decision(LeaseState.HELD, 10), id="no-duration"
        ),
        pytest.param(
            replace(HELD, resource_version=""), 14, Decision(LeaseState.HELD, 15), id="deleted"
        ),
    ],
)
def test_state_follows_from_record_and_time(
    record: LeaseRecord, now: float, expected: Decision
) -> None:
    assert decide(record, 0, now, "me", 10) == expected


def lead(core: LeaseCore, at: float = 0.0) -> LeaseRecord:
    core.was_read(None, at)
    step = core.next_step(at, NOON, 0)
    record = replace(step.record, resource_version="1")
    core.was_written(record, at, at, 0)
    return record


def test_leadership_ends_at_the_deadline_from_the_start_of_the_last_renewal() -> None:
    core = LeaseCore("me", Timing())
    record = lead(core)
    core.was_written(record, 2.0, 6.0, 0)

    assert core.is_leader(11.9)
    assert not core.is_leader(12.0), "though nobody has run the elector since"
    assert core.next_step(12.0, NOON, 0).verb is Verb.STOP
    assert not core.is_leader(3.0), "lost is lost"


def test_leader_renews_without_reading() -> None:
    core = LeaseCore("me", Timing())
    lead(core)

    assert core.next_step(0.5, NOON, 0) == Step(Verb.WAIT, 1.5)
    step = core.next_step(2.0, NOON + timedelta(seconds=2), 0)
    assert step.verb is Verb.REPLACE
    assert step.record.renew_time > step.record.acquire_time


def test_leader_reads_after_a_conflict_and_goes_on_when_it_still_holds() -> None:
    core = LeaseCore("me", Timing())
    record = lead(core)
    core.failed(2.0, 0, conflict=True)

    assert core.next_step(2.0, NOON, 0).verb is Verb.READ
    core.was_read(replace(record, resource_version="9"), 2.1)
    step = core.next_step(2.1, NOON, 0)
    assert (step.verb, step.record.resource_version) == (Verb.REPLACE, "9")


def test_leader_does_not_spin_when_somebody_writes_all_the_time() -> None:
    core = LeaseCore("me", Timing())
    lead(core)
    core.failed(2.0, 0, conflict=True)
    core.failed(2.1, 0, conflict=True)

    step = core.next_step(2.1, NOON, 0)
    assert step.verb is Verb.WAIT
    assert step.seconds == pytest.approx(2.0)


@pytest.mark.parametrize("holder", ["other", ""])
def test_leader_loses_when_it_reads_another_holder(holder: str) -> None:
    core = LeaseCore("me", Timing())
    lead(core)
    core.failed(2.0, 0, conflict=True)
    core.was_read(replace(HELD, holder=holder), 2.1)

    assert not core.is_leader(2.1)
    assert core.next_step(2.1, NOON, 0).verb is Verb.STOP


def test_leader_makes_a_deleted_lease_anew_in_the_same_term() -> None:
    core = LeaseCore("me", Timing())
    record = lead(core)
    core.failed(2.0, 0, conflict=True)
    core.was_read(None, 2.1)
    step = core.next_step(2.1, NOON, 0)

    assert step.verb is Verb.CREATE
    assert step.record.transitions == record.transitions
    assert step.record.acquire_time == record.acquire_time


def test_standby_waits_for_expiry_although_the_lease_is_deleted() -> None:
    core = LeaseCore("me", Timing())
    core.was_read(HELD, 0)
    assert core.next_step(0, NOON, 0).verb is Verb.WAIT
    core.was_read(None, 2.0)

    assert core.next_step(2.0, NOON, 0).verb is Verb.WAIT
    core.was_read(None, 15.0)
    step = core.next_step(15.0, NOON, 0)
    assert (step.verb, step.record.transitions) == (Verb.CREATE, HELD.transitions + 1)


def test_standby_counts_from_what_it_saw_and_not_from_the_times_in_the_lease() -> None:
    core = LeaseCore("me", Timing())
    for second, renewed in enumerate(["1999-01-01", "2099-01-01", "1970-01-01"]):
        core.was_read(replace(HELD, renew_time=renewed), second * 10.0)
        assert core.next_step(second * 10.0, NOON, 0).verb is Verb.WAIT

    core.was_read(replace(HELD, renew_time="1970-01-01", resource_version="8"), 34.9)
    assert core.next_step(34.9, NOON, 0).verb is Verb.WAIT
    core.was_read(replace(HELD, renew_time="1970-01-01", resource_version="9"), 35.0)
    step = core.next_step(35.0, NOON, 0)
    assert step.verb is Verb.REPLACE, "an edit of labels does not prolong the leadership"
    assert (step.record.transitions, step.record.resource_version) == (4, "9")


def test_standby_takes_a_released_lease_at_once() -> None:
    core = LeaseCore("me", Timing())
    core.was_read(HELD, 0)
    core.next_step(0, NOON, 0)
    core.was_read(replace(HELD, holder="", renew_time="t2"), 2.0)

    assert core.next_step(2.0, NOON, 0).verb is Verb.REPLACE


def test_standby_looks_again_at_the_expiry_at_the_latest() -> None:
    core = LeaseCore("me", Timing())
    core.was_read(HELD, 0)
    core.next_step(0, NOON, 1)
    core.was_read(HELD, 14.0)

    assert core.next_step(14.0, NOON, 1) == Step(Verb.WAIT, 1.0)


def test_lost_response_to_an_acquisition_is_found_by_reading() -> None:
    core = LeaseCore("me", Timing())
    core.was_read(None, 0)
    claimed = core.next_step(0, NOON, 0).record
    core.failed(5.0, 0)
    core.was_read(replace(claimed, resource_version="1"), 7.0)

    assert not core.is_leader(7.0)
    step = core.next_step(7.0, NOON, 0)
    assert step.verb is Verb.REPLACE
    assert step.record.acquire_time == claimed.acquire_time


def test_release_hands_over_what_is_ours_only() -> None:
    mine, other = LeaseCore("me", Timing()), LeaseCore("me", Timing())
    lead(mine)
    other.was_read(HELD, 0)

    released = mine.release(NOON)
    assert released is not None
    assert released.holder == ""
    assert not mine.is_leader(0.1)
    assert other.release(NOON) is None


def test_release_after_a_loss_by_outage_hands_over_too() -> None:
    core = LeaseCore("me", Timing())
    lead(core)
    core.next_step(10.0, NOON, 0)

    assert core.lost_reason
    assert core.release(NOON) is not None


@pytest.mark.parametrize(
    ("now", "timeout"), [(2.0, 4.0), (6.0, 2.0), (9.5, 0.5)], ids=["half", "retry", "rest"]
)
def test_request_leaves_time_for_another_try(now: float, timeout: float) -> None:
    core = LeaseCore("me", Timing())
    lead(core)

    assert core.next_step(now, NOON, 0).seconds == timeout
