"""Work queue: each key once, namespaces in turns, the urgent first but never alone.

The contract is that of client-go's queue. A key that is added while it waits is one entry; a key
that is added while it is worked on is worked on again afterwards; so no two workers ever hold
the same key, and no change is lost. On top of it:

* fairness: namespaces take turns, so a flood in one delays the others by at most one key a turn;
* priorities within a namespace: a deletion goes before a live change, and that before the first
  listing and a resync, but of many keys of each kind the less urgent ones get a share as well, so
  nothing waits indefinitely;
* the priority of a key stays with it when its pass fails or asks for another one;
* delays: one timer a key, the earliest wish wins;
* back-off a key, forgotten on success, a pause between passes that ask for the next immediately,
  and a least time between the starts of two passes over a key.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable

from libs.common.clock import Clock, SystemClock, Timer
from libs.common.kinds import Key
from libs.common.metrics import QueueMetrics
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.lane import PRIORITY_EXPEDITE, PRIORITY_LIVE, PRIORITY_RESYNC, Lane

__all__ = [
    "PRIORITY_EXPEDITE",
    "PRIORITY_LIVE",
    "PRIORITY_RESYNC",
    "QueueClosed",
    "WorkQueue",
]


class QueueClosed(Exception):
    """The queue was closed and holds nothing more to do."""


class WorkQueue:
    """Hand keys to workers.

    Args:
        backoff: Delays of failing keys.
        min_interval: Least seconds between the starts of two passes over one key; 0 for none.
        clock: Time source.
        rng: Source of jitter.
        metrics: Told what happens.
    """

    def __init__(
        self,
        *,
        backoff: BackoffPolicy | None = None,
        min_interval: float = 0.0,
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
        metrics: QueueMetrics | None = None,
    ) -> None:
        """Start empty and open."""
        self._backoff = backoff or BackoffPolicy()
        self._min_interval = min_interval
        self._clock = clock or SystemClock()
        self._rng = rng
        self._metrics = metrics
        self._lanes: OrderedDict[str, Lane] = OrderedDict()  # By namespace, in order of turns.
        self._waiting: dict[Key, int] = {}  # Ready keys and their priority.
        self._again: dict[Key, int] = {}  # Keys that were added while a worker has them.
        self._working: dict[Key, int] = {}  # Keys that a worker has, as they were taken.
        self._timers: dict[Key, tuple[float, int, Timer]] = {}
        self._failures: dict[Key, int] = {}
        self._requeues: dict[Key, int] = {}
        self._last_pass: dict[Key, float] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, key: Key, *, priority: int | None = None, after: float = 0.0) -> None:
        """Ask for a pass over a key.

        Args:
            key: What to work on.
            priority: Higher goes first; a key that waits already keeps the higher of the two. None
                keeps the priority with which a worker took the key, and is a live change else.
            after: Seconds to wait first. An earlier wish for the key is never put off.
        """
        if self._closed:
            return
        if priority is None:
            priority = self._working.get(key, PRIORITY_LIVE)
        after = max(after, self._cool_down(key))
        if after > 0:
            self._delay(key, priority, after)
        elif key in self._working:
            self._again[key] = max(priority, self._again.get(key, priority))
        else:
            self._cancel_timer(key)
            self._make_ready(key, priority)

    def retry(self, key: Key, *, after: float | None = None, at_least: float = 0.0) -> float:
        """Ask for another reconcile after a failure.

        Args:
            key: What failed.
            after: Seconds to wait; None for the back-off of the key.
            at_least: Seconds that the back-off must not be shorter than.

        Returns:
            Seconds until the pass.
        """
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        delay = after
        if delay is None:
            delay = max(at_least, self._backoff.delay(failures, self._rng()))
        if self._metrics is not None:
            self._metrics.retried()
        self.add(key, after=delay)
        return delay

    def requeue(self, key: Key) -> float:
        """Ask for another reconcile immediately, after one that went well.

        The first comes immediately; those that ask for the next one again and again are backed off.

        Returns:
            Seconds until the pass.
        """
        self._failures.pop(key, None)
        asked = self._requeues[key] = self._requeues.get(key, 0) + 1
        delay = self._backoff.delay(asked - 1, self._rng()) if asked > 1 else 0.0
        self.add(key, after=delay)
        return delay

    def forget(self, key: Key) -> None:
        """Forget the failures of a key, after a reconcile that succeeded and asks for no other."""
        self._failures.pop(key, None)
        self._requeues.pop(key, None)

    def drop(self, key: Key) -> None:
        """Forget everything about a key whose object is gone."""
        self.forget(key)
        self._last_pass.pop(key, None)
        self._cancel_timer(key)

    def failures(self, key: Key) -> int:
        """Return how many passes over a key failed in a row."""
        return self._failures.get(key, 0)

    @property
    def failing(self) -> int:
        """Number of keys whose last reconcile failed."""
        return len(self._failures)

    async def get(self) -> Key:
        """Take the next key; the caller gives it back with `done`.

        Raises:
            QueueClosed: The queue was closed.
        """
        while True:
            if self._closed:
                raise QueueClosed
            if self._waiting:
                return self._take()
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except BaseException:
                # A taker that leaves after it was woken must wake another in its place.
                taker.cancel()
                if taker in self._takers:
                    self._takers.remove(taker)
                if not taker.cancelled():
                    self._wake()
                raise

    def done(self, key: Key) -> None:
        """Give a key back; it is ready again if it was added meanwhile."""
        del self._working[key]
        if self._metrics is not None:
            self._metrics.done(key)
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority=priority)
        self._changed.set()

    def close(self) -> None:
        """Hand out nothing more; keys in work are finished by their workers."""
        self._closed = True
        for _, _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._lanes.clear()
        for key in self._waiting:
            if self._metrics is not None:
                self._metrics.removed(key)
        self._waiting.clear()
        self._again.clear()
        for taker in self._takers:
            if not taker.done():
                taker.set_result(None)
        self._takers.clear()
        self._changed.set()

    async def drained(self) -> None:
        """Wait until no worker holds a key."""
        while self._working:
            self._changed.clear()
            await self._changed.wait()

    def __len__(self) -> int:
        """Return how many keys are ready, as `workqueue_depth` counts them."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing is ready and nothing is being worked on; delayed keys do not count."""
        return not self._waiting and not self._working and not self._again

    @property
    def delayed(self) -> int:
        """Number of keys that wait for a time to come."""
        return len(self._timers)

    def is_due_within(self, seconds: float) -> bool:
        """Return whether some delayed key is due in less than so many seconds."""
        horizon = self._clock.monotonic() + seconds
        return any(due < horizon for due, _, _ in self._timers.values())

    def _make_ready(self, key: Key, priority: int) -> None:
        held = self._waiting.get(key)
        if held is not None and held >= priority:
            return
        lane = self._lanes.get(key.namespace)
        if lane is None:
            lane = self._lanes[key.namespace] = Lane()
        if held is not None:
            lane.leave(held)
        self._waiting[key] = priority
        lane.append(key, priority)
        if self._metrics is not None:
            self._metrics.added(key, priority)
        self._wake()

    def _take(self) -> Key:
        namespace, lane = next(iter(self._lanes.items()))
        key, priority = lane.take(self._waiting)
        if lane.empty:
            del self._lanes[namespace]
        else:
            self._lanes.move_to_end(namespace)
        del self._waiting[key]
        self._working[key] = priority
        if self._min_interval:
            self._last_pass[key] = self._clock.monotonic()
        self._cancel_timer(key)
        if self._metrics is not None:
            self._metrics.started(key)
        return key

    def _delay(self, key: Key, priority: int, after: float) -> None:
        if key in self._waiting:
            return
        due = self._clock.monotonic() + after
        held = self._timers.get(key)
        if held is not None:
            if held[0] <= due and held[1] >= priority:
                return
            due, priority = min(due, held[0]), max(priority, held[1])
            held[2].cancel()
        timer = self._clock.call_later(
            max(0.0, due - self._clock.monotonic()), lambda: self._ring(key)
        )
        self._timers[key] = (due, priority, timer)

    def _ring(self, key: Key) -> None:
        _, priority, _ = self._timers.pop(key)
        self.add(key, priority=priority)

    def _cancel_timer(self, key: Key) -> None:
        held = self._timers.pop(key, None)
        if held is not None:
            held[2].cancel()

    def _cool_down(self, key: Key) -> float:
        last = self._last_pass.get(key)
        if last is None:
            return 0.0
        return max(0.0, last + self._min_interval - self._clock.monotonic())

    def _wake(self) -> None:
        while self._takers and self._waiting:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
