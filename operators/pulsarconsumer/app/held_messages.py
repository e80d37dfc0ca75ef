"""Messages that this process keeps, and what it remembers of messages that it has finished.

A failed message is handled again from memory. It is not returned to the broker at once, because
brokers redeliver more than this message: the whole batch, or all unacknowledged messages. So the
same message can come a second time, and an administrator can move the subscription meanwhile.

The broker has the last word. What this process remembers is valid only for a time:

| event | a message that waits here | a message that was finished here |
| --- | --- | --- |
| delivered again | is confirmed | is not handled again if the broker may have lost the
  acknowledgment, see `_Watch.trusts`; otherwise it is handled again: the cursor was moved back |
| not delivered again after a lost connection, or when asked for | is given up: it was skipped,
  expired or deleted, or another consumer has it | - |
| not confirmed for `ASK_SECONDS` | the broker is asked to deliver it again; until then, there is no
  further attempt | - |
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from operators.pulsarconsumer.app.core.headers import COPY_OF
from operators.pulsarconsumer.app.received import (
    RawMessage,
    Received,
    read_properties,
    render_identity,
    replace_raw,
)

_REMEMBERED = 20_000
"""Maximum number of remembered ids of finished messages, and of remembered attempts."""
_PREFETCHED: Final = 1000
"""Number of other messages after which a broker that was asked has redelivered everything."""
REDELIVERY_SECONDS: Final = 60.0
"""Time in which brokers redeliver, after the first message of a connection and each redelivery.

