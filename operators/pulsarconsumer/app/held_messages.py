"""Messages that this process keeps: they wait for their next attempt, or behind one that does.

A message that failed is handled again from memory. It is not handed back to the broker, because
brokers redeliver more than that: the whole batch, or everything that is not acknowledged. Messages
that come again because of a lost connection are recognized by their ids and not handled twice.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterable
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
"""Ids of messages that were acknowledged lately, and attempts that are remembered."""
REDELIVERY_SECONDS: Final = 60.0
"""How long brokers redeliver after the first message of a connection, and after each redelivery.

See `HeldMessages.watch_redeliveries`.
"""
SILENT_SECONDS: Final = 600.0
"""How long redeliveries are expected over a connection that has not brought any message yet."""


@dataclass(slots=True)
class _Watch:
    """The time after a lost connection in which messages may come again.

    Attributes:
        until: Time of the monotonic clock before which it does not end.
        has_begun: Whether the source has received a message since.
        left: Messages that the source may receive after that time; the watch ends with them.
    """

    until: float
    has_begun: bool = False
    left: int = _REMEMBERED


class Source(Protocol):
    """Where messages come from.

    Attributes:
        is_retry: Whether they are copies that came back.
    """

    is_retry: bool


class HeldMessages:
    """Messages in memory that are neither handled now nor acknowledged; threads may share it."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """Begin empty.

        Args:
            most: Number of messages at which no more should be received.
            most_bytes: Size of payloads at which no more should be received.
        """
        self._most, self._most_bytes = most, most_bytes
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Received]] = []
        # Entries of the heap that still count, by message: one that is parked has none.
        self._scheduled: dict[str, int] = {}
        self._kept: dict[str, Received] = {}
        # Number and size of those from topics, and of copies from the retry topic.
        self._sizes = {False: [0, 0], True: [0, 0]}
        self._outlived: OrderedDict[str, None] = OrderedDict()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._copied: OrderedDict[str, None] = OrderedDict()
        self._copies: OrderedDict[str, str] = OrderedDict()
        self.attempts_made: OrderedDict[str, int] = OrderedDict()
        """Attempts that failed at messages which will be redelivered, by identity."""
        self.is_watching = False
        """Whether messages may come a second time."""
        self._watches: dict[object, _Watch] = {}

    def __len__(self) -> int:
        """Return how many messages are kept."""
        return len(self._kept)

    def is_full(self, source: Source) -> bool:
        """Return whether no more messages of a source should be received now.

        Copies count by themselves: the retry topic must have room for those that are kept because
        they cannot be stored there.
        """
        count, size = self._sizes[source.is_retry]
        return count >= self._most or size >= self._most_bytes

    def keep(self, message: Received, due: float | None = None) -> None:
        """Keep a message until a time, or until it is taken out.

        Args:
            message: What is kept.
            due: When it is handled again; None if it waits behind another one, which decides that.
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

    def pop_due(self, now: float) -> list[Received]:
        """Return messages whose time has come, in that order; they stay kept until `take`."""
        if not self._due:
            return []
        found: list[Received] = []
        with self._lock:
            while self._due and self._due[0][0] <= now:
                _, number, message = heapq.heappop(self._due)
                if self._scheduled.get(message.identity) == number:
                    del self._scheduled[message.identity]
                    found.append(message)
        return found

    def forget(self, source: object, pending: Iterable[Received] = ()) -> None:
        """Drop the messages of a source whose consumer was closed: the broker has them back.

        Args:
            source: What was closed.
            pending: Messages that are still handled.
        """
        outlived = [each for each in pending if each.source is source]
        with self._lock:
            dropped = [each for each in self._kept.values() if each.source is source]
            # One of these may be about to be handled.
            for message in (*outlived, *dropped):
                _add(self._outlived, message.identity, None)
            for message in dropped:
                self._drop(message)
                self._remember(message.identity, message.attempt - 1)
            # Otherwise their payloads would stay until their next attempt would have been due.
            self._due = [
                entry for entry in self._due if self._scheduled.get(entry[2].identity) == entry[1]
            ]
            heapq.heapify(self._due)

    # Attempts and acknowledgments by identity.

    def remember(self, identity: str, attempts: int) -> None:
        """Remember how many attempts at a message were made, for its redelivery."""
        with self._lock:
            self._remember(identity, attempts)

    def attempts(self, identity: str) -> int:
        """Return how many attempts at a message are known to have been made."""
        return self.attempts_made.get(identity, 0) if self.attempts_made else 0

    def watch_redeliveries(self, source: object, now: float) -> None:
        """Remember acknowledged messages: a source lost its connection, or has it again.

        The broker redelivers messages whose acknowledgment it has not stored into the queue of the
        source, where they may wait for as long as handlers are busy. So the watch ends when a time
        has passed and the source has found its queue empty afterwards. The time starts with the
        first message, because a broker that was just started, or loads the topic elsewhere, may
        need minutes before it sends anything. As many as the queue holds come at a time, so each
        redelivery extends the watch.

        Args:
            source: Whose messages may come again.
            now: Time of the monotonic clock.
        """
        with self._lock:
            self._watches[source] = _Watch(now + SILENT_SECONDS)
            self.is_watching = True

    def restart_watch(self, source: object, now: float) -> None:
        """Watch a source that is connected again if its connection was lost before."""
        if source in self._watches:
            self.watch_redeliveries(source, now)

    def note_empty(self, source: object, now: float) -> None:
        """End the watch of a source that found its queue empty, if its time is over."""
        watch = self._watches.get(source)
        if watch is not None and now >= watch.until:
            self._end_watch(source, watch)

    def note_received(self, source: object, count: int, redelivered: int, now: float) -> None:
        """Start or extend the time of the watch of a source, or end the watch.

        A queue that is never empty ends it after as many messages as are remembered.

        Args:
            source: What received messages.
            count: How many it received.
            redelivered: How many of them it had received before.
            now: Time of the monotonic clock.
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
        """Take note of a message that was acknowledged."""
        if self.attempts_made:
            self.attempts_made.pop(message.identity, None)
        if self.is_watching:
            with self._lock:
                self._note_done(message.identity)

    def copied(self, identity: str) -> None:
        """Take note of a message whose place a stored copy took.

        A broker that crashes forgets acknowledgments of the last seconds. Each copy would then be
        made, and tried, a second time.
        """
        with self._lock:
            _add(self._copied, identity, None)

    def note_siblings(self, message: Received, pending: Iterable[Received]) -> None:
        """Take note of the messages before one that failed in its batch: they were handled.

        Args:
            message: The failed message.
            pending: Messages that are still handled, or wait for it.
        """
        prefix, _, index = message.identity.rpartition(":")
        # Those before one that outlived its connection may have been dropped with it, unhandled.
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
        """Return messages that are new, and those that were acknowledged lately.

        Args:
            batch: What came.
            pending: Messages that are handled, or wait for it.
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
            # In this order: `acknowledged` and its caller look in the opposite one.
            if identity in self._done or identity in self._copied:
                done.append(raw)
            elif held is not None:
                continue
            elif copies and self._is_second_copy(raw, identity):
                done.append(raw)
            else:
                # If the queue of the client holds a message twice, the later one counts.
                new[identity] = raw
        return list(new.values()), done

    def _is_second_copy(self, raw: RawMessage, identity: str) -> bool:
        """Return whether a copy was stored twice.

        Producers resend messages that may not be stored.
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
    """Remember something as the newest, and forget the oldest if there are too many."""
    known[identity] = value
    known.move_to_end(identity)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)
