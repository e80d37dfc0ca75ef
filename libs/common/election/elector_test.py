"""Tests of the election by real threads against an API server over HTTP."""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from libs.common.client import Client
from libs.common.election import LeaseElector, SoleLeader, Timing, build_identity
from libs.common.election.core import Step
from libs.common.errors import Unreachable
from libs.common.kinds import LEASE, Key, Kind, Manifest
from libs.common.metrics import Metrics
from libs.common.testing.fakeapi import FakeApi

KEY = Key("default", "podset")
# The API knows whole seconds only, so a takeover takes one.
TIMING = Timing(lease_duration=1.0, renew_deadline=0.6, retry_period=0.05)


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until a condition holds; another thread makes it so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def renewals(api: FakeApi) -> int:
    """Count what was sent to renew, one of which may still be under way."""
    return len(api.requests.select(kind=LEASE, where=lambda request: request.method == "PUT"))


class BrokenClient(Client):
    """A client whose network can be cut."""

    cut = False

    async def get(self, kind: Kind, key: Key, subresource: str = "") -> Manifest:
        self._check()
        return await super().get(kind, key, subresource)

    async def replace(
        self, kind: Kind, manifest: Manifest, *, subresource: str = "", field_manager: str = ""
    ) -> Manifest:
        self._check()
        return await super().replace(
            kind, manifest, subresource=subresource, field_manager=field_manager
        )

    def _check(self) -> None:
        if self.cut:
            raise Unreachable("PUT", "the network is cut")


class ShiftedClock:
    """The clock of the machine, which a test can set forward as a suspension does."""

    def __init__(self) -> None:
        self.shift = 0.0
        self.wall_shift = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.shift

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time() + self.wall_shift, UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Contender:
    """An elector with everything that a test wants to look at."""

    def __init__(self, api: FakeApi, name: str) -> None:
        self.client = BrokenClient(api.config)
        self.clock = ShiftedClock()
        self.metrics = Metrics(process=False)
        self.calls: list[tuple[str, str]] = []
        self.exits: list[int] = []
        self.elector = LeaseElector(
            lambda: self.client,
            KEY,
            name,
            TIMING,
            on_started_leading=lambda: self.called("started"),
            on_stopped_leading=lambda: self.called("stopped"),
            metrics=self.metrics.leader("podset"),
            clock=self.clock,
            hard_exit=self.exits.append,
        )

    def called(self, what: str) -> None:
        self.calls.append((what, threading.current_thread().name))

    @property
    def gauge(self) -> float | None:
        return self.metrics.value("leader_election_master_status", name="podset")


