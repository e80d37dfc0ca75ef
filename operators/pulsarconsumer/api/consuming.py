"""Parts of the spec that say how messages are consumed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    IntFormat,
    KubernetesModel,
    ListSet,
    Rule,
    ShortText,
    Timestamp,
)
from operators.pulsarconsumer.api.connection import (
    FileKey,
    KeyReference,
    SubscriptionName,
    Switch,
    TopicName,
)

Seconds = Annotated[int, Field(ge=0, le=604_800)]
"""A time of at most a week."""


class SubscriptionType(StrEnum):
    """SubscriptionType tells how the consumers of a subscription share its messages."""

    SHARED = "Shared"
    """Shared gives each message to one consumer, in no order."""
    EXCLUSIVE = "Exclusive"
    """Exclusive lets one consumer in."""
    FAILOVER = "Failover"
    """Failover gives each partition to one consumer, others wait to take over."""
    KEY_SHARED = "KeyShared"
    """KeyShared gives messages of one key to one consumer, in order."""


class KeyOrder(StrEnum):
    """KeyOrder says whether messages of a key stay in order."""

    STRICT = "Strict"
    RELAXED = "Relaxed"


class InitialPosition(StrEnum):
    """InitialPosition is where a new subscription begins."""

    LATEST = "Latest"
    EARLIEST = "Earliest"


class SubscriptionCreator(StrEnum):
    """SubscriptionCreator names who makes the subscription."""

    CONSUMER = "Consumer"
    """Consumer leaves it to the first consumer that connects."""
    OPERATOR = "Operator"
    """Operator makes it before there are pods, so that no message from then on is missed."""


class DeletionPolicy(StrEnum):
    """DeletionPolicy says what becomes of the subscription with its PulsarConsumer."""

    RETAIN = "Retain"
    DELETE = "Delete"


class RetryStrategy(StrEnum):
    """RetryStrategy names the ways to try a message again."""

    NEGATIVE_ACK = "NegativeAck"
    """NegativeAck hands the message back to the broker; the number of tries is kept in memory."""
    RETRY_TOPIC = "RetryTopic"
    """RetryTopic publishes the message to a topic of retries, which keeps the number of tries."""


class SchemaType(StrEnum):
    """SchemaType tells how messages are read."""

    BYTES = "Bytes"
    STRING = "String"
    JSON = "JSON"
    AVRO = "Avro"


class MismatchPolicy(StrEnum):
    """MismatchPolicy says what becomes of a message that does not fit the schema."""

    DEAD_LETTER = "DeadLetter"
    SKIP = "Skip"
    FAIL = "Fail"


class DecryptFailurePolicy(StrEnum):
    """DecryptFailurePolicy says what becomes of a message that cannot be decrypted."""

    FAIL = "Fail"
    DISCARD = "Discard"
    CONSUME = "Consume"


class LogFormat(StrEnum):
    """LogFormat is the form of the lines that consumers log."""

    JSON = "JSON"
    TEXT = "Text"


class PayloadPolicy(StrEnum):
    """PayloadPolicy says how much of a message is logged."""

    FULL = "Full"
    TRUNCATED = "Truncated"
    HASH = "Hash"
    NONE = "None"


class Seek(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.position) != has(self.time)",
            "seek needs exactly one of position and time",
        ),
    ),
):
    """Seek moves the subscription once; a new id moves it again."""

    id: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[-._A-Za-z0-9]+$")]
    """id tells one seek from the next; each is done once."""
    position: InitialPosition | None = None
    """position is Earliest or Latest."""
    time: Timestamp | None = None
    """time is the publish time of the first message to consume."""


class Subscription(KubernetesModel):
    """Subscription tells how the subscription is made, shared and disposed of."""

    type: SubscriptionType = SubscriptionType.SHARED
    """type tells how consumers share messages."""
    initial_position: InitialPosition = InitialPosition.LATEST
    """initialPosition is where a new subscription begins."""
    create: SubscriptionCreator = SubscriptionCreator.CONSUMER
    """create says who makes the subscription; autoscaling by engine Native makes it in any case,
    since without it no backlog would wait while there are no consumers."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """deletionPolicy is Delete to delete the subscription with the PulsarConsumer."""
    key_order: KeyOrder = KeyOrder.STRICT
    """keyOrder says whether messages of a key stay in order, for type KeyShared. Relaxed is
    allowOutOfOrderDelivery of Pulsar's clients. Defaults to Strict."""
    replicate_state: Switch = Switch.DISABLED
    """replicateState keeps the position in all clusters of a replicated topic."""
    read_compacted: Switch = Switch.DISABLED
    """readCompacted reads the compacted topic; for types Exclusive and Failover."""
    seek: Seek | None = None
    """seek moves the subscription once."""


