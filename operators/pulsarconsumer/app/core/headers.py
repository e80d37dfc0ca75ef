"""Properties of messages in the retry topic and the dead-letter topic.

The names are the same as in the Java client, so its consumers and tools can read them. The number
of attempts is a property of the message itself. Unlike the count of the broker, it survives
restarts of consumers and brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from operators.pulsarconsumer.app.core.topics import full_name, without_partition

TRIES: Final = "RECONSUMETIMES"
"""Number of times that the message has been sent to the retry topic."""
REAL_TOPIC: Final = "REAL_TOPIC"
"""Topic to which the message was first sent."""
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
"""Subscription for which the message failed."""
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
"""Id of the message in that topic."""
SCHEMA_VERSION: Final = "SCHEMA_VERSION"
"""Version of the schema of that topic with which the message was written."""
DELAY: Final = "DELAY_TIME"
"""Delay until the next attempt, in milliseconds."""
EXCEPTION: Final = "EXCEPTION"
"""Error of the last attempt: its type and the beginning of its text."""
REASON: Final = "DEAD_LETTER_REASON"
"""Why no further attempt is made: Rejected, AttemptsExhausted or SchemaMismatch."""
COPY_OF: Final = "SLIPWAY_COPY_OF"
"""Id of the message that the copy replaces; two copies with the same id are duplicates."""

_ORIGIN: Final = (REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_ID, SCHEMA_VERSION)
_OWN: Final = frozenset({*_ORIGIN, TRIES, DELAY, EXCEPTION, REASON, COPY_OF})
_MAX_ERROR: Final = 500
_NO_VERSION: Final = -1


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic to which a message was first sent, and the number of this attempt.

    Attributes:
        topic: Topic to which the message was first sent.
        schema_version: Version of the schema of that topic with which it was written; -1 for none.
        attempt: Number of the attempt, from 1.
    """

    topic: str
    message_id: str
    schema_version: int = _NO_VERSION
    attempt: int = 1


def parse_origin(properties: Mapping[str, str], received: Origin) -> Origin:
    """Return the origin of a copy from the retry topic.

    Call this only for messages of the retry topic: a producer of the topic itself must not be able
    to choose the number of attempts.

    Args:
        properties: Properties of the copy.
        received: Origin of the copy itself, for values that the properties do not contain.
    """
    return Origin(
        properties.get(REAL_TOPIC) or received.topic,
        properties.get(ORIGIN_ID) or received.message_id,
        _parse_number(properties.get(SCHEMA_VERSION, ""), _NO_VERSION),
        _parse_number(properties.get(TRIES, ""), 0) + 1,
    )


def find_delay(properties: Mapping[str, str], published: int) -> float:
    """Return the time in seconds since 1970 before which a copy is not handled; 0 for none.

    Namespaces can disable and limit delayed delivery, so a copy can come too early.

    Args:
        properties: Properties of the copy.
        published: Publish time of the copy in milliseconds since 1970.
    """
    milliseconds = _parse_number(properties.get(DELAY, ""), 0)
    return (published + milliseconds) / 1000 if milliseconds else 0.0


class CopyOwner(Enum):
    """The consumer that must handle a copy in a retry topic."""

    SELF = "this consumer"
    OTHER_SUBSCRIPTION = "a consumer of another subscription, which has its own copy"
    OTHER_TOPIC = "a consumer of another topic that shares the retry topic and the subscription"


def find_owner(
    properties: Mapping[str, str], subscription: str, consumes: Callable[[str], bool]
) -> CopyOwner:
    """Return the consumer that must handle a copy; a copy without an origin is everybody's.

    Args:
        properties: Properties of the copy.
        subscription: Subscription of this consumer.
        consumes: Returns whether this consumer consumes a topic.
    """
    if properties.get(REAL_SUBSCRIPTION, subscription) != subscription:
        return CopyOwner.OTHER_SUBSCRIPTION
    topic = properties.get(REAL_TOPIC)
    # The Java client names the partition.
    if topic and not consumes(without_partition(full_name(topic))):
        return CopyOwner.OTHER_TOPIC
    return CopyOwner.SELF


def build_retry_properties(
    properties: Mapping[str, str], origin: Origin, subscription: str, delay: float
) -> dict[str, str]:
    """Return the properties of the copy in the retry topic, based on the failed message.

    Args:
        properties: Properties of the failed message.
        origin: Topic and id of the first publication, and the failed attempt.
        subscription: Subscription for which the message failed.
        delay: Seconds until the next attempt.
    """
    return {
        **_build_origin(properties, origin, subscription),
        DELAY: str(round(delay * 1000)),
    }


def build_dead_letter_properties(
    properties: Mapping[str, str], origin: Origin, subscription: str, reason: str, error: str
) -> dict[str, str]:
    """Return the properties of the copy in the dead-letter topic.

    Args:
        properties: Properties of the failed message.
        origin: Topic and id of the first publication, and the failed attempt.
        subscription: Subscription for which the message failed.
        reason: Why no further attempt is made.
        error: Error of the last attempt, without secrets.
    """
    return {
        **_build_origin(properties, origin, subscription),
        REASON: reason,
        EXCEPTION: error[:_MAX_ERROR],
    }


def build_redrive_properties(properties: Mapping[str, str], *, keep_origin: bool) -> dict[str, str]:
    """Return the properties of a dead letter that is sent back; its attempts start from zero.

    Args:
        properties: Properties of the dead letter.
        keep_origin: Whether the copy is sent to the retry topic, whose readers need its origin.
    """
    origin = _ORIGIN if keep_origin else ()
    kept = {name: properties[name] for name in origin if name in properties}
    return {**strip_own(properties), **kept}


def strip_own(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the producer set, without those that this module adds."""
    return {key: value for key, value in properties.items() if key not in _OWN}


def _build_origin(
    properties: Mapping[str, str], origin: Origin, subscription: str
) -> dict[str, str]:
    built = {
        **strip_own(properties),
        REAL_TOPIC: origin.topic,
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_ID: origin.message_id,
        TRIES: str(origin.attempt),
    }
    if origin.schema_version != _NO_VERSION:
        built[SCHEMA_VERSION] = str(origin.schema_version)
    return built


def _parse_number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default
