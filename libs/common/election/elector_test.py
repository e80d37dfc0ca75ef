"""Tests of the election by real threads against an API server over HTTP."""

import asyncio
import threading
import time

import pytest

from libs.common.election.conftest import (
    KEY,
    TIMING,
    CandidateGroup,
    renewals,
)
from libs.common.election.core import Timing
from libs.common.kinds import LEASE, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until


async def test_first_one_leads_and_tells_the_main_loop(group: CandidateGroup) -> None:
    a = await group.lead()
    await until(lambda: a.calls)

    assert a.calls == [("started", threading.current_thread().name)]
    assert group.holder() == "a"
    assert a.gauge == 1
    assert a.elector.check() is None


async def test_standby_is_well_and_takes_a_released_lease_before_it_expires(
    group: CandidateGroup,
) -> None:
    group.timing = Timing(lease_duration=600.0, renew_deadline=400.0, retry_period=0.05)
    a = await group.lead()
    b = group.enter("b")
    await until(lambda: b.elector.holder == "a")
    assert b.elector.check() is None

    await a.elector.stop()
    await until(b.elector.is_leader)

    assert not a.elector.is_leader()
    assert [call for call, _ in a.calls] == ["started", "stopped"]
    assert a.gauge == 0
    assert b.elector.fencing_token > a.elector.fencing_token
    assert a.exits == []


async def test_partitioned_leader_stops_before_the_standby_takes_over(
    group: CandidateGroup,
) -> None:
    a = await group.lead()
    b = group.enter("b")
    await until(lambda: b.elector.holder == "a")
    a.client.cut = True
    both = False

    def taken_over() -> bool:
        nonlocal both
        both = both or (a.elector.is_leader() and b.elector.is_leader())
        return b.elector.is_leader()

    await until(taken_over)

    assert not both
    assert [call for call, _ in a.calls] == ["started", "stopped"]
    assert "no renewal succeeded" in str(a.elector.check())
    assert b.elector.fencing_token == a.elector.fencing_token + 1


@pytest.mark.parametrize("fault", ["errors", "silence"])
async def test_outage_of_the_api_ends_leadership_and_then_the_process(
    group: CandidateGroup, api: FakeApi, fault: str
) -> None:
    a = await group.lead()
    started = time.monotonic()
    if fault == "errors":
        api.fail("", LEASE, status=500, times=None)
    else:
        api.hang("", LEASE, times=None)

    def has_stopped() -> bool:
        # The clock is read first: whatever holds this test up, it is never asked too early.
        expired = time.monotonic() - started > TIMING.lease_duration
        leading = a.elector.is_leader()
        assert not (leading and expired), "a standby may lead by now"
        return not leading

    await until(has_stopped)

    await until(lambda: a.exits)
    assert a.exits == [1]


async def test_process_that_stops_in_time_is_not_ended_hard(
    group: CandidateGroup, api: FakeApi
) -> None:
    a = await group.lead()
    api.fail("PUT", LEASE, status=500, times=None)
    await until(lambda: not a.elector.is_leader())
    api.faults.clear()
    await a.elector.stop()
    await asyncio.sleep(TIMING.lease_duration - TIMING.renew_deadline)

    assert a.exits == []
    assert group.holder() == "", "what is still ours is handed over"


async def test_short_outage_does_no_harm(group: CandidateGroup, api: FakeApi) -> None:
    a = await group.lead()
    fault = api.fail("PUT", LEASE, status=503, times=3)
    await until(lambda: fault.hits == 3)
    seen = renewals(api)
    await until(lambda: renewals(api) > seen + 1)

    assert [call for call, _ in a.calls] == ["started"]


