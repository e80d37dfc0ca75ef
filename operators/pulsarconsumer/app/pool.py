"""The threads that call the handler."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from operators.pulsarconsumer.app.memory import Memory, Unit

_QUICK_SECONDS: Final = 0.0002
"""Duration below which a call is cheaper than another thread, because threads share the GIL."""
_QUEUED: Final = 100
"""Maximum number of units that wait for a thread; if more wait, submitting blocks."""
_AHEAD_SECONDS: Final = 0.1
"""At most as many units wait for a thread as are handled in this time."""
_MANY_SECONDS: Final = _AHEAD_SECONDS / _QUEUED
"""Mean duration below which many messages are received at a time."""
_WEIGHT: Final = 0.1
"""Weight of the last duration in the mean."""


@dataclass(slots=True, eq=False)
class Slot:
    """The current work of a thread.

    Attributes:
        unit: The messages that it handles; empty for none.
        began: Monotonic time at which the call of the handler began; 0 for no call.
    """

    thread: int
    unit: Unit = field(default_factory=list)
    began: float = 0.0


class HandlerThreads:
    """Threads that handle messages of a memory.

    Args:
        memory: Holds the messages.
        work: Handles messages; records in the slot when its call begins.
        count: Maximum number of threads.
        fail: Called with the exception if `work` raises one.
    """

    def __init__(
        self,
        memory: Memory,
        work: Callable[[Unit, Slot], None],
        count: int,
        fail: Callable[[BaseException], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize; threads start when they are needed, and end after `Memory.stop`."""
        self._memory, self._work, self._count, self._fail = memory, work, count, fail
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._slots: list[Slot] = []
        self._mean = math.inf  # Unknown, so few messages are received.

    def slots(self) -> list[Slot]:
        """Return the slot of each thread."""
        return self._slots.copy()

    def running(self) -> list[float]:
        """Return the start times of the running calls of the handler."""
        return [began for slot in self.slots() if (began := slot.began)]

    @property
    def is_fast(self) -> bool:
        """Whether messages are handled so fast that none waits long for those before it."""
        now = self._monotonic()
        running = [now - began for began in self.running()]
        return max([self._mean, *running]) < _MANY_SECONDS

    def submit(self, units: Sequence[Unit], give_up: Callable[[], bool]) -> None:
        """Add units to the memory; block while too many wait.

        Args:
            units: Units to handle.
            give_up: Returns whether to return although too many wait; called several times per
                second.
        """
        self._memory.add(units)
        self._wake(len(units))
        while not self._memory.wait_for_room(self._most_queued(), 0.1) and not give_up():
            pass

    def nudge(self) -> None:
        """Use another thread if messages wait; called often."""
        if waiting := self._memory.queued:
            self._wake(waiting, at_least_one=True)

    def _most_queued(self) -> int:
        """Return how many units may wait.

        Another process cannot handle messages that wait here, and their acknowledgment time-out
        runs. So only as many wait as will be handled soon: none if calls take long.
        """
        now = self._monotonic()
        running = [now - began for began in self.running()]
        mean = max(self._mean, _QUICK_SECONDS)
        per_second = max(0, self._count - len(running)) / mean
        per_second += sum(1 / max(mean, seconds) for seconds in running)
        return min(_QUEUED, int(per_second * _AHEAD_SECONDS))

    def _wake(self, units: int, *, at_least_one: bool = False) -> None:
        if self._mean <= _QUICK_SECONDS:
            # While calls are fast, a single thread is faster than several threads.
            units = int(at_least_one or not any(slot.unit for slot in self.slots()))
        units -= self._memory.wake(units)
        with self._lock:
            for _ in range(min(units, self._count - len(self._slots))):
                slot = Slot(0)
                self._slots.append(slot)
                name = f"handler-{len(self._slots)}"
                threading.Thread(target=self._run, args=(slot,), name=name, daemon=True).start()

    def _run(self, slot: Slot) -> None:
        slot.thread = threading.get_ident()
        while (unit := self._memory.take()) is not None:
            began = self._monotonic()
            slot.unit = unit
            try:
                self._work(unit, slot)
            except BaseException as err:  # noqa: BLE001  # It is reported, and ends the app.
                self._fail(err)
            finally:
                self._memory.release(unit)
                slot.unit = []
            seconds = self._monotonic() - began
            if self._mean == math.inf:
                self._mean = seconds
            self._mean += _WEIGHT * (seconds - self._mean)
