"""Names of topics: full names, and names of the retry and dead-letter topics."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

RETRY_SUFFIX: Final = "RETRY"
"""Suffix of a retry topic, as in the Java client."""
DEAD_LETTER_SUFFIX: Final = "DLQ"
"""Suffix of a dead-letter topic, as in all clients."""
ATTEMPTS_SUFFIX: Final = "ATTEMPTS"
"""Suffix of a topic in which consumers share the numbers of failed attempts."""

_PARTITION: Final = re.compile(r"-partition-\d+$")
_FULL: Final = re.compile(r"(?:non-)?persistent://[^/]+/[^/]+/.+")


def full_name(topic: str) -> str:
    """Return the full name of a topic: `persistent://public/default/t` for `t`."""
    if "://" in topic:
        return topic
    if topic.count("/") == 2:
        return f"persistent://{topic}"
    return f"persistent://public/default/{topic}"


def is_topic(topic: str) -> bool:
    """Return whether a topic name is valid for the client."""
    return bool(_FULL.fullmatch(full_name(topic))) and not re.search(r"\s", topic)


@lru_cache(maxsize=1024)
def without_partition(topic: str) -> str:
    """Return the topic of a partition."""
    return _PARTITION.sub("", topic)


def base_of_pattern(pattern: str, subscription: str) -> str:
    """Return the topic name from which names of further topics of a pattern are derived.

    It contains a hash of the pattern. Otherwise, consumers of two patterns with the same
    subscription would share the retry topic and the subscription on it, and handle each other's
    messages.
    """
    digest = hashlib.sha256(full_name(pattern).encode()).hexdigest()[:8]
    return f"{former_base_of_pattern(pattern, subscription)}-{digest}"


def former_base_of_pattern(pattern: str, subscription: str) -> str:
    """Return the base without the hash, as in earlier releases, whose topics may hold messages."""
    namespace = full_name(pattern).rpartition("/")[0]
    return f"{namespace}/{subscription}"


def as_persistent(topic: str) -> str:
    """Return the full name of the persistent topic with the same name."""
    return full_name(topic).removeprefix("non-")


def matches_pattern(pattern: str, topic: str) -> bool:
    """Return whether a consumer with the pattern would consume a topic."""
    bare = full_name(topic).partition("://")[2]
    return re.fullmatch(full_name(pattern).partition("://")[2], bare) is not None
