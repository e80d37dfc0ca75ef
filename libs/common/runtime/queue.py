"""Work queue: unique keys, fairness between namespaces, and priorities without starvation.

The contract is the same as for client-go's queue. A key that is added while it waits remains one
entry; a key that is added while it is being processed is processed again afterwards. So no two
workers ever process the same key, and no change is lost. In addition:

* fairness: namespaces take turns, so many keys in one namespace delay others by at most one key per
  turn;
* priorities within a namespace: deletions come before live changes, and these before the first
  listing and resyncs; less urgent keys get a share as well, so no key waits indefinitely;
* a key keeps its priority if its reconcile fails or requests another one;
* delays: one timer for each key; the earliest time wins;
* back-off for each key, which success resets; a pause between reconciles that request the next one
  immediately; a minimum time between the starts of two reconciles of a key.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from libs.common.clock import Clock, SystemClock, Timer
from libs.common.kinds import Key
from libs.common.metrics import QueueMetrics
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.namespace_queue import (
    PRIORITY_LIVE,
    NamespaceQueue,
)

MIN_DELAY: Final = 0.1
"""Seconds; a shorter delay that a reconcile requests again and again is backed off."""


class QueueClosed(Exception):
    """The queue was closed and is empty."""


class WorkQueue:
    """A queue of keys for workers.

    Args:
        backoff: Delays of failing keys.
        min_interval: Minimum seconds between the starts of two reconciles of a key; 0 for no limit.
        clock: Time source.
        rng: Source of jitter.
        metrics: Metrics of the queue.
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
        self._queues: OrderedDict[str, NamespaceQueue] = OrderedDict()  # By namespace, in turns.
        self._waiting: dict[Key, int] = {}  # Ready keys and their priority.
        self._again: dict[Key, int] = {}  # Keys that were added while a worker processes them.
        self._working: dict[Key, int] = {}  # Keys that are being processed, and their priority.
        self._timers: dict[Key, tuple[float, int, Timer]] = {}
        self._failures: dict[Key, int] = {}
        self._requeues: dict[Key, int] = {}
        self._last_start: dict[Key, float] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, key: Key, *, priority: int | None = None, after: float = 0.0) -> None:
        """Request a reconcile of a key.

        Args:
            key: Key to reconcile.
            priority: Higher priorities come first; a waiting key keeps the higher of the two. None
                keeps the priority with which a worker took the key, or stands for a live change.
            after: Delay in seconds. An earlier request for the key is never postponed.
        """
        if self._closed:
            return
        if priority is None:
            priority = self._working.get(key, PRIORITY_LIVE)
        after = max(after, self._seconds_to_min_interval(key))
        if after > 0:
            self._delay(key, priority, after)
        elif key in self._working:
            self._again[key] = max(priority, self._again.get(key, priority))
        else:
            self._cancel_timer(key)
            self._make_ready(key, priority)

    def retry(self, key: Key, *, after: float | None = None, at_least: float = 0.0) -> float:
        """Request another reconcile after a failure.

        Args:
            key: Key whose reconcile failed.
            after: Seconds to wait; None, or less than MIN_DELAY, for the back-off of the key.
            at_least: Minimum back-off in seconds.

        Returns:
            Seconds until the reconcile.
        """
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        # An immediate retry without a limit would use up a core.
        if after is None or after < MIN_DELAY:
            delay = max(at_least, self._backoff.delay(failures, self._rng()))
        else:
            delay = after
        if self._metrics is not None:
            self._metrics.retried()
        self.add(key, after=delay)
        return delay

    def requeue(self, key: Key, *, after: float = 0.0) -> float:
        """Request another reconcile immediately, or almost, after a successful one.

        The first one comes as requested; keys that repeatedly request the next one are backed off.

        Returns:
            Seconds until the reconcile.
        """
        self._failures.pop(key, None)
        asked = self._requeues[key] = self._requeues.get(key, 0) + 1
        delay = max(after, self._backoff.delay(asked - 1, self._rng())) if asked > 1 else after
        self.add(key, after=delay)
        return delay

    def forget(self, key: Key) -> None:
        """Reset the failures of a key after a successful reconcile that requests no other."""
        self._failures.pop(key, None)
        self._requeues.pop(key, None)

    def drop(self, key: Key) -> None:
        """Remove all data of a key whose object no longer exists."""
        self.forget(key)
        self._last_start.pop(key, None)
        self._cancel_timer(key)

    def failures(self, key: Key) -> int:
        """Return the number of successive failed reconciles of a key."""
        return self._failures.get(key, 0)

    @property
    def failing(self) -> int:
        """Number of keys whose last reconcile failed."""
        return len(self._failures)

    async def get(self) -> Key:
        """Take the next key; the caller must call `done` afterwards.

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
                # A cancelled waiter that was already woken must wake another waiter.
                taker.cancel()
                if taker in self._takers:
                    self._takers.remove(taker)
                if not taker.cancelled():
                    self._wake()
                raise

    def done(self, key: Key) -> None:
        """Mark a key as processed; it is ready again if it was added in the meantime."""
        del self._working[key]
        if self._metrics is not None:
            self._metrics.done(key)
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority=priority)
        self._changed.set()

    def close(self) -> None:
        """Close the queue; workers finish the keys that they are processing."""
        self._closed = True
        for _, _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queues.clear()
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
        """Wait until no key is being processed."""
        while self._working:
            self._changed.clear()
            await self._changed.wait()

    def __len__(self) -> int:
        """Return the number of ready keys, as in `workqueue_depth`."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no key is ready or being processed; delayed keys do not count."""
        return not self._waiting and not self._working and not self._again

    @property
    def delayed(self) -> int:
        """Number of delayed keys."""
        return len(self._timers)

    def is_due_within(self, seconds: float) -> bool:
        """Return whether a delayed key is due in less than the given number of seconds."""
        horizon = self._clock.monotonic() + seconds
        return any(due < horizon for due, _, _ in self._timers.values())

    def _make_ready(self, key: Key, priority: int) -> None:
        held = self._waiting.get(key)
        if held is not None and held >= priority:
            return
        queue = self._queues.get(key.namespace)
        if queue is None:
            queue = self._queues[key.namespace] = NamespaceQueue()
        if held is not None:
            queue.leave(held)
        self._waiting[key] = priority
        queue.append(key, priority)
        if self._metrics is not None:
            self._metrics.added(key, priority)
        self._wake()

    def _take(self) -> Key:
        namespace, queue = next(iter(self._queues.items()))
        key, priority = queue.take(self._waiting)
        if queue.empty:
            del self._queues[namespace]
        else:
            self._queues.move_to_end(namespace)
        del self._waiting[key]
        self._working[key] = priority
        if self._min_interval:
            self._last_start[key] = self._clock.monotonic()
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
            max(0.0, due - self._clock.monotonic()), lambda: self._on_timer(key)
        )
        self._timers[key] = (due, priority, timer)

    def _on_timer(self, key: Key) -> None:
        _, priority, _ = self._timers.pop(key)
        self.add(key, priority=priority)

    def _cancel_timer(self, key: Key) -> None:
        held = self._timers.pop(key, None)
        if held is not None:
            held[2].cancel()

    def _seconds_to_min_interval(self, key: Key) -> float:
        last = self._last_start.get(key)
        if last is None:
            return 0.0
        return max(0.0, last + self._min_interval - self._clock.monotonic())

    def _wake(self) -> None:
        while self._takers and self._waiting:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
