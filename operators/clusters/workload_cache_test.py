"""Slow clusters delay no reconcile, and their late responses are not lost."""

from __future__ import annotations

import asyncio

from libs.common.background import PATIENCE
from libs.common.testing.clock import FakeClock
from libs.common.testing.waiting import until
from operators.clusters.observed import Workload
from operators.clusters.workload_cache import WorkloadCache

UP = Workload(asked=True, reachable=True)


class Asked:
    """A cluster that answers when it is let."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cache = WorkloadCache(5.0, self.clock)
        self.gate = asyncio.Event()
        self.response = UP
        self.questions = 0
        self.wakes = 0

    async def look(self) -> Workload:
        def wake() -> None:
            self.wakes += 1

        return await self.cache.look("uid", self._ask, wake, namespace="team")

    async def _ask(self) -> Workload:
        self.questions += 1
        await self.gate.wait()
        return self.response


async def test_first_question_is_waited_for_and_each_pass_asks_anew() -> None:
    asked = Asked()
    first = asyncio.create_task(asked.look())
    await until(lambda: asked.questions == 1)
    assert not first.done()
    asked.gate.set()

    assert await first == await asked.look() == UP
    assert asked.questions == 2


async def test_slow_cluster_holds_up_no_pass_and_wakes_one_when_it_answers() -> None:
    asked = Asked()
    asked.gate.set()
    await asked.look()
    asked.gate.clear()
    asked.clock.advance(2)

    assert [await asked.look() for _ in range(3)] == [UP] * 3
    assert (asked.questions, asked.wakes) == (2, 0)
    asked.response = Workload(asked=True, message="no response in time")
    asked.gate.set()
    await until(lambda: asked.wakes > 0)

    assert await asked.look() == asked.response
    assert asked.questions == 2, "it is left alone for a while"
    asked.clock.advance(6)
    await asked.look()
    assert asked.questions == 3


async def test_answer_from_before_a_change_is_not_taken() -> None:
    asked = Asked()
    asked.gate.set()
    await asked.look()
    asked.gate.clear()
    await asked.look()
    asked.gate.set()
    await until(lambda: asked.wakes > 0)
    asked.cache.expire("uid")

    await asked.look()

    assert asked.questions == 3


async def test_change_is_not_asked_for_again_by_the_answer_from_before_it() -> None:
    """A slow cluster must not get the same change at every reconcile."""
    asked = Asked()
    asked.gate.set()
    before = await asked.look()
    asked.cache.expire("uid")
    asked.gate.clear()
    asked.response = Workload(asked=True, reachable=True, addons={"network": "digest"})

    after = asyncio.create_task(asked.look())
    await until(lambda: asked.questions == 2)
    await asyncio.wait({after}, timeout=2 * PATIENCE)
    assert not after.done(), "the answer from before the change was taken"
    asked.gate.set()

    assert await after == asked.response != before
