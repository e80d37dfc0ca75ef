"""Queries in the background: who waits for the response, who is woken, and who is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from libs.common.background import BackgroundQueries
from libs.common.testing.clock import FakeClock
from libs.common.testing.waiting import turns, until

SILENCE = "no answer"


@dataclass
class FakeSystem:
    """Questions to an outside system whose answers are given by hand."""

    patience: float = 0.0
    limit: int = 16
    answer: str = "yes"
    asked: int = 0
    woken: int = 0
    clock: FakeClock = field(default_factory=FakeClock)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.outside = BackgroundQueries[str, str](
            lambda answer: answer == SILENCE,
            patience=self.patience,
            limit=self.limit,
            clock=self.clock,
        )

    async def ask(self, key: str = "a", address: str | None = None, **options: bool) -> str | None:
        return await self.outside.ask(
            key, self._ask, address=address, pause=10.0, wake=self._wake, **options
        )

    async def _ask(self) -> str:
        self.asked += 1
        await self.gate.wait()
        return self.answer

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem()


async def test_quick_answer_is_there_in_the_same_pass_and_each_pass_asks_anew() -> None:
    system = FakeSystem(patience=120.0)
    system.gate.set()

    assert [await system.ask(), await system.ask()] == ["yes", "yes"]
    assert (system.asked, system.woken) == (2, 0)


async def test_slow_answer_holds_up_no_pass_wakes_one_and_is_taken_by_it(
    system: FakeSystem,
) -> None:
    assert [await system.ask() for _ in range(3)] == [None] * 3
    assert system.outside.is_pending("a")
    system.gate.set()
    await until(lambda: system.woken > 0)

    assert await system.ask() == "yes"
    assert (system.asked, system.woken) == (1, 1)
    assert not system.outside.is_pending("a")


async def test_answer_that_is_needed_is_waited_for(system: FakeSystem) -> None:
    asked = asyncio.create_task(system.ask(wait=True))
    await turns()
    assert not asked.done()
    system.gate.set()

    assert await asked == "yes"


async def test_only_one_pass_waits_for_an_address_that_owes_an_answer() -> None:
    system = FakeSystem(patience=2.0)

    async with asyncio.timeout(120):
        for number in range(100):
            await system.ask(str(number), "slow")

    # A hundred that wait would take 200 s.
    await system.outside.close()


async def test_address_that_owes_another_answer_is_not_waited_for() -> None:
    gates = {key: asyncio.Event() for key in ("a", "b", "c")}
    outside = BackgroundQueries[str, str](lambda _: False, patience=1000.0)

    async def ask(key: str) -> str | None:
        async def answer() -> str:
            await gates[key].wait()
            return key

        return await outside.ask(key, answer, address="slow", wake=lambda: None)

    first = asyncio.create_task(ask("a"))
    await until(lambda: outside.is_pending("a"))
    assert await ask("b") is None
    gates["a"].set()
    assert await first == "a"

    async with asyncio.timeout(120):
        assert await ask("c") is None, "b is owed an answer still"
    await outside.close()


async def test_silent_address_is_left_alone_by_all_for_a_while(system: FakeSystem) -> None:
    system.gate.set()
    system.answer = SILENCE
    assert await system.ask("a", "here", wait=True) == SILENCE
    system.answer = "yes"

    assert [await system.ask(key, "here") for key in ("a", "b")] == [SILENCE] * 2
    assert await system.ask("c", "there", wait=True) == "yes"
    assert system.asked == 2
    system.clock.advance(10.0)
    assert await system.ask("a", "here", wait=True) == "yes"


async def test_silent_address_is_asked_when_it_is_to_be_heard(system: FakeSystem) -> None:
    system.gate.set()
    system.answer = SILENCE
    await system.ask(wait=True)
    system.answer = "yes"
    system.outside.retry_address("a")

    assert await system.ask(wait=True) == "yes"


async def test_canceled_pass_leaves_its_question_to_the_next(system: FakeSystem) -> None:
    canceled = asyncio.create_task(system.ask(wait=True))
    await until(lambda: system.asked == 1)
    canceled.cancel()
    await asyncio.gather(canceled, return_exceptions=True)
    system.gate.set()

    assert await system.ask(wait=True) == "yes"
    assert system.asked == 1


@pytest.mark.parametrize("end", [lambda system: system.outside.forget("a"), None])
async def test_question_that_is_forgotten_ends_and_has_no_answer(
    system: FakeSystem, end: Callable[[FakeSystem], None] | None
) -> None:
    asked = asyncio.create_task(system.ask(wait=True))
    await until(lambda: system.asked == 1)
    if end is None:
        await system.outside.close()
    else:
        end(system)

    assert await asked is None
    assert not system.outside.is_pending("a")


async def test_close_waits_for_a_forgotten_query() -> None:
    """Its connection would otherwise still be open when its owner closes the session."""
    started, ended = asyncio.Event(), asyncio.Event()
    outside = BackgroundQueries[str, str](lambda _: False, patience=0.0)

    async def ask() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await turns()
            ended.set()
        return "never"

    await outside.ask("a", ask, wake=lambda: None)
    await started.wait()
    outside.forget("a")
    await outside.close()

    assert ended.is_set()


async def test_so_many_are_asked_at_a_time() -> None:
    system = FakeSystem(limit=3)

    for number in range(10):
        await system.ask(str(number), str(number))
    await turns()
    assert system.asked == 3
    system.gate.set()
    await until(lambda: system.asked == 10)


async def test_error_is_raised_to_the_pass_that_takes_it(system: FakeSystem) -> None:
    async def fail() -> str:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await system.outside.ask("a", fail, wait=True, wake=lambda: None)
    assert not system.outside.is_pending("a")


def _has(begun: list[str], count: int) -> bool:
    return len(begun) == count


async def test_slow_systems_of_one_namespace_delay_no_other() -> None:
    """A tenant can name any number of addresses that do not respond before their time limit."""
    outside = BackgroundQueries[str, str](lambda _: False, limit=4, patience=0)
    begun: list[str] = []
    gates: dict[str, asyncio.Event] = {}

    async def ask(key: str, namespace: str) -> None:
        async def answer() -> str:
            begun.append(key)
            gates[key] = asyncio.Event()
            await gates[key].wait()
            return key

        await outside.ask(key, answer, namespace=namespace, wake=lambda: None)

    for number in range(100):
        await ask(f"slow-{number}", "attacker")
    for name in ("a", "b"):
        await ask(name, "victim")
    await until(lambda: len(begun) == 4)
    outside.forget("slow-50")
    for number in range(3):
        gates[f"slow-{number}"].set()
        await until(partial(_has, begun, 5 + number))

    assert begun[4:6] == ["a", "b"]
    await outside.close()


async def test_queries_that_are_forgotten_while_they_wait_leave_room_for_others() -> None:
    outside = BackgroundQueries[str, str](lambda _: False, limit=1, patience=0)
    gate = asyncio.Event()

    async def answer() -> str:
        await gate.wait()
        return "yes"

    for key in "abc":
        await outside.ask(key, answer, namespace="team", wake=lambda: None)
    await turns()
    for key in "ab":
        outside.forget(key)
    gate.set()

    assert await outside.ask("c", answer, namespace="team", wait=True, wake=lambda: None) == "yes"
    await outside.close()
