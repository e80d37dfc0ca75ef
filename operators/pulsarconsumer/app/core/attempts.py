"""Failed attempts at the messages of a subscription, counted over all consumers. Pure.

Each consumer publishes the number of its own failed attempts. The number of attempts at a message
is the sum over all consumers, so neither the order of the records nor duplicates matter.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

_REMEMBERED: Final = 20_000
"""Maximum number of messages with failed attempts, and of remembered dead letters."""
_DEAD_SECONDS: Final = 600.0
"""Time for which a dead-lettered message is recognized if it is received again."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """The failed attempts and the results that a consumer publishes together.

    Attributes:
        attempts: Number of failed attempts of this consumer, by identity of the message.
        acknowledged: Messages that were handled.
        dead_lettered: Messages that were moved to the dead-letter topic.
    """

    consumer: str
    attempts: Mapping[str, int] = field(default_factory=dict)
    acknowledged: tuple[str, ...] = ()
    dead_lettered: tuple[str, ...] = ()

    def render(self) -> bytes:
        """Return the payload."""
        body = {
            "consumer": self.consumer,
            "attempts": self.attempts,
            "acknowledged": self.acknowledged,
            "deadLettered": self.dead_lettered,
        }
        return json.dumps(body, separators=(",", ":")).encode()


def parse_record(payload: bytes) -> AttemptRecord | None:
    """Parse a payload; None if it is not a record."""
    try:
        body = orjson.loads(payload)
        return AttemptRecord(
            str(body["consumer"]),
            {str(identity): int(count) for identity, count in body["attempts"].items()},
            tuple(str(identity) for identity in body["acknowledged"]),
            tuple(str(identity) for identity in body["deadLettered"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@dataclass(slots=True, eq=False)
class _Stored:
    """A stored record.

    Attributes:
        published: Its publish time in seconds since 1970.
        needed: Messages whose current number of attempts it holds.
    """

    position: Any
    published: float
    needed: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Count:
    attempts: int
    stored: _Stored | None


class AttemptTable:
    """The number of failed attempts at messages that are not finished; thread-safe."""

    def __init__(self, keep_seconds: float, most: int = _REMEMBERED) -> None:
        """Start empty.

        Args:
            keep_seconds: Age at which a record is dropped. Otherwise, the record of a message that
                was removed from its topic would be kept indefinitely.
            most: Maximum number of messages.
        """
        self._keep_seconds, self._most = keep_seconds, most
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, dict[str, _Count]] = OrderedDict()
        self._dead: OrderedDict[str, float] = OrderedDict()
        self._stored: dict[str, deque[_Stored]] = {}
        self.is_empty = True
        """Whether no message has failed attempts or was moved to the dead-letter topic lately."""

    def count(self, identity: str) -> int:
        """Return the number of failed attempts at a message."""
        with self._lock:
            return sum(each.attempts for each in self._counts.get(identity, {}).values())

    def is_known(self, identity: str) -> bool:
        """Return whether a message has failed attempts."""
        return identity in self._counts

    def is_dead_lettered(self, identity: str) -> bool:
        """Return whether a message was moved to the dead-letter topic lately."""
        return identity in self._dead

    def add(self, consumer: str, identity: str) -> int:
        """Count another failed attempt of a consumer, and return the number of its attempts."""
        with self._lock:
            known = self._counts.get(identity, {}).get(consumer)
            attempts = 1 if known is None else known.attempts + 1
            self._set(consumer, identity, attempts, None)
            return attempts

    def finish(self, identity: str) -> None:
        """Drop the attempts at a message that was acknowledged."""
        with self._lock:
            self._drop(identity)
            self._note_change()

    def note_dead_letter(self, identity: str, now: float) -> None:
        """Drop the attempts at a dead-lettered message, and recognize it for some time."""
        with self._lock:
            self._drop(identity)
            self._dead[identity] = now + _DEAD_SECONDS
            self._dead.move_to_end(identity)
            while len(self._dead) > self._most:
                self._dead.popitem(last=False)
            self._note_change()

    def forget_dead_letters(self) -> None:
        """Recognize no dead letters any more, because the subscription may have been moved back."""
        if self._dead:
            with self._lock:
                self._dead.clear()
                self._note_change()

    def apply(
        self,
        record: AttemptRecord,
        topic: str,
        position: Any,
        published: float,
        *,
        is_new: bool = True,
    ) -> None:
        """Apply a stored record.

        Args:
            record: The record.
            topic: The topic that holds it, which may be a partition.
            position: Its message id.
            published: Its publish time in seconds since 1970.
            is_new: Whether it was published after this process has started. Older dead letters are
                not recognized, because the subscription may have been moved back since.
        """
        for identity in record.acknowledged:
            self.finish(identity)
        for identity in record.dead_lettered:
            if is_new:
                self.note_dead_letter(identity, published)
            else:
                self.finish(identity)
        with self._lock:
            stored = _Stored(position, published)
            held = self._stored.setdefault(topic, deque())
            if len(held) > 4 * self._most:
                held = self._stored[topic] = _compact(held)
            held.append(stored)
            for identity, attempts in record.attempts.items():
                self._set(record.consumer, identity, attempts, stored)

    def restart(self) -> None:
        """Forget the positions of records, because they are read from the first one again."""
        with self._lock:
            self._stored.clear()

    def pop_unneeded(self, now: float) -> dict[str, Any]:
        """Return the message id up to which no record is needed, by topic.

        Topics without new records of this kind are not returned.

        Args:
            now: Seconds since 1970.
        """
        found: dict[str, Any] = {}
        with self._lock:
            for topic, stored in self._stored.items():
                while stored:
                    if now - stored[0].published > self._keep_seconds:
                        for identity in list(stored[0].needed):
                            self._drop(identity)
                    if stored[0].needed:
                        break
                    found[topic] = stored.popleft().position
                self._stored[topic] = _compact(stored)
            while self._dead and next(iter(self._dead.values())) < now:
                self._dead.popitem(last=False)
            self._note_change()
        return found

    def _set(self, consumer: str, identity: str, attempts: int, stored: _Stored | None) -> None:
        counts = self._counts.setdefault(identity, {})
        known = counts.get(consumer)
        if known is not None:
            if known.attempts > attempts:
                return  # An earlier record of this consumer, which is read late.
            if known.stored is not None:
                known.stored.needed.discard(identity)
        counts[consumer] = _Count(attempts, stored)
        if stored is not None:
            stored.needed.add(identity)
        self._counts.move_to_end(identity)
        while len(self._counts) > self._most:
            self._drop(next(iter(self._counts)))
        self.is_empty = False

    def _drop(self, identity: str) -> None:
        for each in self._counts.pop(identity, {}).values():
            if each.stored is not None:
                each.stored.needed.discard(identity)

    def _note_change(self) -> None:
        self.is_empty = not self._counts and not self._dead


def _compact(stored: Iterable[_Stored]) -> deque[_Stored]:
    """Keep the records that are needed, and of successive others only the last.

    A record that is needed for long would otherwise keep all later ones in memory.
    """
    kept: deque[_Stored] = deque()
    for each in stored:
        if kept and not kept[-1].needed and not each.needed:
            kept.pop()
        kept.append(each)
    return kept
