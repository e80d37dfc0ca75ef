"""Messages that this process keeps, because they or earlier messages wait for their next attempt.

A failed message is handled again from memory. It is not returned to the broker, because brokers
redeliver more than this message: the whole batch, or all unacknowledged messages. Messages that are
redelivered because of a lost connection are recognized by their ids and not handled twice.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from operators.pulsarconsumer.app.core.headers import COPY_OF
from operators.pulsarconsumer.app.received import (
    RawMessage,
    Received,
    read_properties,
    render_identity,
    replace_raw,
)

_REMEMBERED = 20_000
"""Maximum number of remembered ids of acknowledged messages, and of remembered attempts."""
REDELIVERY_SECONDS: Final = 60.0
"""Time in which brokers redeliver, after the first message of a connection and each redelivery.

See `HeldMessages.watch_redeliveries`.
"""
SILENT_SECONDS: Final = 600.0
"""Time for which redeliveries are expected on a connection without any message yet."""


@dataclass(slots=True)
class _Watch:
    """The time after a lost connection in which messages may be redelivered.

    Attributes:
        until: Monotonic time before which the watch does not end.
        has_begun: Whether the source has received a message since.
        left: Messages that the source may receive after that time; the watch ends with them.
    """

    until: float
    has_begun: bool = False
    left: int = _REMEMBERED


class Source(Protocol):
    """A source of messages.

    Attributes:
        is_retry: Whether the messages are copies from the retry topic.
    """

    is_retry: bool


class HeldMessages:
    """Messages in memory that are neither being handled nor acknowledged; thread-safe."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """Start empty.

        Args:
            most: Number of messages at which receiving pauses.
            most_bytes: Size of payloads at which receiving pauses.
        """
        self._most, self._most_bytes = most, most_bytes
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Received]] = []
        # Valid entries of the heap, by message; a parked message has none.
        self._scheduled: dict[str, int] = {}
        self._kept: dict[str, Received] = {}
        # Number and size of messages from topics (False) and of copies from the retry topic (True).
        self._sizes = {False: [0, 0], True: [0, 0]}
        self._outlived: OrderedDict[str, None] = OrderedDict()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._copied: OrderedDict[str, None] = OrderedDict()
        self._copies: OrderedDict[str, str] = OrderedDict()
        self.attempts_made: OrderedDict[str, int] = OrderedDict()
        """Number of failed attempts at messages that will be redelivered, by identity."""
        self.is_watching = False
        """Whether messages may be redelivered."""
        self._watches: dict[object, _Watch] = {}

    def __len__(self) -> int:
        """Return how many messages are kept."""
        return len(self._kept)

    def is_full(self, source: Source) -> bool:
        """Return whether no more messages of a source should be received now.

        Copies from the retry topic are counted separately: messages that are kept because their
        copy cannot be stored must not prevent the retry topic from being drained.
        """
        count, size = self._sizes[source.is_retry]
        return count >= self._most or size >= self._most_bytes

    def keep(self, message: Received, due: float | None = None) -> None:
        """Keep a message until a time, or until it is taken out.

        Args:
            message: The message.
            due: Time of its next attempt; None if it waits behind another message.
        """
        with self._lock:
            held = self._kept.get(message.identity)
            self._kept[message.identity] = message
            self._done.pop(message.identity, None)
            if held is None:
                self._resize(message, 1)
            self.is_watching = True
            self._scheduled.pop(message.identity, None)
            if due is not None:
                number = self._scheduled[message.identity] = next(self._numbers)
                heapq.heappush(self._due, (due, number, message))

    def take(self, message: Received) -> None:
        """Take a message out, to handle it."""
        with self._lock:
            self._drop(message)

    def pop_due(
        self, now: float, is_early: Callable[[Received], bool] = lambda _: False
    ) -> list[Received]:
        """Return due messages in the order of their times; they are kept until `take`.

        Args:
            now: Monotonic time.
            is_early: Returns whether a message must wait longer.
        """
        if not self._due:
            return []
        found: list[Received] = []
        early: list[tuple[float, int, Received]] = []
        with self._lock:
            while self._due and self._due[0][0] <= now:
                entry = heapq.heappop(self._due)
                _, number, message = entry
                if self._scheduled.get(message.identity) != number:
                    continue
                if is_early(message):
                    early.append(entry)
                    continue
                del self._scheduled[message.identity]
                found.append(message)
            for entry in early:
                heapq.heappush(self._due, entry)
        return found

    def forget(self, source: object, pending: Iterable[Received] = ()) -> None:
        """Drop the messages of a source whose consumer was closed: the broker has them back.

        Args:
            source: The closed source.
            pending: Messages that are still being handled.
        """
        outlived = [each for each in pending if each.source is source]
        with self._lock:
            dropped = [each for each in self._kept.values() if each.source is source]
            # A handler may be about to start for one of these.
            for message in (*outlived, *dropped):
                _add(self._outlived, message.identity, None)
            for message in dropped:
                self._drop(message)
                self._remember(message.identity, message.attempt - 1)
            # Otherwise their payloads would stay in memory until their next attempt is due.
            self._due = [
                entry for entry in self._due if self._scheduled.get(entry[2].identity) == entry[1]
            ]
            heapq.heapify(self._due)

    # Attempts and acknowledgments by identity.

    def remember(self, identity: str, attempts: int) -> None:
        """Remember the number of attempts at a message, for its redelivery."""
        with self._lock:
            self._remember(identity, attempts)

    def attempts(self, identity: str) -> int:
        """Return the known number of attempts at a message."""
        return self.attempts_made.get(identity, 0) if self.attempts_made else 0

    def watch_redeliveries(self, source: object, now: float) -> None:
        """Remember acknowledged messages, because a source lost or restored its connection.

        The broker redelivers messages whose acknowledgment it has not stored into the queue of the
        source, where they may wait for as long as handlers are busy. So the watch ends when a time
        has passed and the source has found its queue empty afterwards. The time starts with the
        first message, because a broker that was just started, or loads the topic elsewhere, may
        need minutes before it sends anything. As many as the queue holds come at a time, so each
        redelivery extends the watch.

        Args:
            source: Source whose messages may be redelivered.
            now: Monotonic time.
        """
        with self._lock:
            self._watches[source] = _Watch(now + SILENT_SECONDS)
            self.is_watching = True

    def restart_watch(self, source: object, now: float) -> None:
        """Watch a reconnected source again if its connection was lost before."""
        if source in self._watches:
            self.watch_redeliveries(source, now)

    def note_empty(self, source: object, now: float) -> None:
        """End the watch of a source that found its queue empty, if its time is over."""
        watch = self._watches.get(source)
        if watch is not None and now >= watch.until:
            self._end_watch(source, watch)

    def note_received(self, source: object, count: int, redelivered: int, now: float) -> None:
        """Start or extend the time of the watch of a source, or end the watch.

        If the queue is never empty, the watch ends after as many messages as are remembered.

        Args:
            source: Source that received messages.
            count: Number of received messages.
            redelivered: Number of redelivered messages among them.
            now: Monotonic time.
        """
        watch = self._watches.get(source)
        if watch is None:
            return
        if redelivered or not watch.has_begun:
            watch.until, watch.has_begun = now + REDELIVERY_SECONDS, True
            watch.left = _REMEMBERED
        elif now >= watch.until:
            watch.left -= count
            if watch.left <= 0:
                self._end_watch(source, watch)

    def _end_watch(self, source: object, watch: _Watch) -> None:
        with self._lock:
            if self._watches.get(source) is not watch:
                return  # The connection was lost again.
            del self._watches[source]
            self.is_watching = bool(self._watches) or bool(self._kept)
            if not self.is_watching:
                self._done.clear()

    def acknowledged(self, message: Received) -> None:
        """Record that a message was acknowledged."""
        if self.attempts_made:
            self.attempts_made.pop(message.identity, None)
        if self.is_watching:
            with self._lock:
                self._note_done(message.identity)

    def copied(self, identity: str) -> None:
        """Record that a stored copy has replaced a message.

        A broker that crashes loses the acknowledgments of the last seconds. Without the record,
        each copy would be created, and tried, a second time.
        """
        with self._lock:
            _add(self._copied, identity, None)

    def note_siblings(self, message: Received, pending: Iterable[Received]) -> None:
        """Record that the messages before a failed message of the same batch were handled.

        Args:
            message: The failed message.
            pending: Messages that are being handled or wait for a thread.
        """
        prefix, _, index = message.identity.rpartition(":")
        # After a lost connection, earlier messages of the batch may have been dropped unhandled.
        if not index.isdigit() or message.identity in self._outlived:
            return
        left = {each.identity for each in pending if each.identity.startswith(prefix)}
        with self._lock:
            for number in range(int(index)):
                sibling = f"{prefix}:{number}"
                if sibling not in self._kept and sibling not in left:
                    self._note_done(sibling)

    def sort_out(
        self, batch: Iterable[RawMessage], pending: Iterable[Received], *, copies: bool = False
    ) -> tuple[list[RawMessage], list[RawMessage]]:
        """Return new messages, and messages that were already acknowledged.

        Args:
            batch: Received messages.
            pending: Messages that are being handled or wait for a thread.
            copies: Whether they come from the retry topic.
        """
        in_hand = {each.identity: each for each in pending}
        new: dict[str, RawMessage] = {}
        done: list[RawMessage] = []
        for raw in batch:
            identity = render_identity(raw)
            held = self._kept.get(identity) or in_hand.get(identity)
            if held is not None and identity not in self._copied:
                replace_raw(held, raw)
            # The order of these checks matters: `acknowledged` and its caller update in the
            # opposite order, so a message that moves in between is found in at least one place.
            if identity in self._done or identity in self._copied:
                done.append(raw)
            elif held is not None:
                continue
            elif copies and self._is_second_copy(raw, identity):
                done.append(raw)
            else:
                # If the queue of the client contains a message twice, the later one counts.
                new[identity] = raw
        return list(new.values()), done

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

    def _drop(self, message: Received) -> None:
        self._scheduled.pop(message.identity, None)
        if self._kept.pop(message.identity, None) is not None:
            self._resize(message, -1)
            self.is_watching = bool(self._kept) or bool(self._watches)

    def _note_done(self, identity: str) -> None:
        _add(self._done, identity, None)

    def _remember(self, identity: str, attempts: int) -> None:
        if attempts > 0:
            _add(self.attempts_made, identity, attempts)

    def _resize(self, message: Received, sign: int) -> None:
        sizes = self._sizes[message.source.is_retry]
        sizes[0] += sign
        sizes[1] += sign * len(message.data)


def _add[V](known: OrderedDict[str, V], identity: str, value: V) -> None:
    """Add an entry as the newest, and drop the oldest one if there are too many."""
    known[identity] = value
    known.move_to_end(identity)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)
