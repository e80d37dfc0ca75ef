"""The desk: who waits for a broker, and who does not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from libs.common.errors import ServerError
from libs.common.kinds import Key
from libs.common.testing.clock import FakeClock
from libs.common.testing.waiting import turns, until
from operators.pulsarconsumer.ask import evaluate
from operators.pulsarconsumer.broker.broker_cache import BrokerCache, CachedState
from operators.pulsarconsumer.broker.errors import AdminBusy
from operators.pulsarconsumer.report import Report

KEY = Key("default", "orders")
REPORT = Report(())


@dataclass
class Model:
    """A desk, and a broker whose answers are given by hand."""

    patience: float = 0.0
    clock: FakeClock = field(default_factory=FakeClock)
    asked: int = 0
    woken: int = 0
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.cache = BrokerCache(evaluate, patience=self.patience, clock=self.clock)

    async def ask(self) -> Report:
        self.asked += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return REPORT

    def wake(self) -> None:
        self.woken += 1

    async def look(self, key: Key = KEY, status_query: str = "q") -> CachedState:
        return await self.cache.look(
            key, status_query, "http://broker", self.ask, period=15.0, wake=self.wake
        )


@pytest.fixture
def model() -> Model:
    return Model()


async def test_quick_answer_is_there_in_the_same_pass() -> None:
    model = Model(patience=5.0)

    look = await model.look()

    assert (look.broker_state.report, look.serial, look.again) == (REPORT, 1, 15.0)
    assert model.woken == 0


async def test_slow_broker_tells_nothing_until_the_pass_that_it_wakes(model: Model) -> None:
    model.gate.clear()

    first = await model.look()
    assert (first.broker_state.asked, first.again) == (False, 1.0)
    model.gate.set()
    await until(lambda: model.woken == 1)

    assert (await model.look()).broker_state.report == REPORT
    assert model.asked == 1


async def test_broker_is_asked_when_it_is_due(model: Model) -> None:
    await model.look()
    await turns()
    model.clock.advance(14.0)
    await model.look()
    assert model.asked == 1

    model.clock.advance(1.0)
    await model.look()
    await turns()

    assert model.asked == 2


async def test_failures_are_counted_and_the_last_answer_is_kept(model: Model) -> None:
    await model.look()
    await turns()
    model.error = TimeoutError("gone")
    for failures in (1, 2, 3):
        model.clock.advance(15.0)
        await model.look()
        await turns()
        broker_state = (await model.look()).broker_state
        assert broker_state.failures == failures
        assert (broker_state.report, broker_state.fresh) == (REPORT, None)

    model.error = None
    model.clock.advance(15.0)
    await model.look()
    await turns()

    assert (await model.look()).broker_state.failures == 0


async def test_address_that_is_silent_is_left_alone_for_all(model: Model) -> None:
    model.error = TimeoutError("gone")
    await model.look()
    await turns()
    asked = model.asked

    for number in range(50):
        look = await model.look(Key("default", str(number)))
        assert look.broker_state.problem is not None

    assert model.asked == asked


async def test_look_that_could_not_be_made_is_made_soon_and_tells_nothing(model: Model) -> None:
    await model.look()
    await turns()
    reported = await model.look()
    model.clock.advance(15.0)
    model.error = ServerError(503)
    await model.look()
    await turns()

    look = await model.look()
    assert (look.broker_state, look.serial, look.again) == (
        reported.broker_state,
        reported.serial,
        1.0,
    )
    model.clock.advance(1.0)
    await model.look()
    await turns()
    assert model.asked == 3


async def test_temporary_error_is_reported_only_if_the_next_query_fails_too(model: Model) -> None:
    await model.look()
    await turns()
    model.clock.advance(15.0)
    model.error = AdminBusy("PUT: status 500")
    await model.look()
    await turns()
    look = await model.look()
    assert (look.broker_state.problem, look.broker_state.failures, look.again) == (None, 0, 1.0)

    model.clock.advance(1.0)
    await model.look()
    await turns()
    look = await model.look()
    assert look.broker_state.problem is not None
    # A broker that keeps failing is not queried more often than one that works.
    assert (look.broker_state.failures, look.again, model.asked) == (1, 15.0, 3)

    model.clock.advance(15.0)
    await model.look()
    await turns()
    assert (await model.look()).broker_state.failures == 2

    model.error = None
    model.clock.advance(15.0)
    await model.look()
    await turns()
    assert (await model.look()).broker_state.problem is None


async def test_problem_of_the_operator_between_two_temporary_errors_does_not_hide_them(
    model: Model,
) -> None:
    busy = AdminBusy("GET: status 503")
    for model.error in (busy, ServerError(503), busy):
        model.clock.advance(1.0)
        await model.look()
        await turns()
        await model.look()

    assert (await model.look()).broker_state.problem is not None
    assert model.asked == 3


async def test_new_question_forgets_the_old_answer(model: Model) -> None:
    await model.look()
    await turns()
    model.gate.clear()

    assert not (await model.look(status_query="other")).broker_state.asked
    model.gate.set()


async def test_change_is_made_once_and_a_failed_one_again(model: Model) -> None:
    done: list[int] = []

    async def act() -> None:
        done.append(1)
        if len(done) == 1:
            raise TimeoutError("gone")

    effects = []
    for _ in range(4):
        effects.append(await model.cache.act(KEY, "seek 1", act, model.wake))
        await turns()

    assert len(done) == 2
    assert [effect.done for effect in effects][-1]
    assert any(effect.problem for effect in effects)