class BatchDelivery(StrEnum):
    """BatchDelivery says what a handler is called with."""

    SINGLE = "Single"
    """Single calls it with one message after the other."""
    WHOLE = "Whole"
    """Whole calls it with the list of them; when it fails, all are tried again."""


class BatchReceive(KubernetesModel):
    """BatchReceive takes messages in batches."""

    delivery: BatchDelivery = BatchDelivery.SINGLE
    """delivery says whether the handler is called with each message or with the whole list."""

    max_messages: Annotated[int, Field(ge=1, le=100_000)] = 100
    """maxMessages is the most messages in a batch."""
    max_bytes: Annotated[int, Field(ge=1, le=134_217_728)] = 10_485_760
    """maxBytes is the most bytes in a batch."""
    timeout_milliseconds: Annotated[int, Field(ge=1, le=10_000)] = 100
    """timeoutMilliseconds is the longest wait for a batch to fill; a consumer that ends waits it
    out."""


class Consumption(KubernetesModel):
    """Consumption bounds how fast messages are taken."""

    receiver_queue_size: Annotated[int, Field(ge=1, le=100_000)] = 100
    """receiverQueueSize is the number of messages that a consumer prefetches from each partition,
    and from each partition of the retry topic (receiverQueueSize of Pulsar's clients). No other
    consumer gets these: use a small number for slow handlers and many partitions."""
    max_in_flight: Annotated[int, Field(ge=1, le=1000)] = 1
    """maxInFlight is how many messages a consumer handles at a time; 1 keeps them in order."""
    ack_timeout_seconds: Annotated[
        int,
        Field(ge=0, le=86_400),
        Rule("self == 0 || self >= 10", "must be 0 (never) or at least 10"),
    ] = 0
    """ackTimeoutSeconds is when a message without an answer is delivered again; 0 is never."""
    batch: BatchReceive | None = None
    """batch takes messages in batches."""
    rate_limit_per_second: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """rateLimitPerSecond is how many messages a consumer takes in a second; 0 is no limit."""
    handler_timeout_seconds: Seconds = 0
    """handlerTimeoutSeconds is how long the handler may take for a message before the container is
    started anew; 0 is for ever."""
    batch_index_ack: Switch = Switch.DISABLED
    """batchIndexAck acknowledges single messages of a batch; the broker must allow it."""


_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
ExceptionName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*$"),
]
"""The type of a Python exception, with or without its module."""


