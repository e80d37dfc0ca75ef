"""A clock that does not count time in which processes wait for a CPU.

Trials decide with timeouts whether an operator is late or at rest. On a busy machine, the operator,
the API server and the proxy wait for a CPU during this time, which says nothing about them. The
clock leaves these waits out, so that the result of a trial does not depend on the load.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

_LEAST: Final = 0.1
"""Minimum share of the real time that counts, so that each deadline is reached."""
_MOST: Final = 2.0
"""Maximum seconds that count between two reads; after a longer gap, this process was stopped."""
_SAMPLE: Final = 0.02
"""Minimum seconds between two reads of the waits of a process."""
_PROC: Final = Path("/proc")

type Waits = Mapping[int, int]
"""Nanoseconds that each thread of a process has waited for a CPU."""


def read_waits(pid: int, proc: Path = _PROC) -> Waits:
    """Read how long the threads of a process have waited; empty if the kernel cannot tell."""
    found: dict[int, int] = {}
    folder = f"{proc}/{pid}/task"
    try:
        threads = os.listdir(folder)
    except OSError:
        return found
    for thread in threads:
        try:
            file = os.open(f"{folder}/{thread}/schedstat", os.O_RDONLY)
        except OSError:
            continue  # It has ended.
        try:
            fields = os.read(file, 128).split()
        except OSError:
            continue
        finally:
            os.close(file)
        if len(fields) == 3:
            found[int(thread)] = int(fields[1])
    return found


class Meter:
    """A meter of the waiting times of processes, shared by many trials.

    Args:
        clock: Real time, in seconds.
        read: Reads how long the threads of a process have waited.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[int], Waits] = read_waits,
    ) -> None:
        """Initialize without cached waits."""
        self._clock = clock
        self._read = read
        self._held: dict[int, tuple[float, Waits]] = {}

    def read(self, pid: int) -> Waits:
        """Return the waits of a process, which may be slightly outdated."""
        at = self._clock()
        held = self._held.get(pid)
        if held is None or at - held[0] >= _SAMPLE:
            held = self._held[pid] = at, self._read(pid)
        return held[1]

    def forget(self, pid: int) -> None:
        """Remove the cached waits of a process that has ended."""
        self._held.pop(pid, None)


class ProgressClock:
    """A clock of the seconds in which some processes could make progress.

    Args:
        list_pids: Lists the current processes.
        clock: Real time, in seconds.
        read: Reads how long the threads of a process have waited.
    """

    def __init__(
        self,
        list_pids: Callable[[], Collection[int]],
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[int], Waits] = read_waits,
    ) -> None:
        """Start at 0."""
        self._list_pids = list_pids
        self._clock = clock
        self._read = read
        self._looked = clock()
        self._waits: dict[int, Waits] = {pid: read(pid) for pid in list_pids()}
        self._passed = 0.0
        self._paused = 0

    def now(self) -> float:
        """Return the seconds that have counted so far."""
        at = self._clock()
        passed = at - self._looked
        if passed >= _SAMPLE:
            self._looked = at
            waited = sum(map(self._measure, self._list_pids()))
            if not self._paused:
                self._passed += min(max(passed - waited, passed * _LEAST), _MOST)
        return self._passed

    def pause(self) -> None:
        """Stop the clock, for example while a fault blocks all processes."""
        self.now()
        self._paused += 1

    def resume(self) -> None:
        """Continue the clock after `pause`."""
        self.now()
        self._paused -= 1

    def _measure(self, pid: int) -> float:
        """Return the longest wait of a thread of a process since the last call, in seconds."""
        before, after = self._waits.get(pid), self._read(pid)
        self._waits[pid] = after
        if before is None:
            return 0.0  # The process is new; its earlier waits are unknown.
        return max((after[each] - before.get(each, after[each]) for each in after), default=0) / 1e9
