"""Work side by side: whatever ends the wait, nothing is left running."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from libs.common.tasks import run_together, wait_first
from libs.common.testing.waiting import until


@dataclass
class Request:
    """A request that takes some turns of the loop to end after its cancellation."""

    started: bool = False
    ended: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> str:
        self.started = True
        try:
            await self.gate.wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.ended = True
        return "done"


async def fail(request: Request) -> str:
    await until(lambda: request.started)
    raise OSError("connection reset")


async def test_results_have_the_order_of_the_work() -> None:
    slow, quick = Request(), Request()
    quick.gate.set()

    async def release() -> int:
        await until(lambda: quick.ended)
        slow.gate.set()
        return 7

    assert await run_together(slow.run(), quick.run(), release()) == ("done", "done", 7)
    assert await run_together() == ()


async def test_error_is_raised_as_it_is_after_the_others_have_ended() -> None:
    request = Request()

    with pytest.raises(OSError, match="connection reset"):
        await run_together(request.run(), fail(request))

    assert request.ended


async def test_first_of_several_errors_is_raised() -> None:
    request = Request()

    async def fail_later() -> str:
        try:
            return await request.run()
        finally:
            raise ValueError("a consequence of the cancellation")

    with pytest.raises(OSError, match="connection reset"):
        await run_together(fail_later(), fail(request))


async def test_cancelled_caller_waits_until_all_have_ended() -> None:
    requests = [Request(), Request()]
    task = asyncio.create_task(run_together(*(each.run() for each in requests)))
    await until(lambda: all(each.started for each in requests))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert all(each.ended for each in requests)


async def test_timeout_around_the_work_stays_a_timeout() -> None:
    request = Request()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run_together(request.run())

    assert request.ended


async def test_first_wait_ends_the_others() -> None:
    slow, quick = Request(), Request()
    quick.gate.set()

    await wait_first(slow.run(), quick.run())

    assert slow.ended


async def test_error_of_the_first_wait_is_raised_after_the_others_have_ended() -> None:
    request = Request()

    with pytest.raises(OSError, match="connection reset"):
        await wait_first(request.run(), fail(request))

    assert request.ended
