"""The memory of a consumer: the only owner of its messages and of their states.

A failed message is handled again from memory. It is not returned to the broker at once, because
brokers redeliver more than this message: the whole batch, or all unacknowledged messages. So the
same message can come a second time, and an administrator can move the subscription meanwhile; see
`redelivery.py`.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from operators.pulsarconsumer.app.core.states import TRANSITIONS, Event, State
from operators.pulsarconsumer.app.received import RawMessage, Received, read_position
from operators.pulsarconsumer.app.redelivery import Redeliveries, Source, remember

type Unit = list[Received]
"""Messages that one thread handles: one message, or a list for a handler of lists."""

_UNFINISHED: Final = (State.RECEIVED, State.WAITING, State.COPIED)
_BLOCKING: Final = (State.WAITING, State.COPIED)


@dataclass(slots=True)
class _Group:
    """Messages that are handled in their order.

    Attributes:
        units: Unfinished messages; the others wait for the first unit.
        is_running: Whether a thread has the first unit.
        is_mixed: Whether messages have come that precede others, because the cursor was moved back.
    """

    units: deque[Unit] = field(default_factory=deque)
    is_running: bool = False
    is_mixed: bool = False


class Memory:
    """The messages of a consumer that are neither done nor given up; thread-safe."""

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
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._idle = 0
        self._room = threading.Condition(self._lock)
        self._enough = -1
        self._rest = threading.Condition(self._lock)
        self._messages: dict[str, Received] = {}
        self._bytes = 0
        self._queue: deque[Unit] = deque()
        self._taken: list[Unit] = []
        self._groups: dict[str, _Group] = {}
        self._due: list[tuple[float, int, Received]] = []
        self._entries = itertools.count(1)
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self.redeliveries = Redeliveries(self._messages, self._lock, monotonic)
        """What the broker may deliver again."""
        self.paused_until = 0.0
        """Time before which no message is handled."""
        self.is_stopped = False
        """Whether no further message is handled."""

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._messages)

    def count_copied(self) -> int:
        """Return how many messages wait until their copy is stored."""
        with self._lock:
            return sum(message.state is State.COPIED for message in self._messages.values())

    def count_waiting(self) -> int:
        """Return how many messages wait for an attempt or a copy, or behind such a message."""
        with self._lock:
            return len(self._list_waiting())

    @property
    def queued(self) -> int:
        """Number of messages, or lists, that wait for a thread."""
        return len(self._queue)

    def is_full(self, source: Source) -> bool:
        """Return whether no more messages of a source should be received now.

        Copies from the retry topic are counted separately: messages that are kept because their
        copy cannot be stored must not prevent the retry topic from being drained. Messages that
        wait for their redelivery are not counted, up to as many again.
        """
        most, most_bytes = self._most, self._most_bytes
        if len(self._messages) < most and self._bytes < most_bytes:
            return False
        with self._lock:
            kept = [
                each for each in self._list_waiting() if each.source.is_retry is source.is_retry
            ]
            sure = [each for each in kept if not self.redeliveries.is_unconfirmed(each)]
        return any(
            len(messages) >= factor * most
            or sum(len(each.data) for each in messages) >= factor * most_bytes
            for factor, messages in ((1, sure), (2, kept))
        )

    def _list_waiting(self) -> list[Received]:
        """Return the messages that no thread has, or will take next."""
        queued = {id(message) for unit in self._queue for message in unit}
        return [
            message
            for message in self._messages.values()
            if message.state is not State.IN_HANDLER and id(message) not in queued
        ]

    # Messages and threads.

    def add(self, units: Sequence[Unit]) -> None:
        """Add received messages; each unit is handled by one thread."""
        with self._lock:
            for unit in units:
                for message in unit:
                    self._add(message)
                if not self._put_before(unit):
                    self._queue.append(unit)

    def delay(self, message: Received, due: float) -> None:
        """Add a copy that came before its delay is over."""
        with self._lock:
            self._add(message)
            self._wait(message, Event.EARLY, due)

    def take(self, *, block: bool = True) -> Unit | None:
        """Take the next messages to handle; None if none are left, or after `stop`."""
        with self._lock:
            while not self.is_stopped:
                if self._queue and not self.is_paused(self._monotonic()):
                    unit = self._take(self._queue.popleft())
                    if unit:
                        self._taken.append(unit)
                        if len(self._queue) <= self._enough:
                            self._room.notify_all()
                        return unit
                elif block:
                    self._idle += 1
                    self._work.wait()
                else:
                    return None
            return None

    def _take(self, unit: Unit) -> Unit:
        """Return the messages of a unit to handle; none if they wait for others of their group."""
        name = unit[0].group
        group = self._groups.setdefault(name, _Group()) if name else None
        if group is not None and not (group.units and group.units[0] is unit):
            if self._put_before(unit):
                return []
            group.units.append(unit)
            if len(group.units) > 1:
                return []
        first, *others = unit
        is_new = first.state is State.RECEIVED and not others
        if is_new and self.redeliveries.is_unconfirmed(first):  # It may have been skipped.
            self._wait(first, Event.EARLY, self._monotonic())
        left = [message for message in unit if message.state is State.RECEIVED]
        for message in left:
            self._move(message, Event.TAKEN)
        if group is not None:
            if left:
                group.units[0], group.is_running = left, True
            else:
                self._advance(name)
        return left

    def release(self, unit: Unit) -> None:
        """End the work of a thread; messages that it has not handled wait for the failed one."""
        with self._lock:
            self._taken = [each for each in self._taken if each is not unit]
            if not self._taken:
                self._rest.notify_all()
            for message in unit:
                if message.state is State.IN_HANDLER:
                    self._move(message, Event.PUT_BACK)
            name = unit[0].group
            if not name:
                if left := [each for each in unit if each.state is State.RECEIVED]:
                    self._queue.appendleft(left)
                return
            group = self._groups[name]
            group.is_running = False
            group.units.popleft()
            group.units.extendleft(reversed(self._split(unit)))
            self._advance(name)

    def _split(self, unit: Unit) -> list[Unit]:
        """Return the unfinished messages of a group in the units in which they are handled."""
        units: list[Unit] = []
        for message in unit:
            if message.state is State.WAITING and units:
                self._move(message, Event.DUE)  # It is due when those before it are done.
            if message.state in _BLOCKING:
                units.append([message])
            elif message.state is State.RECEIVED:
                if units and units[-1][-1].state is State.RECEIVED:
                    units[-1].append(message)
                else:
                    units.append([message])
        return units

    def _put_before(self, unit: Unit) -> bool:
        """Add messages to their group if they precede others of it; return whether they do."""
        group = self._groups.get(unit[0].group)
        if group is None or not group.units or not _precedes(unit[0], group.units[-1][-1]):
            return False
        group.units.append(unit)
        group.is_mixed = True
        if not group.is_running:
            self._advance(unit[0].group)
        return True

    def _sort(self, group: _Group) -> None:
        """Let messages be handled in their order at the broker; no thread has any of them."""
        others = {id(unit) for unit in group.units}
        self._queue = deque(unit for unit in self._queue if id(unit) not in others)
        left = [each for unit in group.units for each in unit if each.state in _UNFINISHED]
        left.sort(key=lambda each: (each.raw.topic_name(), read_position(each.identity)))
        for message in left[1:]:
            if message.state is State.WAITING:
                self._move(message, Event.DUE)  # It is due when those before it are done.
        group.units, group.is_mixed = deque([message] for message in left), False

    def _advance(self, name: str) -> None:
        """Continue with the next unit of a group that has unfinished messages."""
        if self._groups[name].is_mixed:
            self._sort(self._groups[name])
        units = self._groups[name].units
        while units:
            left = [message for message in units[0] if message.state in _UNFINISHED]
            if left:
                if left[0].state is State.RECEIVED:
                    self._queue.appendleft(units[0])
                    self.wake(1)
                return
            units.popleft()
        del self._groups[name]

    def wake(self, threads: int) -> int:
        """Wake threads that wait for messages; return how many were woken."""
        with self._lock:
            woken = min(threads, self._idle)
            self._idle -= woken
            self._work.notify(woken)
            return woken

    def wait_for_room(self, most: int, seconds: float) -> bool:
        """Wait until at most some messages wait for a thread, at most for some time."""
        with self._room:
            if len(self._queue) > most and not self.is_stopped:
                self._enough = most // 2  # To wait for each message would cost time.
                self._room.wait(seconds)
            return len(self._queue) <= most or self.is_stopped

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no thread has messages, and return whether that happened in time.

        If the memory is not stopped, this means that no message waits for a thread.
        """
        with self._rest:
            return self._rest.wait_for(
                lambda: not self._taken and (self.is_stopped or not self._queue), seconds
            )

    def stop(self) -> None:
        """Let threads take no further messages."""
        with self._lock:
            self.is_stopped = True
            self._idle = 0
            for condition in (self._work, self._room, self._rest):
                condition.notify_all()

    def pause(self, until: float) -> None:
        """Let no message be handled before a time."""
        self.paused_until = max(self.paused_until, until)

    def is_paused(self, now: float) -> bool:
        """Return whether a pause that a handler requested is in effect at a time."""
        return now < self.paused_until

    # Transitions. If the call of a handler has timed out, its own result comes too late.

    def finish(self, message: Received, event: Event) -> None:
        """Record that a message was acknowledged, after its handler or its copy has succeeded."""
        with self._lock:
            if (message.state, event) not in TRANSITIONS:
                return
            self._move(message, event)
            self._attempts.pop(message.identity, None)
            self.redeliveries.remember_finished(message.identity, message.seen_at)
            self._remove(message)

    def fail(self, message: Received, due: float, attempt: int) -> None:
        """Keep a message until its next attempt."""
        with self._lock:
            if message.state is State.IN_HANDLER:
                message.attempt = attempt
                self._wait(message, Event.FAILED, due)

    def replace(self, message: Received) -> bool:
        """Keep a message until its copy is stored; its handler is not called again.

        Returns:
            False if it has a copy already.
        """
        with self._lock:
            if message.state is not State.IN_HANDLER:
                return False
            self._move(message, Event.REPLACED)
            return True

    def pop_due(
        self,
        now: float,
        is_early: Callable[[Received], bool] = lambda _: False,
        *,
        together: bool = False,
    ) -> list[Received]:
        """Let threads handle due messages, in the order of their times.

        Args:
            now: Monotonic time.
            is_early: Returns whether a message must wait longer.
            together: Whether they are handled as one list; no message has a group then.

        Returns:
            Messages to return to the broker instead, because it must confirm them before the next
            attempt. With type Shared, it delivers them to any consumer.
        """
        early: list[tuple[float, int, Received]] = []
        due: Unit = []
        returned: Unit = []
        with self._lock:
            # A thread may not have left a message yet that it has already failed.
            held = {id(message) for unit in self._taken for message in unit}
            while self._due and self._due[0][0] <= now:
                entry = heapq.heappop(self._due)
                message = entry[2]
                if message.state is not State.WAITING or message.entry != entry[1]:
                    continue
                if (
                    id(message) in held
                    or self.redeliveries.is_unconfirmed(message)
                    or is_early(message)
                ):
                    early.append(entry)
                elif self._must_return(message):
                    returned.append(message)
                    self.redeliveries.ask(message.source, now)
                    self._give_up(message, remembers=True)
                else:
                    self._move(message, Event.DUE)
                    due.append(message)
            for entry in early:
                heapq.heappush(self._due, entry)
            if together and due:
                self._queue.append(due)
            elif due:
                self._queue.extend(
                    self._groups[each.group].units[0] if each.group else [each] for each in due
                )
        return returned

    def _must_return(self, message: Received) -> bool:
        source = message.source
        if source.redelivers_in_order or not source.is_durable:
            return False
        return self.redeliveries.is_old(message) and bool(source.is_connected)

    # The broker.

    def sort_out(
        self, source: Source, batch: Sequence[RawMessage]
    ) -> tuple[Mapping[str, RawMessage], list[RawMessage], list[Received]]:
        """Sort messages that a source has received.

        Returns:
            New messages by identity, messages to acknowledge because they were already finished,
            and messages that are given up because the broker did not redeliver them.
        """
        now = self._monotonic()
        with self._lock:
            new, done = self.redeliveries.sort_out(source, batch, now)
            redelivered = len(batch) - len(new)
            is_over = self.redeliveries.note_received(source, len(batch), redelivered, now)
            if not is_over:
                return new, done, []
            gone = self._end_watch(source)
            return new, done + self.redeliveries.pop_repetitions(source, now), gone

    def note_full(self, source: Source, now: float) -> list[Received]:
        """Return messages to give up although no more messages of a source are received.

        Otherwise, a memory that is full would wait for redeliveries that it does not receive.
        """
        with self._lock:
            return self._end_watch(source) if self.redeliveries.is_over(source, now) else []

    def note_empty(self, source: Source, now: float) -> tuple[list[RawMessage], list[Received]]:
        """Record that a source found its queue empty.

        Returns:
            Messages to acknowledge, which came again although the cursor was not moved, and
            messages that are given up because the broker did not redeliver them.
        """
        with self._lock:
            gone = self.note_full(source, now)
            return self.redeliveries.pop_repetitions(source, now), gone

    def _end_watch(self, source: Source) -> list[Received]:
        gone = self.redeliveries.end(source)
        for message in gone:
            self._give_up(message)
        return gone

    def close(self, source: Source) -> None:
        """Give up the messages of a source whose consumer was closed: the broker has them back.

        A message whose copy is being stored is kept, so that it is not copied twice.
        """
        with self._lock:
            for message in list(self._messages.values()):
                if message.source is source and message.state in (State.RECEIVED, State.WAITING):
                    self._give_up(message, remembers=True)
            self._due = [each for each in self._due if each[2].state is State.WAITING]
            heapq.heapify(self._due)
            self._queue = deque(
                unit for unit in self._queue if any(each.state is State.RECEIVED for each in unit)
            )

    def remember_attempts(self, identity: str, attempts: int) -> None:
        """Remember the number of attempts at a message, for its redelivery."""
        if attempts > 0:
            with self._lock:
                remember(self._attempts, identity, attempts)

    def attempts(self, identity: str) -> int:
        """Return the known number of attempts at a message that is not in memory."""
        return self._attempts.get(identity, 0)

    # The lock is held.

    @staticmethod
    def _move(message: Received, event: Event) -> None:
        message.state = TRANSITIONS[message.state, event]

    def _add(self, message: Received) -> None:
        message.seen_at = self._monotonic()
        self._messages[message.identity] = message
        self._bytes += len(message.data)

    def _wait(self, message: Received, event: Event, due: float) -> None:
        self._move(message, event)
        message.entry = next(self._entries)
        heapq.heappush(self._due, (due, message.entry, message))

    def _give_up(self, message: Received, *, remembers: bool = False) -> None:
        """Give up a message that no thread has."""
        self._move(message, Event.DROPPED)
        if remembers:
            self.remember_attempts(message.identity, message.attempt - 1)
        self._remove(message)

    def _remove(self, message: Received) -> None:
        """Remove a message that is done or given up, and continue with its group."""
        del self._messages[message.identity]
        self._bytes -= len(message.data)
        group = self._groups.get(message.group) if message.group else None
        if group is None or group.is_running or not group.units:
            return
        if message in group.units[0] and not any(
            each.state in _UNFINISHED for each in group.units[0]
        ):
            self._advance(message.group)


def _precedes(message: Received, other: Received) -> bool:
    """Return whether a message comes before another one of its partition."""
    if message.raw.topic_name() != other.raw.topic_name():
        return False
    return read_position(message.identity) < read_position(other.identity)
