"""What redeliveries say about the broker: whether it has crashed, or its cursor was moved.

The broker has the last word. What this process remembers is valid only for a time:

| event | a message in memory | a message that was finished here |
| --- | --- | --- |
| delivered again | is confirmed | is not handled again if the broker may have lost the
  acknowledgment, see `_Watch.trusts`; otherwise it is handled again: the cursor was moved back |
| not delivered again after a lost connection, or when asked for | is given up: it was skipped,
  expired or deleted, or another consumer has it | - |
| not confirmed for `ASK_SECONDS` | the broker is asked to deliver it again; until then, there is no
  further attempt | - |
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from operators.pulsarconsumer.app.core.headers import COPY_OF
from operators.pulsarconsumer.app.core.states import State
from operators.pulsarconsumer.app.received import (
    RawMessage,
    Received,
    read_properties,
    render_identity,
)

_REMEMBERED: Final = 20_000
"""Maximum number of remembered ids of finished messages, and of remembered attempts."""
_PREFETCHED: Final = 1000
"""Number of other messages after which a broker that was asked has redelivered everything."""
REDELIVERY_SECONDS: Final = 60.0
"""Time in which brokers redeliver, after the first message of a connection and each redelivery.

See `Redeliveries.watch`.
"""
SILENT_SECONDS: Final = 600.0
"""Time for which redeliveries are expected of a broker that was away, without any message yet."""
ASK_SECONDS: Final = 60.0
"""Time for which a waiting message counts as confirmed by the broker."""
BUSY_SECONDS: Final = 20.0
"""Additional time for which the broker is not asked while the handler works on other messages.

The broker redelivers these as well, with KeyShared perhaps to a consumer that was added.
"""
ANSWER_SECONDS: Final = 30.0
"""Time in which a connected broker redelivers the messages that it is asked for."""
CRASH_SECONDS: Final = 5.0
"""Minimum time for which a broker is away that has crashed.

A connection that is back earlier was closed on purpose: the topic was moved to another broker,
which loses no acknowledgments, or the cursor was moved.
"""
STORED_SECONDS: Final = 60.0
"""Time after which a broker has stored an acknowledgment (managedLedgerCursorPositionFlushSeconds).
"""
_CHECK_SECONDS: Final = 0.5
_DOUBTFUL: Final = 1000
"""Maximum number of messages that are neither handled nor acknowledged until more is known."""
_DOUBT_SECONDS: Final = 2.0
"""Time without messages after which a broker has redelivered everything that it redelivers."""
_SENT_SECONDS: Final = 1.0
"""Time after which a connected client has sent an acknowledgment."""
_IN_FLIGHT_SECONDS: Final = 2.0
"""Time after a request for messages in which those arrive that were on their way before.