async def test_edit_of_the_lease_costs_a_conflict_and_not_the_leadership(
    group: CandidateGroup, api: FakeApi
) -> None:
    a = await group.lead()
    api.patch(LEASE, KEY, {"metadata": {"labels": {"seen": "yes"}}})
    slow = "leader_election_slowpath_total"
    await until(lambda: a.metrics.value(slow, name="podset"))
    seen = renewals(api)
    await until(lambda: renewals(api) > seen + 1)

    assert a.elector.is_leader()
    assert api.get(LEASE, KEY)["metadata"]["labels"] == {"seen": "yes"}


async def test_leader_stops_when_somebody_takes_the_lease(
    group: CandidateGroup, api: FakeApi
) -> None:
    a = await group.lead()
    api.patch(LEASE, KEY, {"spec": {"holderIdentity": "release"}})
    await until(lambda: not a.elector.is_leader())
    await until(lambda: len(a.calls) == 2)

    assert "held by 'release'" in str(a.elector.check())
    await a.elector.stop()
    assert group.holder() == "release"


async def test_lost_response_to_the_first_write_is_no_loss(
    group: CandidateGroup, api: FakeApi
) -> None:
    api.fail("POST", LEASE, lost_response=True)
    await group.lead()

    assert group.holder() == "a"


async def test_lost_response_to_a_renewal_is_no_loss(group: CandidateGroup, api: FakeApi) -> None:
    a = await group.lead()
    fault = api.fail("PUT", LEASE, lost_response=True)
    await until(lambda: fault.hits)
    seen = renewals(api)
    await until(lambda: renewals(api) > seen + 1)

    assert a.elector.is_leader()
    await a.elector.stop()
    assert group.holder() == ""


async def test_lease_without_spec_is_free_and_keeps_its_labels(
    group: CandidateGroup, api: FakeApi
) -> None:
    lease: Manifest = build_object(
        LEASE, "podset", "default", metadata={"labels": {"chart": "podset"}}
    )
    api.create(lease)
    await group.lead()

    assert group.holder() == "a"
    assert api.get(LEASE, KEY)["metadata"]["labels"] == {"chart": "podset"}


async def test_release_of_a_deleted_lease_is_done(group: CandidateGroup, api: FakeApi) -> None:
    a = await group.lead()
    # The leader itself would recreate it, as long as it leads.
    api.fail("POST", LEASE, status=403, times=None)
    api.delete(LEASE, KEY)
    await a.elector.stop()

    assert api.find(LEASE, KEY) is None


async def test_release_waits_for_the_response_to_a_renewal(
    group: CandidateGroup, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only with its version does the release need no conflict, a read and a second write."""
    monkeypatch.setattr("libs.common.election.elector._LAST_REQUEST_SECONDS", 30.0)
    a = await group.lead()
    renewal = api.hang("PUT", LEASE, committed=True)
    await until(lambda: renewal.hits, "a renewal was carried out")
    mark = api.mark()
    stopping = asyncio.ensure_future(a.elector.stop())
    stop = a.elector._stop_event
    await until(lambda: stop is not None and stop.is_set(), "the thread was told to stop")
    renewal.release()
    await stopping

    assert [request.method for request in api.requests.select(kind=LEASE, since=mark)] == ["PUT"]
    assert group.holder() == ""


async def test_jumps_of_the_wall_clock_do_not_matter(group: CandidateGroup, api: FakeApi) -> None:
    a = await group.lead()
    b = group.enter("b")
    for shift in (-86_400.0, 86_400.0, -1e9):
        a.clock.wall_shift = b.clock.wall_shift = shift
        seen = renewals(api)
        await until(lambda seen=seen: renewals(api) > seen + 1)  # type: ignore[misc]  # mypy infers no default of a lambda

    assert a.elector.is_leader()
    assert not b.elector.is_leader()


async def test_suspended_process_does_not_believe_that_it_leads(group: CandidateGroup) -> None:
    a = await group.lead()
    a.clock.shift = 3600.0

    assert not a.elector.is_leader(), "at once, whatever the thread has noticed"
    await until(lambda: a.exits)