class Arena:
    """Makes contenders and stops them in the end."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.contenders: list[Contender] = []

    def enter(self, name: str) -> Contender:
        contender = Contender(self.api, name)
        self.contenders.append(contender)
        contender.elector.start()
        return contender

    async def lead(self, name: str = "a") -> Contender:
        contender = self.enter(name)
        await until(contender.elector.is_leader)
        return contender

    def holder(self) -> str:
        lease = self.api.find(LEASE, KEY)
        return str((lease or {}).get("spec", {}).get("holderIdentity"))


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def arena(api: FakeApi) -> AsyncIterator[Arena]:
    arena = Arena(api)
    yield arena
    api.faults.clear()
    await asyncio.gather(*(contender.elector.stop() for contender in arena.contenders))


async def test_first_one_leads_and_tells_the_main_loop(arena: Arena) -> None:
    a = await arena.lead()
    await until(lambda: a.calls)

    assert a.calls == [("started", threading.current_thread().name)]
    assert arena.holder() == "a"
    assert a.gauge == 1
    assert a.elector.check() is None


async def test_standby_is_well_and_takes_over_a_released_lease_fast(arena: Arena) -> None:
    a = await arena.lead()
    b = arena.enter("b")
    await until(lambda: b.elector.holder == "a")
    assert b.elector.check() is None

    started = time.monotonic()
    await a.elector.stop()
    await until(b.elector.is_leader)

    assert time.monotonic() - started < TIMING.lease_duration / 2
    assert not a.elector.is_leader()
    assert [call for call, _ in a.calls] == ["started", "stopped"]
    assert a.gauge == 0
    assert b.elector.fencing_token > a.elector.fencing_token
    assert a.exits == []


async def test_partitioned_leader_stops_before_the_standby_takes_over(arena: Arena) -> None:
    a = await arena.lead()
    b = arena.enter("b")
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
    arena: Arena, api: FakeApi, fault: str
) -> None:
    a = await arena.lead()
    started = time.monotonic()
    if fault == "errors":
        api.fail("", LEASE, status=500, times=None)
    else:
        api.hang("", LEASE, times=None)
    await until(lambda: not a.elector.is_leader())

    assert time.monotonic() - started < TIMING.renew_deadline + 0.3
    await until(lambda: a.exits)
    assert a.exits == [1]
    assert time.monotonic() - started < TIMING.lease_duration + 0.5


async def test_process_that_stops_in_time_is_not_ended_hard(arena: Arena, api: FakeApi) -> None:
    a = await arena.lead()
    api.fail("PUT", LEASE, status=500, times=None)
    await until(lambda: not a.elector.is_leader())
    api.faults.clear()
    await a.elector.stop()
    await asyncio.sleep(TIMING.lease_duration - TIMING.renew_deadline)

    assert a.exits == []
    assert arena.holder() == "", "what is still ours is handed over"


async def test_short_outage_does_no_harm(arena: Arena, api: FakeApi) -> None:
    a = await arena.lead()
    fault = api.fail("PUT", LEASE, status=503, times=3)
    await until(lambda: fault.hits == 3)
    seen = renewals(api)
    await until(lambda: renewals(api) > seen + 1)

    assert [call for call, _ in a.calls] == ["started"]


async def test_edit_of_the_lease_costs_a_conflict_and_not_the_leadership(
    arena: Arena, api: FakeApi
) -> None:
    a = await arena.lead()
    api.patch(LEASE, KEY, {"metadata": {"labels": {"seen": "yes"}}})
    slow = "leader_election_slowpath_total"
    await until(lambda: a.metrics.value(slow, name="podset"))
    seen = renewals(api)
    await until(lambda: renewals(api) > seen + 1)

    assert a.elector.is_leader()
    assert api.get(LEASE, KEY)["metadata"]["labels"] == {"seen": "yes"}


async def test_leader_stops_when_somebody_takes_the_lease(arena: Arena, api: FakeApi) -> None:
    a = await arena.lead()
    api.patch(LEASE, KEY, {"spec": {"holderIdentity": "release"}})
    await until(lambda: not a.elector.is_leader())
    await until(lambda: len(a.calls) == 2)

    assert "held by 'release'" in str(a.elector.check())
    await a.elector.stop()
    assert arena.holder() == "release"


async def test_lost_answer_to_the_first_write_is_no_loss(arena: Arena, api: FakeApi) -> None:
    api.fail("POST", LEASE, lost_answer=True)
    await arena.lead()

    assert arena.holder() == "a"


async def test_lost_answer_to_a_renewal_is_no_loss(arena: Arena, api: FakeApi) -> None:
    a = await arena.lead()
    fault = api.fail("PUT", LEASE, lost_answer=True)
    await until(lambda: fault.hits)
    seen = renewals(api)
    await until(lambda: renewals(api) > seen + 1)

    assert a.elector.is_leader()
    await a.elector.stop()
    assert arena.holder() == ""


async def test_lease_without_spec_is_free_and_keeps_its_labels(arena: Arena, api: FakeApi) -> None:
    lease: Manifest = {
        "apiVersion": LEASE.api_version,
        "kind": "Lease",
        "metadata": {"namespace": "default", "name": "podset", "labels": {"chart": "podset"}},
    }
    api.create(lease)
    await arena.lead()

    assert arena.holder() == "a"
    assert api.get(LEASE, KEY)["metadata"]["labels"] == {"chart": "podset"}


async def test_release_of_a_deleted_lease_is_done(arena: Arena, api: FakeApi) -> None:
    a = await arena.lead()
    # The leader itself would make it anew, as long as it leads.
    api.fail("POST", LEASE, status=403, times=None)
    api.delete(LEASE, KEY)
    await a.elector.stop()

    assert api.find(LEASE, KEY) is None


async def test_jumps_of_the_wall_clock_do_not_matter(arena: Arena, api: FakeApi) -> None:
    a = await arena.lead()
    b = arena.enter("b")
    for shift in (-86_400.0, 86_400.0, -1e9):
        a.clock.wall_shift = b.clock.wall_shift = shift
        seen = renewals(api)
        await until(lambda seen=seen: renewals(api) > seen + 1)  # type: ignore[misc]  # mypy infers no default of a lambda

    assert a.elector.is_leader()
    assert not b.elector.is_leader()


async def test_suspended_process_does_not_believe_that_it_leads(arena: Arena) -> None:
    a = await arena.lead()
    a.clock.shift = 3600.0

    assert not a.elector.is_leader(), "at once, whatever the thread has noticed"
    await until(lambda: a.exits)


@contextmanager
def serve_in_thread() -> Iterator[FakeApi]:
    """Run a fake API in a loop of its own, so that a test may block this one."""
    started: queue.Queue[tuple[FakeApi, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        stop = asyncio.Event()
        async with FakeApi() as api:
            started.put((api, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    api, loop, stop = started.get(timeout=5)
    yield api
    loop.call_soon_threadsafe(stop.set)
    thread.join()


async def test_blocked_main_loop_does_not_lose_the_lease() -> None:
    with serve_in_thread() as api:
        a = await Arena(api).lead()
        seen = renewals(api)
        time.sleep(1.5 * TIMING.renew_deadline)  # noqa: ASYNC251 to block is the point

        assert a.elector.is_leader()
        assert renewals(api) > seen
        await a.elector.stop()


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(3)])
async def test_dead_thread_fails_the_health_check(error: BaseException) -> None:
    exits: list[int] = []

    def fail() -> Client:
        raise error

    elector = LeaseElector(fail, KEY, "a", TIMING, hard_exit=exits.append)
    elector.start()
    await until(lambda: elector.check() == "the elector thread is dead")

    assert not elector.is_leader()
    assert exits == [], "a standby endangers nobody; the kubelet restarts it"
    await elector.stop()


async def test_thread_that_dies_while_leading_gives_up_leadership(arena: Arena) -> None:
    a = await arena.lead()

    def die(*_: object) -> Step:
        raise AssertionError("a defect")

    a.elector._core.next_step = die  # type: ignore[method-assign, assignment]  # the defect to survive
    await until(lambda: not a.elector.is_leader())

    await until(lambda: a.elector.check() == "the elector thread is dead")
    await until(lambda: len(a.calls) == 2)
    await until(lambda: a.exits)


async def test_hard_exit_happens_even_if_nothing_can_be_logged(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await arena.lead()

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("libs.common.election.elector.log.error", fail, raising=False)
    with pytest.raises(OSError, match="no space"):
        a.elector._exit()

    assert a.exits == [1]


async def test_elector_that_is_stuck_fails_the_health_check(arena: Arena) -> None:
    await arena.lead()
    b = arena.enter("b")
    await until(lambda: b.elector.holder == "a")

    async def hang(_: float) -> None:
        await asyncio.Event().wait()

    b.clock.sleep = hang  # type: ignore[method-assign, assignment]  # the defect to survive
    await until(lambda: b.elector._beat < time.monotonic() - 0.2)
    b.clock.shift = 100

    assert "did nothing for 100 s" in str(b.elector.check())


async def test_stop_before_start_and_twice_is_harmless(arena: Arena, api: FakeApi) -> None:
    idle = LeaseElector(lambda: Client(api.config), KEY, "idle", TIMING)
    await idle.stop()
    a = await arena.lead()
    await a.elector.stop()
    await a.elector.stop()

    assert arena.holder() == ""


async def test_sole_leader_leads_without_a_lease(api: FakeApi) -> None:
    calls: list[str] = []
    elector = SoleLeader(lambda: calls.append("started"))
    assert not elector.is_leader()
    elector.start()

    assert elector.is_leader()
    assert calls == ["started"]
    assert elector.check() is None
    await elector.stop()
    assert not elector.is_leader()
    assert list(api.requests) == []


def test_identity_is_unique_to_the_process() -> None:
    assert build_identity("podset-0") != build_identity("podset-0")
    assert build_identity("podset-0").startswith("podset-0_")
