"""Properties of messages in the retry topic and the dead-letter topic.

The names are those of the Java client, so its consumers and tools read them. The number of attempts
is in the message itself: it survives restarts of consumers and brokers, unlike the count of the
broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TRIES: Final = "RECONSUMETIMES"
"""How often the message has come back."""
REAL_TOPIC: Final = "REAL_TOPIC"
"""The topic that it was first sent to."""
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
"""The subscription for which it failed."""
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
"""Its id in that topic."""
SCHEMA_VERSION: Final = "SCHEMA_VERSION"
"""The version of that topic's schema that it was written with."""
DELAY: Final = "DELAY_TIME"
"""Milliseconds before it comes back."""
EXCEPTION: Final = "EXCEPTION"
"""What the last try failed with: the type of the error and the start of its text."""
REASON: Final = "DEAD_LETTER_REASON"
"""Why no further try is made: Rejected, AttemptsExhausted or SchemaMismatch."""
COPY_OF: Final = "SLIPWAY_COPY_OF"
"""The id of the message whose place the copy took; two copies with one id are the same copy."""

_ORIGIN: Final = (REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_ID, SCHEMA_VERSION)
_OWN: Final = frozenset({*_ORIGIN, TRIES, DELAY, EXCEPTION, REASON, COPY_OF})
_MAX_ERROR: Final = 500
_NO_VERSION: Final = -1


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic to which a message was first sent, and the number of this attempt.

    Attributes:
        topic: The topic that it was first sent to.
        message_id: Its id in that topic.
        schema_version: The version of that topic's schema that it was written with; -1 for none.
        attempt: Which try this is, from 1.
    """

    topic: str
    message_id: str
    schema_version: int = _NO_VERSION
    attempt: int = 1


def parse_origin(properties: Mapping[str, str], received: Origin) -> Origin:
    """Return the origin of a copy from the retry topic.

    Only messages of the retry topic are checked: a producer of the topic itself cannot choose the
    number of attempts.

    Args:
        properties: Of the copy.
        received: The copy as a message of its own, for what the properties do not say.
    """
    return Origin(
        properties.get(REAL_TOPIC) or received.topic,
        properties.get(ORIGIN_ID) or received.message_id,
        _parse_number(properties.get(SCHEMA_VERSION, ""), _NO_VERSION),
        _parse_number(properties.get(TRIES, ""), 0) + 1,
    )


def build_retry_properties(
    properties: Mapping[str, str], origin: Origin, subscription: str, delay: float
) -> dict[str, str]:
    """Return the properties of the copy in the retry topic, based on the failed message.

    Args:
        properties: Of the message that failed, in whichever topic.
        origin: Topic and id of the first publication, and the failed attempt.
        subscription: The subscription for which it failed.
        delay: Seconds before it comes back.
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
        properties: Of the message that failed, in whichever topic.
        origin: Topic and id of the first publication, and the failed attempt.
        subscription: The subscription for which it failed.
        reason: Why no further try is made.
        error: What the last try failed with, free of secrets.
    """
    return {
        **_build_origin(properties, origin, subscription),
        REASON: reason,
        EXCEPTION: error[:_MAX_ERROR],
    }


def build_redrive_properties(properties: Mapping[str, str], *, keep_origin: bool) -> dict[str, str]:
    """Return the properties of a dead letter that is sent back; its attempts start from zero.

    Args:
        properties: Of the dead letter.
        keep_origin: Whether the copy goes to the retry topic, whose readers look at its origin.
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
