"""The message that handlers receive, and the exceptions that they may raise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    """One received message.

    Attributes:
        data: The payload as bytes.
        value: The payload, decoded by the schema: bytes, a string, or JSON or Avro data.
        topic: The original topic, even if the message arrives through the retry topic.
        message_id: The id in that topic, such as `12:3:-1:0` (ledger, entry, partition, batch).
        key: The partition key; empty if there is none.
        ordering_key: The key that Key_Shared uses instead of `key`; empty if there is none.
        properties: The properties that the producer set.
        publish_time: Time at which it was sent, in milliseconds since 1970.
        event_time: Time of the event, as set by the producer, in the same unit; 0 if not set.
        attempt: Number of this attempt, from 1.
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
        data: The payload; a string is sent as UTF-8.
        key: The partition key; empty for none.
        properties: The properties of the message.
        event_time: Time of the event, in milliseconds since 1970; 0 for none.
        topic: The topic; empty means the output topic of the settings.
    """

    data: bytes | str
    key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time: int = 0
    topic: str = ""


class Reject(Exception):
    """Raised by a handler for a message that further attempts cannot fix.

    The message is moved to the dead-letter topic immediately. Without such a topic, it is retried.
    """

    cause = "Rejected"
    """The reason in the properties of the dead letter."""


class RetryLater(Exception):
    """Raised by a handler to receive a message again after a given delay."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        """Keep the delay, and the reason for the log."""
        super().__init__(reason or f"again in {seconds:g} s")
        self.seconds = seconds


class Pause(Exception):
    """Raised by a handler if a system that it depends on is unavailable.

    The consumer calls no handler for that time. The message is handled again afterwards, and the
    call does not count as an attempt.
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        """Keep the length of the pause, and the reason for the log."""
        super().__init__(reason or f"paused for {seconds:g} s")
        self.seconds = seconds


class PartialFailure(Exception):
    """Raised by a handler of lists to name the messages that failed; the others succeeded."""

    def __init__(self, failed: Iterable[Message], reason: str = "") -> None:
        """Keep the failed messages, and the reason for the log."""
        self.failed = tuple(failed)
        super().__init__(reason or f"{len(self.failed)} messages failed")
