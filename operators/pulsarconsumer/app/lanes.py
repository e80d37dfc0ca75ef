"""Threads that handle messages: several at a time, and messages of one group in their order.

While one message is handled at a time and the calls of the handler are quick, the thread that
receives messages handles them itself: to hand a message to another thread costs more than to
receive it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from operators.pulsarconsumer.app.core.slot import Slot

_QUICK_SECONDS: Final = 0.0002
"""A call that takes less costs less than a further thread: those take turns in the interpreter."""
_QUEUED: Final = 100
"""Items that wait for a thread, before those that bring them have to wait."""


@dataclass(slots=True)
class Blocked[T]:
    """What is left of an item that could not be finished now, so that its group has to wait.

    Attributes:
        owner: The item with which the group continues, when it is submitted again.
        rest: Items that follow it before all others of the group.
    """

    owner: T
    rest: Sequence[T] = ()


@dataclass(slots=True)
class _Line[T]:
    owner: T
    waiting: deque[T] = field(default_factory=deque)


class Lanes[T]:
    """A pool of threads that process items.

    Args:
        work: Works on an item; returns what its group has to wait for, or None. It writes the
            times of its calls into the slot.
        count: How many items are worked on at a time.
        group_of: Returns the group of an item, whose items are worked on one after the other in
            the order of their submission; None if all items are independent.
        head: Returns by what an item is recognized when it is submitted again.
        park: Told of each item that waits for another one of its group.
        fail: Told of what `work` raises.
    """

    def __init__(
        self,
        work: Callable[[T, Slot[T]], Blocked[T] | None],
        count: int,
        group_of: Callable[[T], str] | None = None,
        *,
        head: Callable[[T], object] = lambda item: item,
        park: Callable[[T], None] = lambda _: None,
        fail: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        """Prepare; threads start when they are needed, and live as long as the process."""
        self._work, self._count = work, count
        self._group_of, self._head, self._park, self._fail = group_of, head, park, fail
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._room = threading.Condition()
        self._threads = self._idle = self._active = 0
        self._blocked_submitters = 0
        self._mean = 0.0
        self.stopped = False
        """Whether no further item is begun."""
        self._slots: dict[int, Slot[T]] = {}
        self._dropped: dict[int, T] = {}
        self._lines: dict[str, _Line[T]] = {}
        self._lines_lock = threading.Lock()

    def submit(
        self,
        items: Sequence[T],
        give_up: Callable[[], bool] = lambda: False,
        *,
        lend: bool = False,
    ) -> None:
        """Hand items over, in order; wait while too many wait, unless told to give up.

        Args:
            items: What must be worked on.
            give_up: Says whether to return though too many wait.
            lend: Whether the calling thread may work on items itself, as long as calls are quick.
        """
        self._queue.extend(items)
        # With several at a time, a call that waits must not hold up the receipt of the next ones.
        if lend and self._count == 1 and self._mean <= _QUICK_SECONDS and self._enter():
            slot = self._find_slot()
            try:
                self._drain(slot, len(self._queue), lent=True)
            finally:
                self._leave()
        if self._queue:
            self._wake(len(items))
        while len(self._queue) > _QUEUED and not (self.stopped or give_up()):
            with self._room:
                self._blocked_submitters += 1
                self._room.wait(0.1)
                self._blocked_submitters -= 1
            self.nudge()

    def nudge(self) -> None:
        """Start a further thread if items wait; called often."""
        if self._queue:
            self._wake(1, at_least_one=True)

    def pending(self) -> list[T]:
        """Return the items that are worked on, or wait for it."""
        with self._lines_lock:
            waiting = [item for line in self._lines.values() for item in line.waiting]
        dropped = self._dropped
        queued = [item for item in self._queue.copy() if id(item) not in dropped]
        return [*self._working(), *queued, *waiting]

    def slots(self) -> list[Slot[T]]:
        """Return what each thread works on."""
        return list(self._slots.copy().values())

    def purge(self, unwanted: Callable[[T], bool]) -> None:
        """Drop items that nobody works on yet."""
        # Threads take items meanwhile, so the queue stays as it is and these are skipped in it.
        self._dropped = {
            id(item): item
            for item in self._queue.copy()
            if unwanted(item) or id(item) in self._dropped
        }
        with self._lines_lock:
            for group, line in list(self._lines.items()):
                line.waiting = deque(item for item in line.waiting if not unwanted(item))
                working = any(line.owner is item for item in self._working())
                if not working and unwanted(line.owner):
                    # The owner waits for its next attempt, which will not come.
                    del self._lines[group]
                    self._queue.extend(line.waiting)

    def stop(self) -> None:
        """Begin no further item."""
        self.stopped = True
        with self._room:
            self._room.notify_all()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no item is being processed, and return whether that happened in time.

        Unless they are stopped, that is when no item is left.
        """
        deadline = time.monotonic() + seconds
        while self._active or (self._queue and not self.stopped):
            if time.monotonic() >= deadline:
                return False
            if not self.stopped:
                self.nudge()
            with self._room:
                self._room.wait(0.02)
        return True

    def _working(self) -> list[T]:
        return [slot.item for slot in self.slots() if slot.item is not None]

    def _find_slot(self) -> Slot[T]:
        thread = threading.get_ident()
        slot = self._slots.get(thread)
        if slot is None:
            slot = self._slots[thread] = Slot(thread)
        return slot

    def _enter(self) -> bool:
        """Become one of those that work, if there are not too many."""
        with self._changed:
            if self._active >= self._count or self.stopped:
                return False
            self._active += 1
            return True

    def _leave(self) -> None:
        with self._changed:
            self._active -= 1
            if self._queue:
                self._changed.notify()

    def _wake(self, items: int, *, at_least_one: bool = False) -> None:
        with self._changed:
            # A single thread is quicker than several while the calls are quick.
            slow = self._mean > _QUICK_SECONDS
            wanted = items if slow or not self._active or at_least_one else 0
            if not slow:
                wanted = min(wanted, 1)
            self._changed.notify(min(wanted, self._idle))
            for _ in range(min(wanted - self._idle, self._count - self._threads)):
                self._threads += 1
                name = f"lane-{self._threads}"
                threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        slot = self._find_slot()
        while True:
            with self._changed:
                while not self._queue or self.stopped or self._active >= self._count:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                self._active += 1
            try:
                self._drain(slot, sys.maxsize)
            finally:
                self._leave()

    def _drain(self, slot: Slot[T], most: int, *, lent: bool = False) -> None:
        """Work on items until there are none, or the calls of a thread that is lent are slow."""
        take, work = self._queue.popleft, self._work if self._group_of is None else self._follow
        done, began = 0, time.monotonic()
        try:
            while done < most and not self.stopped:
                try:
                    item = take()
                except IndexError:
                    break
                if self._dropped and self._dropped.pop(id(item), None) is not None:
                    continue
                slot.item = item
                work(item, slot)
                done += 1
                if self._blocked_submitters and len(self._queue) <= _QUEUED // 2:
                    with self._room:
                        self._room.notify_all()
                if lent and slot.seconds > _QUICK_SECONDS:
                    break
        except BaseException as err:  # noqa: BLE001  # It is told, and ends the app.
            self._fail(err)
        slot.item = None
        if done:
            self._mean = (time.monotonic() - began) / done
        if not lent or self._blocked_submitters:
            with self._room:
                self._room.notify_all()

    def _follow(self, item: T, slot: Slot[T]) -> None:
        """Process an item of a group, and further items of the group that arrived meanwhile."""
        assert self._group_of is not None
        if self._count == 1 and not self._lines:
            # Nothing else is worked on, and no group waits.
            blocked = self._work(item, slot)
            group = self._group_of(item) if blocked is not None else ""
            if blocked is not None and group:
                with self._lines_lock:
                    self._lines[group] = _Line(blocked.owner, deque(blocked.rest))
                    self._park_all(blocked.rest)
            return
        group = self._group_of(item)
        if not group:
            self._work(item, slot)
            return
        with self._lines_lock:
            line = self._lines.get(group)
            if line is None:
                line = self._lines[group] = _Line(item)
            elif self._head(line.owner) is not self._head(item):
                line.waiting.append(item)
                self._park(item)
                return
        while True:
            blocked = self._work(item, slot)
            with self._lines_lock:
                if blocked is not None:
                    line.owner = blocked.owner
                    line.waiting.extendleft(reversed(blocked.rest))
                    self._park_all(blocked.rest)
                    return
                if not line.waiting or self.stopped:
                    self._lines.pop(group, None)
                    return
                item = line.owner = line.waiting.popleft()
            slot.item = item

    def _park_all(self, items: Iterable[T]) -> None:
        for item in items:
            self._park(item)