They come a second time then.
"""
_SAME_LOSS_SECONDS: Final = 1.0
"""Maximum time between two observations of one lost connection."""


class Source(Protocol):
    """A source of messages.

    Attributes:
        is_retry: Whether the messages are copies from the retry topic.
        is_durable: Whether the broker keeps its messages until they are acknowledged.
        redelivers_in_order: Whether the broker redelivers all messages at once to this consumer.
    """

    is_retry: bool
    is_durable: bool
    redelivers_in_order: bool

    @property
    def is_connected(self) -> bool:
        """Whether the source has a connection."""


@dataclass(slots=True)
class _Watch:
    """The time in which messages of a source may be redelivered.

    Attributes:
        since: Monotonic time after which waiting messages must be redelivered.
        until: Monotonic time before which the watch does not end.
        lost_at: Time at which the connection was lost; None if the broker was only asked.
        has_crashed: Whether a broker or process has crashed, however short the connection was away.
        is_back: Whether the source has a connection again.
        asked_at: Time at which the broker was asked for the messages; 0 if it was not.
        has_begun: Whether the source has received a message since.
        left: Messages that the source may receive after that time; the watch ends with them.
        repeated: Times of the last redelivery, by identity; if a message comes again although the
            broker was not asked since, the cursor was moved again.
        has_moved: Whether the cursor was moved back: a message came that is not of a batch that
            waits.
        doubtful: Messages of such batches, which come again because the cursor was moved back, or
            because the broker acknowledges only whole batches.
    """

    since: float
    until: float
    lost_at: float | None = None
    has_crashed: bool = False
    is_back: bool = False
    asked_at: float = 0.0
    has_begun: bool = False
    left: int = _REMEMBERED
    repeated: OrderedDict[str, float] = field(default_factory=OrderedDict)
    has_moved: bool = False
    doubtful: list[RawMessage] = field(default_factory=list)

    @property
    def is_order(self) -> bool:
        """Whether the broker has closed the connection, perhaps because the cursor was moved."""
        if self.lost_at is None or self.has_crashed:
            return False
        return self.since - self.lost_at < CRASH_SECONDS

    def pop_doubtful(self) -> list[RawMessage]:
        """Return these messages, because the cursor was moved or the watch ends."""
        found, self.doubtful = self.doubtful, []
        return found

    def trusts(
        self, identity: str, times: tuple[float, float], now: float, *, is_sibling: bool
    ) -> bool:
        """Return whether a redelivered message that was finished is a repetition.

        If it was delivered after the loss or the request, that does not explain another delivery:
        the connection was lost again for a moment that nobody has seen.

        Args:
            identity: Identity of the message.
            times: Times at which the message was delivered last, and acknowledged.
            now: Monotonic time.
            is_sibling: Whether a message of its batch waits, so that brokers which acknowledge only
                whole batches redeliver it however long ago that was.
        """
        seen_at, finished_at = times
        settled_at = self.asked_at + _IN_FLIGHT_SECONDS if self.asked_at else 0.0
        is_open = seen_at <= max(self.since, settled_at)
        if self.lost_at is None:
            return is_sibling or (is_open and finished_at >= self.asked_at - _SENT_SECONDS)
        if self.is_order:
            before = self.repeated.get(identity)
            is_first = before is None
            if (
                before is not None and not is_sibling
            ):  # Those of its batch would hide that the cursor was moved back.
                is_first = now < settled_at or before < self.asked_at
            remember(self.repeated, identity, now)
            if is_sibling and not self.has_moved:
                return is_first
            # It was being handled when the connection was lost.
            is_known = is_first and is_open and finished_at >= self.lost_at
            self.has_moved = self.has_moved or not is_known
            return is_known
        return is_sibling or (is_open and finished_at >= self.lost_at - STORED_SECONDS)


class Redeliveries:
    """The redeliveries that are expected, and the finished messages that may come again.

    It belongs to a `Memory`, whose lock guards it.
    """

    def __init__(
        self,
        messages: Mapping[str, Received],
        lock: threading.RLock,
        monotonic: Callable[[], float],
    ) -> None:
        """Expect none yet.

        Args:
            messages: The messages of the memory, by identity.
            lock: The lock of the memory.
            monotonic: Returns seconds of a monotonic clock.
        """
        self._messages, self._lock, self._monotonic = messages, lock, monotonic
        self._finished: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._copies: OrderedDict[str, str] = OrderedDict()
        self._watches: dict[Any, _Watch] = {}
        self._repetitions: dict[Any, list[RawMessage]] = {}
        self._checked_at: dict[Any, float] = {}

    # Sources.

    def watch(self, source: Source, now: float, *, crashed: bool = False) -> None:
        """Expect redeliveries, because a source has no connection.

        The broker redelivers messages whose acknowledgment it has not stored into the queue of the
        source, where they may wait for as long as handlers are busy. So the watch ends when a time
        has passed and the source has found its queue empty afterwards. The time starts with the
        first message, because a broker that was just started, or loads the topic elsewhere, may
        need minutes before it sends anything. As many as the queue holds come at a time, so each
        redelivery extends the watch.

        Args:
            source: Source whose messages may be redelivered.
            now: Monotonic time.
            crashed: Whether the previous process or the broker has crashed.
        """
        with self._lock:
            before = self._watches.get(source)
            lost_at = now
            if (
                before is not None
                and before.lost_at is not None
                and not before.is_back
                and now - before.since < _SAME_LOSS_SECONDS
            ):
                lost_at, crashed = before.lost_at, crashed or before.has_crashed
            watch = self._watches[source] = _Watch(now, 0.0, lost_at, crashed)
            if before is not None and before.lost_at == lost_at:
                watch.repeated = before.repeated
            watch.until = now + (REDELIVERY_SECONDS if watch.is_order else SILENT_SECONDS)

    def note_connected(self, source: Source) -> None:
        """Record that a source has a connection, so that the next loss is another one."""
        watch = self._watches.get(source)
        if watch is not None:
            watch.is_back = True

    def restart(self, source: Source, now: float) -> None:
        """Watch a resubscribed source again if its connection was lost before."""
        watch = self._watches.get(source)
        if watch is not None:
            with self._lock:
                watch.since, watch.until, watch.has_begun = now, now + SILENT_SECONDS, False
                watch.asked_at = now  # Nothing but copies is kept of it.

    def is_order(self, source: Source) -> bool:
        """Return whether the cursor of a source may have been moved."""
        watch = self._watches.get(source)
        return watch is not None and watch.is_order

    def must_ask(self, source: Source) -> bool:
        """Return whether the broker must be asked to redeliver the messages of a source."""
        now, watch = self._monotonic(), self._watches.get(source)
        if not self._messages or now < self._checked_at.get(source, 0.0) + _CHECK_SECONDS:
            return False
        if watch is not None:
            # The connection to one of several brokers may have been lost, and the others redeliver
            # nothing unless they are asked.
            if watch.lost_at is None or watch.has_begun:
                return watch.lost_at is not None and not watch.asked_at
            if not watch.asked_at:
                return True
            if now < watch.asked_at + ANSWER_SECONDS:
                return False  # Each request lets the broker begin from the start.
        self._checked_at[source] = now
        with self._lock:
            held = [each for each in self._messages.values() if each.source is source]
            waiting = [each for each in held if each.state is not State.IN_HANDLER]
            late = BUSY_SECONDS if len(waiting) < len(held) else 0.0
            return any(now - each.seen_at > ASK_SECONDS + late for each in waiting)

    def ask(self, source: Source, now: float) -> None:
        """Expect that the broker redelivers the waiting messages of a source, or some of them."""
        with self._lock:
            watch = self._watches.setdefault(source, _Watch(now, now + ANSWER_SECONDS))
            watch.asked_at = now

    def is_over(self, source: Source, now: float) -> bool:
        """Return whether the watch of a source that found its queue empty must end."""
        watch = self._watches.get(source)
        return watch is not None and now >= watch.until

    def note_received(self, source: Source, count: int, redelivered: int, now: float) -> bool:
        """Start or extend the time of the watch of a source.

        If the queue is never empty, the watch ends after as many messages as are remembered.

        Args:
            source: Source that received messages.
            count: Number of received messages.
            redelivered: Number of redelivered messages among them.
            now: Monotonic time.

        Returns:
            Whether the watch must end.
        """
        watch = self._watches.get(source)
        if watch is None:
            return False
        if redelivered or not watch.has_begun:
            is_lost = watch.lost_at is not None
            watch.until = now + (REDELIVERY_SECONDS if is_lost else ANSWER_SECONDS)
            watch.left = _REMEMBERED if is_lost else _PREFETCHED
            watch.has_begun = True
        elif now >= watch.until:
            watch.left -= count
            return watch.left <= 0
        return False

    def end(self, source: Source) -> list[Received]:
        """End the watch of a source; return the messages that the broker does not have any more."""
        gone = [
            message
            for message in self._messages.values()
            if message.source is source
            and message.state is not State.IN_HANDLER
            and self.is_unconfirmed(message)
        ]
        doubtful = self._watches.pop(source).pop_doubtful()
        self._repetitions.setdefault(source, []).extend(doubtful)
        return gone

    def pop_repetitions(self, source: Source, now: float) -> list[RawMessage]:
        """Return messages to acknowledge that came again although the cursor was not moved.

        Args:
            source: Source that found its queue empty, or whose watch has ended.
            now: Monotonic time.
        """
        found = self._repetitions.pop(source, [])
        watch = self._watches.get(source)
        if watch is not None and now >= watch.until - REDELIVERY_SECONDS + _DOUBT_SECONDS:
            found += watch.pop_doubtful()
        return found

    # Messages.

    def is_old(self, message: Received) -> bool:
        """Return whether the broker must confirm a message before its next attempt."""
        return self._monotonic() - message.seen_at > ASK_SECONDS

    def is_unconfirmed(self, message: Received) -> bool:
        """Return whether the broker must still redeliver a message."""
        source = message.source
        watch = self._watches.get(source)
        if watch is None or not source.is_durable:
            return False
        if watch.lost_at is None and not source.redelivers_in_order:
            return False  # The broker was asked for another message only.
        return message.seen_at < max(watch.since, watch.asked_at)

    def remember_finished(self, identity: str, seen_at: float | None = None) -> None:
        """Remember a message that was finished, perhaps by an earlier process.

        A broker that crashes loses the acknowledgments of the last seconds. Without the record,
        the message would be handled, or copied, a second time.
        """
        with self._lock:
            now = self._monotonic()
            remember(self._finished, identity, (now if seen_at is None else seen_at, now))

    def sort_out(
        self, source: Source, batch: Sequence[RawMessage], now: float
    ) -> tuple[dict[str, RawMessage], list[RawMessage]]:
        """Return new messages by identity, and messages that were already finished."""
        watch = self._watches.get(source)
        siblings: set[str] | None = None
        new: dict[str, RawMessage] = {}
        done: list[RawMessage] = []
        for raw in batch:
            identity = render_identity(raw)
            known = self._messages.get(identity)
            if known is not None:
                known.raw, known.seen_at = raw, now
            elif identity in self._finished:
                if siblings is None:
                    siblings = {_batch_of(each) for each in self._messages} - {""}
                is_sibling = _batch_of(identity) in siblings
                self._sort_finished(watch, raw, new, done, now, is_sibling=is_sibling)
            elif source.is_retry and self._is_second_copy(raw, identity):
                done.append(raw)
            else:
                new[identity] = raw  # If the client has it twice, the later one counts.
        return new, done

    def _sort_finished(
        self,
        watch: _Watch | None,
        raw: RawMessage,
        new: dict[str, RawMessage],
        done: list[RawMessage],
        now: float,
        *,
        is_sibling: bool,
    ) -> None:
        """Sort a message that was finished; `is_sibling`: whether one of its batch is not."""
        identity = render_identity(raw)
        if raw.redelivery_count() > 0:
            # A consumer has returned a message of its batch, or the client has asked for a message
            # whose acknowledgment timed out. The broker counts from zero if the cursor is moved.
            is_done = True
        elif watch is None:
            is_done = is_sibling
        elif watch.trusts(identity, self._finished[identity], now, is_sibling=is_sibling):
            if watch.is_order and is_sibling and len(watch.doubtful) < _DOUBTFUL:
                watch.doubtful.append(raw)
                return
            is_done = True
        else:
            for doubtful in watch.pop_doubtful():
                self._forget_finished(doubtful, new)
            is_done = False
        if is_done:
            done.append(raw)
        else:
            self._forget_finished(raw, new)

    def _forget_finished(self, raw: RawMessage, new: dict[str, RawMessage]) -> None:
        """Treat a message as new."""
        identity = render_identity(raw)
        self._finished.pop(identity, None)
        new[identity] = raw

    def _is_second_copy(self, raw: RawMessage, identity: str) -> bool:
        """Return whether this is a duplicate of a copy.

        Producers resend messages that may not have been stored.
        """
        copy_of = read_properties(raw).get(COPY_OF)
        if not copy_of:
            return False
        first = self._copies.get(copy_of, identity)
        remember(self._copies, copy_of, first)
        return first != identity


def _batch_of(identity: str) -> str:
    """Return the part of an identity that all messages of a batch share; empty if it has none."""
    batch, _, index = identity.rpartition(":")
    return "" if index.startswith("-") or not index else batch


def remember[V](known: OrderedDict[str, V], identity: str, value: V) -> None:
    """Add an entry as the newest, and drop the oldest one if there are too many."""
    known[identity] = value
    known.move_to_end(identity)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)
