"""The messages in the memory of the consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pulsar

from operators.pulsarconsumer.app.core.headers import Origin, parse_origin, strip_own
from operators.pulsarconsumer.app.core.states import State
from operators.pulsarconsumer.app.core.topics import without_partition
from slipway_handler import Message

type RawMessage = pulsar.Message
"""A message of the client, which ships no types."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that replaces a message.

    Attributes:
        topic: The retry topic or the dead-letter topic.
        operation: `retry` or `dead_letter`, for metrics.
        result: Result of the handling of the message, for metrics.
        delay: Seconds until the broker delivers the copy.
    """

    topic: str
    properties: dict[str, str]
    operation: str
    result: str
    delay: float = 0


class Received:
    """One message, from its receipt until it is done or given up.

    Only `Memory` changes the state and the raw message.

    Attributes:
        source: The consumer that received it.
        raw: The message of the client, as it was delivered last. The client acknowledges a batch
            only if all messages of one delivery are acknowledged, so the messages of a batch must
            not be acknowledged as parts of different deliveries.
        identity: Publish time and id in the topic from which it was received. The id alone is not
            unique if the service URL points to another cluster, or to one that was emptied.
        group: Messages of one group are handled in their order; empty for none.
        attempt: Number of the attempt that begins next or runs, from 1.
        state: The state; see `core/states.py`.
        seen_at: Monotonic time at which the broker delivered it last.
        entry: Number of its valid entry among the due messages.
        message: The message that the handler received; None before.
    """

    __slots__ = (
        "attempt",
        "data",
        "entry",
        "group",
        "identity",
        "message",
        "raw",
        "seen_at",
        "source",
        "state",
    )

    def __init__(
        self, source: Any, raw: RawMessage, identity: str, attempt: int = 1, group: str = ""
    ) -> None:
        """Initialize a message that was just received."""
        self.source, self.raw = source, raw
        self.data: bytes = raw.data()
        self.identity, self.group, self.attempt = identity, group, attempt
        self.state = State.RECEIVED
        self.seen_at, self.entry = 0.0, 0
        self.message: Message | None = None

    @property
    def origin(self) -> Origin:
        """Topic and id of the first publication, and the number of the attempt."""
        raw = self.raw
        topic = without_partition(raw.topic_name())
        received = Origin(topic, render_id(raw), read_schema_version(raw), self.attempt)
        if not self.source.is_retry:
            return received
        return replace(parse_origin(read_properties(raw), received), attempt=self.attempt)

    def build_message(self, value: object) -> Message:
        """Build the message for the handler, which may keep it: each attempt has another object."""
        raw, properties = self.raw, read_properties(self.raw)
        if self.source.is_retry:
            origin = self.origin
            topic, message_id, properties = origin.topic, origin.message_id, strip_own(properties)
        else:
            topic, message_id = without_partition(raw.topic_name()), render_id(raw)
        self.message = Message(
            self.data,
            value,
            topic,
            message_id,
            read_text(raw.partition_key),
            read_text(raw.ordering_key),
            properties,
            raw.publish_timestamp(),
            raw.event_timestamp(),
            self.attempt,
        )
        return self.message


def read_text(read: Callable[[], str]) -> str:
    """Return a key of a message; empty if it is not text, which producers in Go can send.

    The client cannot return such keys. The message is handled as if it had no key.
    """
    try:
        return read()
    except UnicodeDecodeError:
        return ""


def read_properties(raw: RawMessage) -> dict[str, str]:
    """Return the properties of a message; empty if one is not text, see `read_text`."""
    try:
        properties: dict[str, str] = raw.properties()
    except UnicodeDecodeError:
        return {}
    return properties


def read_schema_version(raw: RawMessage) -> int:
    """Return the version of the schema with which a message was written; -1 for none."""
    try:
        version = raw.schema_version()
    except UnicodeDecodeError as err:
        version = err.object  # The client expects text, but it is a number of 8 bytes.
    data = version.encode() if isinstance(version, str) else version
    return int.from_bytes(data) if data else -1


def render_id(raw: RawMessage) -> str:
    """Return the id of a message, such as `12:3:-1:0` (ledger, entry, partition, batch)."""
    # The client renders (ledger,entry,partition,batch): one call instead of four.
    return str(raw.message_id())[1:-1].replace(",", ":")


def render_identity(raw: RawMessage) -> str:
    """Return the publish time of a message in milliseconds, followed by its id."""
    return f"{raw.publish_timestamp()}:{render_id(raw)}"


def read_position(identity: str) -> tuple[int, ...]:
    """Return what orders the messages of a partition by their identities."""
    _, ledger, entry, _, index = map(int, identity.split(":"))
    return ledger, entry, index