class Retry(
    KubernetesModel,
    rules=(
        Rule(
            "self.initialDelaySeconds <= self.maxDelaySeconds",
            "initialDelaySeconds must not exceed maxDelaySeconds",
        ),
    ),
):
    """Retry tells how a message is tried again whose handling failed."""

    strategy: RetryStrategy = RetryStrategy.RETRY_TOPIC
    """strategy is RetryTopic or NegativeAck."""
    max_attempts: Annotated[int, Field(ge=1, le=1000)] = 5
    """maxAttempts is the number of attempts for a message, including the first: one more than
    maxRedeliverCount of Pulsar's clients. Without deadLetter, attempts are not limited."""
    initial_delay_seconds: Seconds = 1
    """initialDelaySeconds is the delay before the second try."""
    max_delay_seconds: Seconds = 600
    """maxDelaySeconds is the longest delay between two tries."""
    multiplier: Annotated[int, Field(ge=1, le=10)] = 2
    """multiplier is by how much each delay is longer than that before."""
    topic: TopicName | None = None
    """topic is the topic in which messages wait for their next attempt (retryLetterTopic of
    Pulsar's clients). Defaults to topic-subscription-RETRY."""
    reject_on: Annotated[list[ExceptionName], ListSet(), Field(max_length=50)] = []
    """rejectOn are types of Python exceptions, such as ValueError or shop.errors.InvalidOrder. A
    message whose handler raises one of them, or a subclass, is moved to the dead-letter topic
    without further attempts. Has no effect without deadLetter."""


class Output(KubernetesModel):
    """Output publishes what the handler returns."""

    topic: TopicName
    """topic is the topic to which consumers publish what the handler returns, before they
    acknowledge the message."""


class DeadLetter(KubernetesModel):
    """DeadLetter keeps messages that failed in every try."""

    topic: TopicName | None = None
    """topic is where such messages go (default: topic-subscription-DLQ)."""
    subscription_name: SubscriptionName | None = None
    """subscriptionName is the subscription that keeps the dead letters: it is created before the
    first of them is sent. Defaults to the subscriptionName of the spec."""


class SchemaReference(KubernetesModel):
    """SchemaReference names the ConfigMap with the definition of a schema."""

    name: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    ]
    """name is the name of the ConfigMap."""
    key: FileKey
    """key is the key in it."""


class MessageSchema(
    KubernetesModel,
    rules=(
        Rule(
            "self.type != 'Avro' || has(self.configMapKeyRef)",
            "configMapKeyRef is needed when type is Avro",
            field_path=".configMapKeyRef",
        ),
        Rule(
            "!has(self.configMapKeyRef) || self.type in ['JSON', 'Avro']",
            "configMapKeyRef says nothing to types other than JSON and Avro",
            field_path=".configMapKeyRef",
        ),
    ),
):
    """MessageSchema tells how messages are read."""

    type: SchemaType
    """type is Bytes, String, JSON or Avro."""
    config_map_key_ref: SchemaReference | None = None
    """configMapKeyRef names the definition of the schema."""
    on_mismatch: MismatchPolicy = MismatchPolicy.DEAD_LETTER
    """onMismatch says what becomes of a message that does not fit."""


class Encryption(KubernetesModel):
    """Encryption decrypts messages that were encrypted end to end."""

    private_key_secret_ref: KeyReference
    """privateKeySecretRef names the private key, as PEM."""
    public_key_secret_ref: KeyReference | None = None
    """publicKeySecretRef names the public key, as PEM."""
    on_decrypt_failure: DecryptFailurePolicy = DecryptFailurePolicy.FAIL
    """onDecryptFailure says what becomes of a message that cannot be decrypted."""


class MessageLog(KubernetesModel):
    """MessageLog tells what the consumers of the default image log of each message."""

    format: LogFormat = LogFormat.JSON
    """format is JSON or Text."""
    payload: PayloadPolicy = PayloadPolicy.FULL
    """payload says how much of a message is logged."""
    max_payload_bytes: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    """maxPayloadBytes is where payload Truncated cuts."""
    redact_properties: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^,\s]+$")]],
        ListSet(),
        Field(max_length=64),
    ] = []
    """redactProperties are properties of messages whose values are not logged."""
    sample_percent: Annotated[int, IntFormat("int32"), Field(ge=0, le=100)] | None = None
    """samplePercent is the percentage of messages that are logged. Defaults to 100 without a
    handler and to 0 with one."""


class Drain(KubernetesModel):
    """Drain tells how a consumer ends."""

    timeout_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """timeoutSeconds is the time to finish and acknowledge what a consumer holds."""


Handler = Annotated[
    ShortText,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"),
]
"""A Python function, as `module:function`."""
