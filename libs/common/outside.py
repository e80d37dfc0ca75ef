"""Asks outside systems beside the reconciles, so that no reconcile waits long for a slow one.

A reconcile asks and gives the response a moment, since one reconcile is better than two. A response
that comes later wakes another reconcile, which takes it. While an address owes a response no other
reconcile waits for it, and one that gave none at all is left alone for a while, no matter who asks.

```python
answers = Outside[Key, Answer](lambda answer: not answer.reachable)
answer = await answers.ask(ctx.key, ask, address=url, pause=10.0, wake=wake)
```
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Final

from libs.common.clock import Clock, SystemClock

PATIENCE: Final = 0.25
"""Seconds that a reconcile gives a response."""
AT_ONCE: Final = 16
"""Most questions at a time."""


@dataclass(slots=True)
class _Question[A]:
    task: asyncio.Task[A]
    late: bool = False


class Outside[K: Hashable, A]:
    """Ask questions, one at a time for each key, and keep each response until a reconcile takes it.

    Args:
        is_silent: Says whether a response says that there was none.
        patience: Seconds that a reconcile gives a response.
        limit: Most questions at a time.
        clock: Tells the time.
    """

    def __init__(
        self,
        is_silent: Callable[[A], bool],
        *,
        patience: float = PATIENCE,
        limit: int = AT_ONCE,
        clock: Clock | None = None,
    ) -> None:
        """Begin with nothing asked."""
        self._is_silent = is_silent
        self._patience = patience
        self._gate = asyncio.Semaphore(limit)
        self._clock = clock or SystemClock()
        self._questions: dict[K, _Question[A]] = {}
        self._owing: Counter[Hashable] = Counter()
        self._silent: dict[Hashable, tuple[float, A]] = {}

    def is_asked(self, key: K) -> bool:
        """Return whether there is a question whose answer no reconcile has taken."""
        return key in self._questions

    async def ask(
        self,
        key: K,
        ask: Callable[[], Awaitable[A]],
        *,
        address: Hashable = None,
        pause: float = 0.0,
        wait: bool = False,
        wake: Callable[[], None],
    ) -> A | None:
        """Return the response to a question; None while there is none: it wakes a reconcile later.

        Args:
            key: Whose question. While its last one has a response to be taken, no new one is asked.
            ask: Asks; bounded in time. What it raises is raised here.
            address: Who is asked; None where each key has one of its own.
            pause: Seconds for which a silent address is left alone. What it last said stands for
                the response of whoever asks meanwhile.
            wait: Whether to wait for the response as long as it takes.
            wake: Called when the response comes and nobody waits for it any more.
        """
        where: Hashable = key if address is None else address
        question, patience = self._questions.get(key), 0.0
        if question is None:
            until, silence = self._silent.get(where, (0.0, None))
            if self._clock.monotonic() < until:
                return silence
            patience = 0.0 if where in self._owing else self._patience
            question = self._begin(key, where, self._run(where, ask, pause))
        # A reconcile that is canceled leaves the question alone: the next one finds the response.
        await asyncio.wait({question.task}, timeout=None if wait else patience)
        if not question.task.done():
            if not question.late:
                question.late = True
                question.task.add_done_callback(lambda _: wake())
            return None
        if self._questions.get(key) is question:
            del self._questions[key]
        return None if question.task.cancelled() else question.task.result()

    def hear(self, address: Hashable) -> None:
        """Have an address asked again that was silent."""
        self._silent.pop(address, None)

    def forget(self, key: K) -> None:
        """Forget the question of a key, and its response."""
        question = self._questions.pop(key, None)
        if question is not None:
            question.task.cancel()

    async def close(self) -> None:
        """End all questions."""
        tasks = [question.task for question in self._questions.values()]
        for key in list(self._questions):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, key: K, where: Hashable, work: Coroutine[Any, Any, A]) -> _Question[A]:
        question = self._questions[key] = _Question(asyncio.create_task(work))
        self._owing[where] += 1
        question.task.add_done_callback(lambda _: self._settle(where))
        return question

    def _settle(self, where: Hashable) -> None:
        self._owing[where] -= 1
        if not self._owing[where]:
            del self._owing[where]

    async def _run(self, where: Hashable, ask: Callable[[], Awaitable[A]], pause: float) -> A:
        async with self._gate:
            answer = await ask()
        if self._is_silent(answer):
            now = self._clock.monotonic()
            # Anyone who names addresses may name many: those whose time is over are not kept.
            self._silent = {each: held for each, held in self._silent.items() if held[0] > now}
            self._silent[where] = (now + pause, answer)
        return answer
