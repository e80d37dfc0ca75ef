"""A message as handlers see it, and what they may raise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one received message.

    Attributes:
        data: The payload as it was sent.
        value: The payload by the schema: bytes, a text, or what JSON or Avro holds.
        topic: The topic that it was first sent to, also when it comes by the retry topic.
        message_id: Its id in that topic, such as `12:3:-1:0` (ledger, entry, partition, batch).
        key: The partition key; empty for none.
        ordering_key: What Key_Shared goes by in place of the key; empty for none.
        properties: The properties that the producer set.
        publish_time: When it was sent, in milliseconds since 1970.
        event_time: What the producer says when it happened, likewise; 0 for never said.
        attempt: Which try this is, from 1.
    """

    data: bytes
    value: object
    topic: str
    message_id: str
    key: str = ""
    ordering_key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    publish_time: int = 0
    event_time: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Output:
    """A message that a handler returns, to be published to the output topic.

    Attributes:
        data: The payload; a text is sent as UTF-8.
        key: The partition key; empty for none.
        properties: The properties of the message.
        event_time: When the event happened, in milliseconds since 1970; 0 for none.
        topic: The topic; empty means the output topic of the settings.
    """

    data: bytes | str
    key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time: int = 0
    topic: str = ""


class Reject(Exception):
    """Raised by a handler for a message that further attempts cannot fix.

    With a dead-letter topic the message goes there immediately; without one it is tried again.
    """

    cause = "Rejected"
    """Why, in the properties of the dead letter."""


class RetryLater(Exception):
    """Raised by a handler to have a message again after some seconds of its choice."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        """Take the seconds, and why for the log."""
        super().__init__(reason or f"again in {seconds:g} s")
        self.seconds = seconds


class Pause(Exception):
    """Raised by a handler if a system that it depends on is unavailable.

    The consumer calls no handler for that time. The message is handled again afterwards, and the
    call does not count as an attempt.
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        """Take the length of the pause, and the reason for the log."""
        super().__init__(reason or f"paused for {seconds:g} s")
        self.seconds = seconds


class PartialFailure(Exception):
    """Raised by a handler of lists to name the messages that failed; the others succeeded."""

    def __init__(self, failed: Iterable[Message], reason: str = "") -> None:
        """Take the messages that failed, and why for the log."""
        self.failed = tuple(failed)
        super().__init__(reason or f"{len(self.failed)} messages failed")
