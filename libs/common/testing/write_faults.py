"""Harms: what the conformance suite does to an operator at one of its writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from libs.common.testing.fakeapi import FakeApi, Request
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import is_of_the_operator

type CrashMode = Literal["dropped", "lost", "after"]
"""When the operator dies: before the server acts, before it responds, or after the response."""
CRASH_MODES: Final[tuple[CrashMode, ...]] = ("dropped", "lost", "after")
_TRIALS: Final = 18
"""About as many runs a test makes of a workload with fewer writes than that."""


class WriteFault:
    """A fault at the n-th write of the operator.

    Attributes:
        harness: The operator; set before it starts.
        fired: Whether the write came.
        seen: Number of writes that came, up to that one.
    """

    def __init__(self, api: FakeApi, index: int) -> None:
        """Count writes from now on; `index` 0 is the first."""
        self.api = api
        self.fired = False
        self.seen = 0
        self.harness: OperatorHarness | None = None
        self._left = index

    def hits(self, request: Request) -> bool:
        """Return whether a request is the write that is harmed."""
        if self.fired or not is_of_the_operator(request):
            return False
        self.seen += 1
        self._left -= 1
        self.fired = self._left < 0
        return self.fired


class Fail(WriteFault):
    """A write that fails, as `FakeApi.fail` describes it."""

    def __init__(self, api: FakeApi, index: int, **how: Any) -> None:
        """Prepare the failure."""
        super().__init__(api, index)
        api.fail(times=1, where=self.hits, **how)


class WriteCrash(WriteFault):
    """A crash of the operator before, during or after a write, followed by a new process."""

    def __init__(self, api: FakeApi, index: int, mode: CrashMode) -> None:
        """Prepare the crash."""
        super().__init__(api, index)
        self._mode = mode
        self._task: asyncio.Task[None] | None = None
        api.fail(
            times=1,
            where=self._strike,
            dropped=mode == "dropped",
            lost_response=mode == "lost",
        )

    def _strike(self, request: Request) -> bool:
        if not self.hits(request):
            return False
        assert self.harness is not None
        self.harness.restarting = True
        self._task = asyncio.create_task(self._crash(request))
        # "after" lets the request pass and kills once it is answered.
        return self._mode != "after"

    async def _crash(self, request: Request) -> None:
        assert self.harness is not None
        while self._mode == "after" and not request.status:
            await asyncio.sleep(0)
        await self.harness.restart(crash=True)


def spread[T](writes: int, modes: Sequence[T]) -> Iterator[tuple[int, T]]:
    """Pair the writes of a workload with modes of harm.

    Each write of a short workload meets each mode. In a long one the modes take turns, so that each
    write still meets one of them: what a mode does to every write is the matter of the fault sweep,
    which has a real API server.
    """
    each = min(len(modes), max(1, _TRIALS // max(1, writes)))
    for index in range(writes):
        for turn in range(each):
            yield index, modes[(index * each + turn) % len(modes)]
