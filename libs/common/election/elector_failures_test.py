"""Blocked loops, dead threads and stuck electors: what the process does about itself."""

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.election.conftest import (
    KEY,
    TIMING,
    BrokenClient,
    CandidateGroup,
    ShiftedClock,
    renewals,
)
from libs.common.election.core import Step
from libs.common.election.elector import LeaseElector
from libs.common.election.interfaces import SoleLeader, build_identity
from libs.common.kinds import Kind, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until


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
    api, loop, stop = started.get(timeout=120)
    yield api
    loop.call_soon_threadsafe(stop.set)
    thread.join()


async def test_blocked_main_loop_does_not_lose_the_lease() -> None:
    with serve_in_thread() as api:
        a = await CandidateGroup(api).lead()
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


async def test_thread_that_dies_while_leading_gives_up_leadership(group: CandidateGroup) -> None:
    a = await group.lead()

    def die(*_: object) -> Step:
        raise AssertionError("a defect")

    a.elector._core.next_step = die  # type: ignore[method-assign, assignment]  # the bug to survive
    await until(lambda: not a.elector.is_leader())

    await until(lambda: a.elector.check() == "the elector thread is dead")
    await until(lambda: len(a.calls) == 2)
    await until(lambda: a.exits)


async def test_hard_exit_happens_even_if_nothing_can_be_logged(
    group: CandidateGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await group.lead()

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("libs.common.election.elector.log.error", fail, raising=False)
    with pytest.raises(OSError, match="no space"):
        a.elector._exit()

    assert a.exits == [1]


async def test_elector_that_is_stuck_fails_the_health_check(group: CandidateGroup) -> None:
    await group.lead()
    b = group.enter("b")
    await until(lambda: b.elector.holder == "a")

    async def hang(_: float) -> None:
        await asyncio.Event().wait()

    b.clock.sleep = hang  # type: ignore[method-assign, assignment]  # the bug to survive
    await until(lambda: b.elector._beat < time.monotonic() - 0.2)
    b.clock.shift = 100

    assert "made no progress for 100 s" in str(b.elector.check())


async def test_stop_before_start_and_twice_is_harmless(group: CandidateGroup, api: FakeApi) -> None:
    idle = LeaseElector(lambda: Client(api.config), KEY, "idle", TIMING)
    assert idle.check() is None
    await idle.stop()
    a = await group.lead()
    await a.elector.stop()
    await a.elector.stop()

    assert group.holder() == ""


async def test_leadership_that_was_over_before_the_response_is_not_announced(
    api: FakeApi,
) -> None:
    clock, calls, exits = ShiftedClock(), list[str](), list[int]()

    class SlowClient(BrokenClient):
        async def create(self, kind: Kind, manifest: Manifest, **options: Any) -> Manifest:
            made = await super().create(kind, manifest, **options)
            # The response arrives after the deadline, and no renewal after it.
            clock.shift += 100
            self.cut = True
            return made

    elector = LeaseElector(
        lambda: SlowClient(api.config),
        KEY,
        "a",
        TIMING,
        clock=clock,
        on_started_leading=lambda: calls.append("started"),
        on_stopped_leading=lambda: calls.append("stopped"),
        hard_exit=exits.append,
    )
    elector.start()
    await until(lambda: elector.check() is not None)

    assert calls == []
    await elector.stop()


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
