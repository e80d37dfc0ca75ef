"""Values of settings that are one of several words."""

from __future__ import annotations

from enum import StrEnum


class SubscriptionType(StrEnum):
    """How consumers of one subscription share its messages."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "KeyShared"


class SchemaType(StrEnum):
    """What payloads are."""

    BYTES = "Bytes"
    STRING = "String"
    JSON = "JSON"
    AVRO = "Avro"


class Mismatch(StrEnum):
    """What becomes of a payload that is not what the schema says."""

    DEAD_LETTER = "DeadLetter"
    SKIP = "Skip"
    FAIL = "Fail"


class DecryptFailure(StrEnum):
    """What becomes of a message that cannot be decrypted."""

    FAIL = "Fail"
    DISCARD = "Discard"
    CONSUME = "Consume"


class Switch(StrEnum):
    """Whether something is done at all."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"