See `HeldMessages.watch_redeliveries`.
"""
SILENT_SECONDS: Final = 600.0
"""Time for which redeliveries are expected of a broker that was away, without any message yet."""
ASK_SECONDS: Final = 60.0
"""Time for which a waiting message counts as confirmed by the broker."""
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
_SAME_LOSS_SECONDS: Final = 1.0
"""Maximum time between two observations of one lost connection."""

type Resume = Callable[[Received], Received | None]
"""Finishes a message without calling its handler; returns it if it must wait again."""


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
        repeated: Identities of messages that were redelivered; if one comes again, the cursor was
            moved again.
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
    repeated: OrderedDict[str, None] = field(default_factory=OrderedDict)
    has_moved: bool = False
    doubtful: list[RawMessage] = field(default_factory=list)

    @property
    def is_order(self) -> bool:
        """Whether the broker has closed the connection, perhaps because the cursor was moved."""
        if self.lost_at is None or self.has_crashed:
            return False
        return self.since - self.lost_at < CRASH_SECONDS

    def add_doubtful(self, raw: RawMessage) -> bool:
        """Keep a message until it is known whether the cursor was moved, if there is room."""
        if len(self.doubtful) >= _DOUBTFUL:
            return False
        self.doubtful.append(raw)
        return True

    def pop_doubtful(self) -> list[RawMessage]:
        """Return these messages, because the cursor was moved or the watch ends."""
        found, self.doubtful = self.doubtful, []
        return found

    def trusts(self, identity: str, finished_at: float, *, is_sibling: bool) -> bool:
        """Return whether a redelivered message that was finished at a time is a repetition.

        Args:
            identity: Identity of the message.
            finished_at: Time at which the message was acknowledged.
            is_sibling: Whether a message of its batch waits, so that brokers which acknowledge only
                whole batches redeliver it however long ago that was.
        """
        if self.lost_at is None:
            return True
        if self.is_order:
            is_first = identity not in self.repeated
            _add(self.repeated, identity, None)
            if is_sibling and not self.has_moved:
                return is_first
            # It was being handled when the connection was lost.
            is_known = is_first and finished_at >= self.lost_at
            self.has_moved = self.has_moved or not is_known
            return is_known
        return is_sibling or finished_at >= self.lost_at - STORED_SECONDS


@dataclass(slots=True)
class _Waiting:
    """A message in memory.

    Attributes:
        message: The message.
        entry: Number of its valid entry in the heap; None if it waits behind another message.
    """

    message: Received
    entry: int | None = None


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


class HeldMessages:
    """Messages in memory that are neither being handled nor acknowledged; thread-safe."""

    def __init__(
        self, most: int, most_bytes: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Start empty.

        Args:
            most: Number of messages at which receiving pauses.
            most_bytes: Size of payloads at which receiving pauses.
            monotonic: Returns seconds of a monotonic clock.
        """
        self._most, self._most_bytes = most, most_bytes
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, str]] = []
        self._kept: dict[str, _Waiting] = {}
        # Number and size of messages from topics (False) and of copies from the retry topic (True).
        self._sizes = {False: [0, 0], True: [0, 0]}
        # By identity: when the broker last delivered it, and how to finish it.
        self._seen: dict[str, float] = {}
        self._resumes: OrderedDict[str, Resume] = OrderedDict()
        self._given_up: OrderedDict[str, float] = OrderedDict()
        self._finished: OrderedDict[str, float] = OrderedDict()
        self._copies: OrderedDict[str, str] = OrderedDict()
        self.attempts_made: OrderedDict[str, int] = OrderedDict()
        """Number of failed attempts at messages that will be redelivered, by identity."""
        self.is_watching = False
        """Whether messages may be redelivered, or finished without their handler."""
        self._watches: dict[Any, _Watch] = {}
        self._repetitions: list[RawMessage] = []
        self._checked_at = 0.0

    def __len__(self) -> int:
        """Return how many messages are kept."""
        return len(self._kept)

    def is_full(self, source: Source) -> bool:
        """Return whether no more messages of a source should be received now.

        Copies from the retry topic are counted separately: messages that are kept because their
        copy cannot be stored must not prevent the retry topic from being drained. More messages are
        received if kept ones wait for their redelivery.
        """
        count, size = self._sizes[source.is_retry]
        factor = 2 if source in self._watches else 1
        return count >= factor * self._most or size >= factor * self._most_bytes

    def keep(
        self, message: Received, due: float | None = None, resume: Resume | None = None
    ) -> None:
        """Keep a message until a time, or until it is taken out.

        Args:
            message: The message.
            due: Time of its next attempt; None if it waits behind another message or for its copy.
            resume: Finishes it then without calling its handler.
        """
        identity = message.identity
        with self._lock:
            if identity not in self._kept:
                self._resize(message, 1)
            waiting = self._kept[identity] = _Waiting(message)
            self._seen.setdefault(identity, self._monotonic())
            if resume is not None:
                _add(self._resumes, identity, resume)
            if due is not None:
                waiting.entry = next(self._numbers)
                heapq.heappush(self._due, (due, waiting.entry, identity))
            self.is_watching = True

    def take(self, message: Received) -> Resume | None:
        """Take a message out, to handle it; return how to finish it without its handler."""
        with self._lock:
            resume = self._resumes.pop(message.identity, None)
            if resume is not None:
                self._seen.pop(message.identity, None)
            self._drop(message.identity)
            return resume

    def pop_given_up(self, identity: str) -> bool:
        """Return whether a message was given up, which must not be handled."""
        if not self._given_up:
            return False
        with self._lock:
            return self._given_up.pop(identity, None) is not None

    def pop_due(
        self, now: float, is_early: Callable[[Received], bool] = lambda _: False
    ) -> list[Received]:
        """Return due messages in the order of their times; they are kept until `take`.

        Args:
            now: Monotonic time.
            is_early: Returns whether a message must wait longer.
        """
        if self._given_up:
            self._forget_given_up(now)
        if not self._due:
            return []
        found: list[Received] = []
        early: list[tuple[float, int, str]] = []
        with self._lock:
            while self._due and self._due[0][0] <= now:
                entry = heapq.heappop(self._due)
                waiting = self._kept.get(entry[2])
                if waiting is None or waiting.entry != entry[1]:
                    continue
                if is_early(waiting.message) or self._is_unconfirmed(waiting.message):
                    early.append(entry)
                    continue
                waiting.entry = None
                found.append(waiting.message)
            for entry in early:
                heapq.heappush(self._due, entry)
        return found

    def forget(self, source: object) -> None:
        """Drop the messages of a source whose consumer was closed: the broker has them back."""
        with self._lock:
            for waiting in [each for each in self._kept.values() if each.message.source is source]:
                self._return(waiting.message)
            self._clean()

    def give_back(self, message: Received) -> None:
        """Drop a message that was returned to the broker."""
        with self._lock:
            self._return(message)

    def _forget_given_up(self, now: float) -> None:
        # A thread may be about to handle such a message, but not for long.
        with self._lock:
            while self._given_up and next(iter(self._given_up.values())) < now - ASK_SECONDS:
                self._given_up.popitem(last=False)
            self._note_change()

    # Confirmation by the broker.

    def is_old(self, message: Received) -> bool:
        """Return whether the broker must confirm a waiting message before its next attempt."""
        return self._monotonic() - self._seen.get(message.identity, 0.0) > ASK_SECONDS

    def must_ask(self, source: Source) -> bool:
        """Return whether the broker must be asked to redeliver the messages of a source."""
        now, watch = self._monotonic(), self._watches.get(source)
        if not self._kept or now < self._checked_at + _CHECK_SECONDS:
            return False
        if watch is not None:
            # The connection to one of several brokers may have been lost, and the others redeliver
            # nothing unless they are asked.
            if watch.lost_at is None or watch.has_begun:
                return watch.lost_at is not None and not watch.asked_at
            if not watch.asked_at:
                return True
        self._checked_at = now
        with self._lock:
            return any(
                waiting.message.source is source and self.is_old(waiting.message)
                for waiting in self._kept.values()
            )

    def ask(self, source: Source, now: float) -> None:
        """Expect that the broker redelivers the waiting messages of a source, or some of them."""
        with self._lock:
            watch = self._watches.setdefault(source, _Watch(now, now + ANSWER_SECONDS))
            watch.asked_at = now
            self.is_watching = True

    def _is_unconfirmed(self, message: Received) -> bool:
        source = message.source
        watch = self._watches.get(source)
        if watch is None or not source.is_durable:
            return False
        if message.identity in self._finished:
            return False  # Only its group waits for it.
        if watch.lost_at is None and not source.redelivers_in_order:
            return False  # The broker was asked for another message only.
        return self._seen.get(message.identity, 0.0) < max(watch.since, watch.asked_at)

    # Attempts and acknowledgments by identity.

    def remember(self, identity: str, attempts: int) -> None:
        """Remember the number of attempts at a message, for its redelivery."""
        with self._lock:
            self._remember(identity, attempts)

    def attempts(self, identity: str) -> int:
        """Return the known number of attempts at a message."""
        return self.attempts_made.get(identity, 0) if self.attempts_made else 0

    def watch_redeliveries(self, source: Any, now: float, *, crashed: bool = False) -> None:
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
            self.is_watching = True

    def note_connected(self, source: object) -> None:
        """Record that a source has a connection, so that the next loss is another one."""
        watch = self._watches.get(source)
        if watch is not None:
            watch.is_back = True

    def restart_watch(self, source: Any, now: float) -> None:
        """Watch a resubscribed source again if its connection was lost before."""
        watch = self._watches.get(source)
        if watch is not None:
            with self._lock:
                watch.since, watch.until, watch.has_begun = now, now + SILENT_SECONDS, False
                watch.asked_at = now  # Nothing is kept of it.

    def is_order(self, source: object) -> bool:
        """Return whether the cursor of a source may have been moved."""
        watch = self._watches.get(source)
        return watch is not None and watch.is_order

    def note_empty(self, source: object, now: float) -> list[Received]:
        """End the watch of a source that found its queue empty, if its time is over.

        Returns:
            The messages that are given up, because the broker did not redeliver them.
        """
        watch = self._watches.get(source)
        return self._end_watch(source, watch) if watch is not None and now >= watch.until else []

    def pop_repetitions(self, source: object, now: float) -> list[RawMessage]:
        """Return messages to acknowledge that came again although the cursor was not moved.

        Args:
            source: Source that found its queue empty, or whose watch has ended.
            now: Monotonic time.
        """
        found, self._repetitions = self._repetitions, []
        watch = self._watches.get(source)
        if watch is not None and now >= watch.until - REDELIVERY_SECONDS + _DOUBT_SECONDS:
            found += watch.pop_doubtful()
        return found

    def note_received(
        self, source: object, count: int, redelivered: int, now: float
    ) -> list[Received]:
        """Start or extend the time of the watch of a source, or end the watch.

        If the queue is never empty, the watch ends after as many messages as are remembered.

        Args:
            source: Source that received messages.
            count: Number of received messages.
            redelivered: Number of redelivered messages among them.
            now: Monotonic time.

        Returns:
            The messages that are given up, because the broker did not redeliver them.
        """
        watch = self._watches.get(source)
        if watch is None:
            return []
        if redelivered or not watch.has_begun:
            is_lost = watch.lost_at is not None
            watch.until = now + (REDELIVERY_SECONDS if is_lost else ANSWER_SECONDS)
            watch.left = _REMEMBERED if is_lost else _PREFETCHED
            watch.has_begun = True
        elif now >= watch.until:
            watch.left -= count
            if watch.left <= 0:
                return self._end_watch(source, watch)
        return []

    def _end_watch(self, source: Any, watch: _Watch) -> list[Received]:
        with self._lock:
            if self._watches.get(source) is not watch:
                return []  # The connection was lost again.
            gone = [
                waiting.message
                for waiting in self._kept.values()
                if waiting.message.source is source and self._is_unconfirmed(waiting.message)
            ]
            del self._watches[source]
            self._repetitions += watch.pop_doubtful()
            for message in gone:
                self._drop(message.identity)
                self._seen.pop(message.identity, None)
                self._resumes.pop(message.identity, None)
                _add(self._given_up, message.identity, self._monotonic())
            self._clean()
        return gone

    def finished(self, identity: str) -> None:
        """Record that a message was acknowledged, or replaced by a stored copy.

        A broker that crashes loses the acknowledgments of the last seconds. Without the record,
        the message would be handled, or copied, a second time.
        """
        if self.attempts_made:
            self.attempts_made.pop(identity, None)
        with self._lock:
            self._seen.pop(identity, None)
            _add(self._finished, identity, self._monotonic())

    def sort_out(
        self, source: Any, batch: Iterable[RawMessage], pending: Iterable[Received]
    ) -> tuple[list[RawMessage], list[RawMessage]]:
        """Return new messages, and messages that were already finished.

        Args:
            source: Source that received the messages.
            batch: Received messages.
            pending: Messages that are being handled or wait for a thread.
        """
        in_hand = {each.identity: each for each in pending}
        watch, now = self._watches.get(source), self._monotonic()
        batches: set[str] | None = None
        new: dict[str, RawMessage] = {}
        done: list[RawMessage] = []
        for raw in batch:
            identity = render_identity(raw)
            # The order of these checks matters: `finished` and its caller update in the opposite
            # order, so a message that moves in between is found in at least one place.
            waiting = self._kept.get(identity)
            held = waiting.message if waiting is not None else in_hand.get(identity)
            finished_at = self._finished.get(identity)
            if held is not None:
                replace_raw(held, raw)
            is_done = finished_at is not None and held is not None
            if finished_at is not None and held is None:
                if batches is None:
                    batches = {_batch_of(each) for each in (*self._kept.copy(), *in_hand)} - {""}
                is_sibling = _batch_of(identity) in batches
                if watch is None:
                    # The client has asked for a message whose acknowledgment timed out.
                    is_done = is_sibling
                elif not watch.trusts(identity, finished_at, is_sibling=is_sibling):
                    for doubtful in watch.pop_doubtful():
                        self._forget_finished(doubtful, new)
                elif watch.is_order and is_sibling and watch.add_doubtful(raw):
                    continue
                else:
                    is_done = True
            if is_done:
                done.append(raw)
            elif held is not None:
                if identity in self._seen:
                    self._seen[identity] = now
            elif source.is_retry and self._is_second_copy(raw, identity):
                done.append(raw)
            else:
                self._forget_finished(raw, new)
        return list(new.values()), done

    def _forget_finished(self, raw: RawMessage, new: dict[str, RawMessage]) -> None:
        """Treat a message as new."""
        identity = render_identity(raw)
        self._given_up.pop(identity, None)
        self._finished.pop(identity, None)
        # If the queue of the client contains a message twice, the later one counts.
        new[identity] = raw

    def _is_second_copy(self, raw: RawMessage, identity: str) -> bool:
        """Return whether this is a duplicate of a copy.

        Producers resend messages that may not have been stored.
        """
        copy_of = read_properties(raw).get(COPY_OF)
        if not copy_of:
            return False
        with self._lock:
            first = self._copies.get(copy_of, identity)
            _add(self._copies, copy_of, first)
        return first != identity

    def _return(self, message: Received) -> None:
        self._drop(message.identity)
        self._seen.pop(message.identity, None)
        self._remember(message.identity, message.attempt - 1)

    def _drop(self, identity: str) -> None:
        waiting = self._kept.pop(identity, None)
        if waiting is not None:
            self._resize(waiting.message, -1)
        self._note_change()

    def _clean(self) -> None:
        """Remove the entries of messages that are not kept any more."""
        self._due = [
            entry
            for entry in self._due
            if (waiting := self._kept.get(entry[2])) is not None and waiting.entry == entry[1]
        ]
        heapq.heapify(self._due)
        self._note_change()

    def _note_change(self) -> None:
        self.is_watching = bool(self._kept or self._watches or self._resumes or self._given_up)

    def _remember(self, identity: str, attempts: int) -> None:
        if attempts > 0:
            _add(self.attempts_made, identity, attempts)

    def _resize(self, message: Received, sign: int) -> None:
        sizes = self._sizes[message.source.is_retry]
        sizes[0] += sign
        sizes[1] += sign * len(message.data)


def _batch_of(identity: str) -> str:
    """Return the part of an identity that all messages of a batch share; empty if it has none."""
    batch, _, index = identity.rpartition(":")
    return "" if index.startswith("-") or not index else batch


def _add[V](known: OrderedDict[str, V], identity: str, value: V) -> None:
    """Add an entry as the newest, and drop the oldest one if there are too many."""
    known[identity] = value
    known.move_to_end(identity)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)
