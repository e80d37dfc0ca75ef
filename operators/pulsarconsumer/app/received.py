"""Messages of the client whose fields are read lazily.

Reading a field is a call into the client. A handler reads one or two of them, and no other field is
needed to handle and acknowledge a message; reading all of them takes longer than receiving it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from operators.pulsarconsumer.app.core.headers import Origin, parse_origin, strip_own
from operators.pulsarconsumer.app.core.topics import without_partition
from slipway_handler import Message

type RawMessage = Any
"""A message of the native client, which has no types. Its Python wrapper would cost time."""


class Received(Message):
    """One message that is not acknowledged yet.

    Attributes:
        source: The consumer that received it.
        raw: The message of the client.
        origin: Topic and id of the first publication, and the number of this attempt.
        identity: Publish time and id in the topic from which it was received. The id alone is not
            unique if the service URL points to another cluster, or to one that was emptied.
        mismatch: Why it does not match the schema; empty if it does.
        error: Why its value cannot be read now; None if it was read.
    """

    # Without __dict__, because creating one for each message takes longer than most handlers.
    __slots__ = ("error", "identity", "mismatch", "origin", "raw", "source")

    source: Any
    raw: RawMessage
    origin: Origin
    identity: str
    mismatch: str
    error: Exception | None

    def __getattr__(self, name: str) -> Any:
        """Read a field at its first access, and cache it."""
        read = _READERS.get(name)
        if read is None:
            raise AttributeError(name=name, obj=self)
        value = read(self)
        object.__setattr__(self, name, value)
        return value

    def __reduce__(self) -> tuple[type[Message], tuple[object, ...]]:
        """Copy and pickle it as a plain message with all fields."""
        return Message, tuple(getattr(self, field.name) for field in fields(Message))


def receive_message(source: Any, raw: RawMessage) -> Received:
    """Build a received message; its value is the payload until `set_value` is called.

    Args:
        source: The consumer; its `count_attempts` returns the number of the attempt, based on the
            identity of the message and the count of the broker.
        raw: The message of the client.
    """
    message = _NEW(Received)
    _SET_SOURCE(message, source)
    _SET_RAW(message, raw)
    _SET_DATA(message, raw.data())
    return message


def replace_raw(message: Received, raw: RawMessage) -> None:
    """Make a redelivered message be acknowledged as a part of its last delivery.

    The client acknowledges a batch only when all messages of one delivery are acknowledged. So the
    messages of a batch must not be acknowledged as parts of different deliveries.
    """
    _SET_RAW(message, raw)


def next_attempt(message: Received, failed: int = 1) -> Received:
    """Return a new object for the next attempt, as the handler may have kept the previous one.

    Args:
        message: The message of the last attempt.
        failed: Number of attempts to add; 0 if the last one does not count.
    """
    origin = message.origin
    again = receive_message(message.source, message.raw)
    object.__setattr__(again, "identity", message.identity)
    object.__setattr__(again, "origin", replace(origin, attempt=origin.attempt + failed))
    return again


def set_attempt(message: Received, attempt: int) -> None:
    """Set the number of the attempt that begins next, or that has failed."""
    object.__setattr__(message, "origin", replace(message.origin, attempt=attempt))
    object.__setattr__(message, "attempt", attempt)


def set_value(
    message: Received, value: object, mismatch: str = "", error: Exception | None = None
) -> None:
    """Set the decoded value of a message, before any other code has seen the message."""
    put_value(message, value)
    if mismatch:
        object.__setattr__(message, "mismatch", mismatch)
    if error is not None:
        object.__setattr__(message, "error", error)


def is_decoded(message: Received) -> bool:
    """Return whether `set_value` was called."""
    try:
        _GET_VALUE(message)
    except AttributeError:
        return False
    return True


def read_for_log(source: Any, messages: Iterable[Received]) -> None:
    """Read the fields for the message log together, which takes half the time."""
    is_retry = source.is_retry
    for message in messages:
        raw = message.raw
        if is_retry:
            origin = message.origin
            topic, shown, attempt = origin.topic, origin.message_id, origin.attempt
        else:
            topic, shown = without_partition(raw.topic_name()), render_id(raw)
            attempt = message.source.count_attempts(message)
            _SET_PROPERTIES(message, read_properties(raw))
        _SET_TOPIC(message, topic)
        _SET_ID(message, shown)
        _SET_ATTEMPT(message, attempt)
        _SET_KEY(message, read_text(raw.partition_key))
        _SET_PUBLISH_TIME(message, raw.publish_timestamp())


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


def render_id(raw: RawMessage) -> str:
    """Return the id of a message, such as `12:3:-1:0` (ledger, entry, partition, batch)."""
    # The client renders (ledger,entry,partition,batch): one call instead of four.
    return str(raw.message_id())[1:-1].replace(",", ":")


def render_identity(raw: RawMessage) -> str:
    """Return the publish time of a message in milliseconds, followed by its id."""
    return f"{raw.publish_timestamp()}:{render_id(raw)}"


def _read_origin(message: Received) -> Origin:
    raw, shown = message.raw, render_id(message.raw)
    topic = without_partition(raw.topic_name())
    if message.source.is_retry:
        return parse_origin(read_properties(raw), Origin(topic, shown))
    attempt = message.source.count_attempts(message)
    return Origin(topic, shown, raw.int_schema_version(), attempt)


def _read_properties(message: Received) -> dict[str, str]:
    properties = read_properties(message.raw)
    return strip_own(properties) if message.source.is_retry else properties


_READERS: Final[Mapping[str, Callable[[Received], object]]] = {
    "identity": lambda message: render_identity(message.raw),
    "origin": _read_origin,
    "mismatch": lambda message: "",
    "error": lambda message: None,
    "value": lambda message: message.data,
    "topic": lambda message: message.origin.topic,
    "message_id": lambda message: message.origin.message_id,
    "key": lambda message: read_text(message.raw.partition_key),
    "ordering_key": lambda message: read_text(message.raw.ordering_key),
    "properties": _read_properties,
    "publish_time": lambda message: message.raw.publish_timestamp(),
    "event_time": lambda message: message.raw.event_timestamp(),
    "attempt": lambda message: message.origin.attempt,
}
# A message is frozen. These are the fastest way to set its fields before other code has seen it.
_NEW: Final = object.__new__
_SET_SOURCE: Final = Received.__dict__["source"].__set__
_SET_RAW: Final = Received.__dict__["raw"].__set__
_GET_VALUE: Final = Message.__dict__["value"].__get__
put_value: Final = Message.__dict__["value"].__set__
"""Sets the decoded value of a message that matches its schema; see `set_value`."""
_SET_TOPIC: Final = Message.__dict__["topic"].__set__
_SET_ID: Final = Message.__dict__["message_id"].__set__
_SET_ATTEMPT: Final = Message.__dict__["attempt"].__set__
_SET_PROPERTIES: Final = Message.__dict__["properties"].__set__
_SET_PUBLISH_TIME: Final = Message.__dict__["publish_time"].__set__
_SET_KEY: Final = Message.__dict__["key"].__set__
_SET_DATA: Final = Message.__dict__["data"].__set__
