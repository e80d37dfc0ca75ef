"""A pool of threads that handle messages concurrently, and messages of one group in their order.

While calls of the handler are fast, the thread that receives messages handles them itself: passing
a message to another thread costs more than receiving it, and fast threads delay each other because
of the GIL. If such a call unexpectedly takes long, another thread continues to receive: see
`Lanes.detach`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from operators.pulsarconsumer.app.core.slot import Slot

_QUICK_SECONDS: Final = 0.0002
"""Duration below which a call is cheaper than another thread, because threads share the GIL."""
_SPARE_SECONDS: Final = 0.005
"""Duration below which a single call does not end lending; it may only have waited for a CPU."""
_QUEUED: Final = 100
"""Maximum number of items that wait for a thread; if more wait, submitting blocks."""
_AHEAD_SECONDS: Final = 0.1
"""At most as many items wait for a thread as are processed in this time."""


@dataclass(slots=True)
class Blocked[T]:
    """The rest of an item that could not be finished now, so that its group must wait.

    Attributes:
        owner: The item with which the group continues after it is submitted again.
        rest: Items that follow it before all other items of the group.
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
        work: Processes an item; returns what its group must wait for, or None. It records in the
            slot when its call began, and the duration of its calls.
        count: Maximum number of items that are processed concurrently.
        group_of: Returns the group of an item; items of a group are processed one after the other
            in the order of their submission. None if all items are independent.
        head: Returns the value that identifies an item when it is submitted again.
        park: Called with each item that waits for another item of its group.
        fail: Called with the exception if `work` raises one.
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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize; threads start when they are needed, and run until the process exits."""
        self._work, self._count, self._monotonic = work, count, monotonic
        self._group_of, self._head, self._park, self._fail = group_of, head, park, fail
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._room = threading.Condition()
        self._threads = self._idle = self._active = 0
        self._blocked_submitters = self._blocked_lenders = 0
        self._mean = 0.0
        self.stopped = False
        """Whether no further item is started."""
        self._slots: dict[int, Slot[T]] = {}
        self._dropped: dict[int, T] = {}
        self._lines: dict[str, _Line[T]] = {}
        self._lines_lock = threading.Lock()

    def submit(
        self,
        items: Sequence[T],
        give_up: Callable[[], bool] = lambda: False,
        *,
        lender: object = None,
    ) -> bool:
        """Submit items in their order; block while too many items wait.

        Args:
            items: Items to process.
            give_up: Returns whether to return although too many items wait; called several times
                per second.
            lender: Source whose thread calls this, if the thread may process items itself while
                calls are fast; otherwise None.

        Returns:
            False if the lender has another thread now; see `detach`.
        """
        self._queue.extend(items)
        lends, attached = lender is not None, True
        while True:
            # If another lent thread is blocked, leave the items to it, because it must receive from
            # its own topic.
            while lends and self._queue and not self._blocked_lenders and self._enter():
                attached = self._lend(lender)
                lends = attached
            if self._queue:
                self._wake(len(items))
            if not attached or not self._queue or self.stopped:
                return attached
            if len(self._queue) <= self._most_queued() or give_up():
                return attached
            with self._room:
                self._blocked_submitters += 1
                self._blocked_lenders += lends
                self._room.wait(0.1)
                self._blocked_submitters -= 1
                self._blocked_lenders -= lends

    def detach(self, slot: Slot[T]) -> object:
        """Detach a lent thread from its lender, which must then start another thread.

        Returns:
            The lender; None if the thread is not lent any more.
        """
        with self._changed:
            lender, slot.lender = slot.lender, None
        return lender

    def nudge(self) -> None:
        """Start another thread if items wait; called often."""
        if self._queue:
            self._wake(1, at_least_one=True)

    def pending(self) -> list[T]:
        """Return the items that are being processed or wait for a thread."""
        with self._lines_lock:
            waiting = [item for line in self._lines.values() for item in line.waiting]
        dropped = self._dropped
        queued = [item for item in self._queue.copy() if id(item) not in dropped]
        return [*self._working(), *queued, *waiting]

    def slots(self) -> list[Slot[T]]:
        """Return the slot of each thread."""
        return list(self._slots.copy().values())

    def purge(self, unwanted: Callable[[T], bool]) -> None:
        """Drop items that are not being processed yet."""
        with self._lines_lock:
            # Threads take items concurrently, so the queue is not changed; dropped items are
            # skipped when they are taken.
            self._dropped = {
                id(item): item
                for item in self._queue.copy()
                if unwanted(item) or id(item) in self._dropped
            }
            for group, line in list(self._lines.items()):
                line.waiting = deque(item for item in line.waiting if not unwanted(item))
                working = any(line.owner is item for item in self._working())
                if not working and unwanted(line.owner):
                    # The owner waits for its next attempt, which will never happen.
                    del self._lines[group]
                    self._queue.extend(line.waiting)

    def stop(self) -> None:
        """Start no further items."""
        self.stopped = True
        with self._room:
            self._room.notify_all()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no item is being processed, and return whether that happened in time.

        If the lanes are not stopped, this means that no items are left.
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

    def _most_queued(self) -> int:
        """Return how many items may wait.

        Another process cannot handle items that wait here, and their acknowledgment time-out runs.
        So only as many items wait as will be processed soon: none if calls take long.
        """
        now = self._monotonic()
        running = [now - began for slot in self.slots() if (began := slot.began)]
        mean = max(self._mean or max(running, default=0.0), _QUICK_SECONDS)
        per_second = max(0, self._count - len(running)) / mean
        per_second += sum(1 / max(mean, seconds) for seconds in running)
        return min(_QUEUED, int(per_second * _AHEAD_SECONDS))

    def _working(self) -> list[T]:
        return [slot.item for slot in self.slots() if slot.item is not None]

    def _lend(self, lender: object) -> bool:
        """Process items in a lent thread; return whether it still belongs to the lender."""
        thread = threading.get_ident()
        slot = self._slots[thread] = Slot(thread, lender=lender)
        try:
            self._drain(slot, len(self._queue), lent=True)
        finally:
            del self._slots[thread]
            attached = self.detach(slot) is not None
            self._leave()
        return attached

    def _enter(self) -> bool:
        """Become an active thread, unless there are too many."""
        if self._mean > _QUICK_SECONDS:
            return False
        with self._changed:
            if self._active >= self._count or self.stopped:
                return False
            self._active += 1
            return True

    def _leave(self, *, may_yield: bool = False) -> None:
        """Stop being active; a lane may first leave its items to a thread that can be lent."""
        with self._changed:
            self._active -= 1
            yields = self._yields
            if self._queue and not yields:
                self._changed.notify()
            with self._room:
                self._room.notify_all()
            if yields and may_yield:
                self._wait_for_change()

    @property
    def _yields(self) -> bool:
        """Whether threads of lanes leave items to a blocked thread that can be lent."""
        return self._blocked_lenders > 0 and self._mean <= _QUICK_SECONDS

    def _wake(self, items: int, *, at_least_one: bool = False) -> None:
        with self._changed:
            # While calls are fast, a single thread is faster than several threads.
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
        thread = threading.get_ident()
        slot = self._slots[thread] = Slot(thread)
        while True:
            with self._changed:
                while not self._queue or self.stopped or self._active >= self._count:
                    self._wait_for_change()
                self._active += 1
            try:
                self._drain(slot, _QUEUED)
            finally:
                self._leave(may_yield=True)

    def _wait_for_change(self) -> None:
        self._idle += 1
        self._changed.wait()
        self._idle -= 1

    def _drain(self, slot: Slot[T], most: int, *, lent: bool = False) -> None:
        """Process items until none are left, or until the calls of a lent thread become slow."""
        take: Callable[[], T] = self._queue.popleft
        work = self._work if self._group_of is None else self._follow
        if self._group_of is not None and self._count > 1:
            take = partial(self._take, slot)
        done, total = 0, 0.0
        try:
            while done < most and not self.stopped:
                try:
                    item = take()
                except IndexError:
                    break
                if self._dropped and self._dropped.pop(id(item), None) is not None:
                    continue
                slot.item, slot.seconds = item, 0.0
                if self._blocked_submitters and len(self._queue) <= _QUEUED // 2:
                    with self._room:
                        self._room.notify_all()
                work(item, slot)
                done += 1
                seconds = slot.seconds
                total += seconds
                if seconds > _SPARE_SECONDS:
                    self._mean = total / done  # Updated early, because the loop may run for long.
                if total > _SPARE_SECONDS and lent and total > _QUICK_SECONDS * done:
                    break
        except BaseException as err:  # noqa: BLE001  # It is told, and ends the app.
            self._fail(err)
        slot.item = None
        if done:
            self._mean = total / done

    def _take(self, slot: Slot[T]) -> T:
        """Take the next item that is the first of its group.

        Taking an item and claiming its group are one atomic step. Otherwise another thread could
        start an item before an earlier item of the same group.

        Raises:
            IndexError: There is no such item.
        """
        with self._lines_lock:
            while True:
                item = self._queue.popleft()
                if self._dropped and self._dropped.pop(id(item), None) is not None:
                    continue
                if self._claim(item):
                    slot.item = item
                    return item

    def _claim(self, item: T) -> bool:
        """Return whether an item is the first of its group; otherwise park it."""
        assert self._group_of is not None
        group = self._group_of(item)
        if not group:
            return True
        line = self._lines.setdefault(group, _Line(item))
        if self._head(line.owner) is self._head(item):
            return True
        line.waiting.append(item)
        self._park(item)
        return False

    def _follow(self, item: T, slot: Slot[T]) -> None:
        """Process an item of a group, and items of the group that arrive in the meantime."""
        assert self._group_of is not None
        if self._count == 1:
            if not self._lines:
                self._work_alone(item, slot)
                return
            with self._lines_lock:
                if not self._claim(item):
                    return
        group = self._group_of(item)
        line = self._lines.get(group)
        if line is None:
            self._work(item, slot)
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
            if slot.seconds > _SPARE_SECONDS:
                self._mean = slot.seconds
            slot.item, slot.seconds = item, 0.0

    def _work_alone(self, item: T, slot: Slot[T]) -> None:
        """Process an item while no other item is being processed and no group waits."""
        assert self._group_of is not None
        blocked = self._work(item, slot)
        if blocked is not None and (group := self._group_of(item)):
            with self._lines_lock:
                self._lines[group] = _Line(blocked.owner, deque(blocked.rest))
                self._park_all(blocked.rest)

    def _park_all(self, items: Iterable[T]) -> None:
        for item in items:
            self._park(item)
