"""Names of topics: in full, and of the two that belong to a subscription."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

RETRY_SUFFIX: Final = "RETRY"
"""Ends the name of a retry topic, as the Java client has it."""
DEAD_LETTER_SUFFIX: Final = "DLQ"
"""Ends the name of a dead-letter topic, as all clients have it."""

_PARTITION: Final = re.compile(r"-partition-\d+$")
_FULL: Final = re.compile(r"(?:non-)?persistent://[^/]+/[^/]+/.+")


def full_name(topic: str) -> str:
    """Return a topic in full: `t` is `persistent://public/default/t`."""
    if "://" in topic:
        return topic
    if topic.count("/") == 2:
        return f"persistent://{topic}"
    return f"persistent://public/default/{topic}"


def is_topic(topic: str) -> bool:
    """Return whether a topic has a form that the client takes."""
    return bool(_FULL.fullmatch(full_name(topic))) and not re.search(r"\s", topic)


@lru_cache(maxsize=1024)
def without_partition(topic: str) -> str:
    """Return the topic that a partition is of."""
    return _PARTITION.sub("", topic)


def base_of_pattern(pattern: str, subscription: str) -> str:
    """Return the topic name from which names of further topics of a pattern are derived."""
    namespace = full_name(pattern).rpartition("/")[0]
    return f"{namespace}/{subscription}"


def matches_pattern(pattern: str, topic: str) -> bool:
    """Return whether a pattern would have us consume a topic."""
    bare = full_name(topic).partition("://")[2]
    return re.fullmatch(full_name(pattern).partition("://")[2], bare) is not None
