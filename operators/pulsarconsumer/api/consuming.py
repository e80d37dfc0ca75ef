"""Parts of the spec that say how messages are consumed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    IntFormat,
    IntOrString,
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
"""A duration in seconds, at most one week."""


class SubscriptionType(StrEnum):
    """SubscriptionType is how the consumers of a subscription share its messages."""

    SHARED = "Shared"
    """Shared delivers each message to one of the consumers, in no order."""
    EXCLUSIVE = "Exclusive"
    """Exclusive allows one consumer."""
    FAILOVER = "Failover"
    """Failover delivers each partition to one consumer. Others take over if it stops."""
    KEY_SHARED = "KeyShared"
    """KeyShared delivers messages with the same key to the same consumer, in order."""


class KeyOrder(StrEnum):
    """KeyOrder defines whether messages with the same key stay in order."""

    STRICT = "Strict"
    RELAXED = "Relaxed"


class InitialPosition(StrEnum):
    """InitialPosition is where a new subscription begins."""

    LATEST = "Latest"
    EARLIEST = "Earliest"


class SubscriptionCreator(StrEnum):
    """SubscriptionCreator names who creates the subscription."""

    CONSUMER = "Consumer"
    """Consumer: the first consumer that connects creates it."""
    OPERATOR = "Operator"
    """Operator: the operator creates it before the pods, so that no later message is missed."""


class DeletionPolicy(StrEnum):
    """DeletionPolicy is what happens to the subscription when the PulsarConsumer is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class RetryStrategy(StrEnum):
    """RetryStrategy is where a message waits for its next attempt."""

    NEGATIVE_ACK = "NegativeAck"
    """NegativeAck keeps the message and the number of attempts in the pod of the consumer."""
    RETRY_TOPIC = "RetryTopic"
    """RetryTopic publishes the message to a retry topic, with the number of attempts."""


class SchemaType(StrEnum):
    """SchemaType is the type of the schema of messages."""

    BYTES = "Bytes"
    STRING = "String"
    JSON = "JSON"
    AVRO = "Avro"


class MismatchPolicy(StrEnum):
    """MismatchPolicy is what happens to a message that does not match the schema."""

    DEAD_LETTER = "DeadLetter"
    SKIP = "Skip"
    FAIL = "Fail"


class DecryptFailurePolicy(StrEnum):
    """DecryptFailurePolicy is what happens to a message that cannot be decrypted."""

    FAIL = "Fail"
    DISCARD = "Discard"
    CONSUME = "Consume"


class LogFormat(StrEnum):
    """LogFormat is the format of the message log."""

    JSON = "JSON"
    TEXT = "Text"


class PayloadPolicy(StrEnum):
    """PayloadPolicy is how much of a payload is logged."""

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
    """Seek moves the subscription once. A new id moves it again."""

    id: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[-._A-Za-z0-9]+$")]
    """id identifies the seek. Each id is executed once."""
    position: InitialPosition | None = None
    """position is Earliest or Latest."""
    time: Timestamp | None = None
    """time is the publish time of the first message to consume."""


class Subscription(KubernetesModel):
    """Subscription configures how the subscription is created, shared and deleted."""

    type: SubscriptionType = SubscriptionType.SHARED
    """type is the type of the subscription (subscriptionType of Pulsar's clients)."""
    initial_position: InitialPosition = InitialPosition.LATEST
    """initialPosition is the position at which a new subscription starts
    (subscriptionInitialPosition of Pulsar's clients)."""
    create: SubscriptionCreator = SubscriptionCreator.CONSUMER
    """create is who creates the subscription. With autoscaling engine Native, the operator always
    creates it, because without a subscription no backlog builds up."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """deletionPolicy is Delete to delete the subscription with the PulsarConsumer."""
    key_order: KeyOrder = KeyOrder.STRICT
    """keyOrder is Strict to keep messages with the same key in order, for type KeyShared. Relaxed
    is allowOutOfOrderDelivery of Pulsar's clients."""
    replicate_state: Switch = Switch.DISABLED
    """replicateState replicates the position to all clusters of a geo-replicated topic
    (replicateSubscriptionState of Pulsar's clients)."""
    read_compacted: Switch = Switch.DISABLED
    """readCompacted reads the compacted topic, for types Exclusive and Failover."""
    seek: Seek | None = None
    """seek moves the subscription once. All consumers stop for it, and start again afterwards."""


class BatchDelivery(StrEnum):
    """BatchDelivery is the argument of the handler."""

    SINGLE = "Single"
    """Single calls it with one message at a time."""
    WHOLE = "Whole"
    """Whole calls it with the list of messages. If it fails, it is called with each message."""


class BatchReceive(KubernetesModel):
    """BatchReceive configures how messages are received in batches."""

    delivery: BatchDelivery = BatchDelivery.SINGLE
    """delivery is Single to call the handler with each message, or Whole to call it with the
    list."""

    max_messages: Annotated[int, Field(ge=1, le=100_000)] = 100
    """maxMessages is the maximum number of messages in a batch."""
    max_bytes: Annotated[int, Field(ge=1, le=134_217_728)] = 10_485_760
    """maxBytes is the maximum size of a batch in bytes."""
    timeout_milliseconds: Annotated[int, Field(ge=1, le=10_000)] = 100
    """timeoutMilliseconds is the maximum time to wait for a full batch."""


class Consumption(KubernetesModel):
    """Consumption limits how many messages are received and handled at a time."""

    receiver_queue_size: Annotated[int, Field(ge=1, le=100_000)] = 100
    """receiverQueueSize is the number of messages that a consumer prefetches from each partition,
    and from each partition of the retry topic (receiverQueueSize of Pulsar's clients). No other
    consumer gets these: use a small number for slow handlers and many partitions."""
    max_in_flight: Annotated[int, Field(ge=1, le=1000)] = 1
    """maxInFlight is the number of messages that a consumer handles at a time. With 1, messages
    stay in order."""
    ack_timeout_seconds: Annotated[
        int,
        Field(ge=0, le=86_400),
        Rule("self == 0 || self >= 10", "must be 0 (never) or at least 10"),
    ] = 0
    """ackTimeoutSeconds is the time after which an unacknowledged message is redelivered
    (ackTimeout of Pulsar's clients). 0 means never."""
    batch: BatchReceive | None = None
    """batch receives messages in batches."""
    rate_limit_per_second: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """rateLimitPerSecond is the maximum number of messages that each consumer handles per second. 0
    means no limit."""
    handler_timeout_seconds: Seconds = 0
    """handlerTimeoutSeconds is the maximum duration of a call of the handler. A longer call counts
    as a failed attempt, and the container restarts. 0 means no limit."""
    batch_index_ack: Switch = Switch.ENABLED
    """batchIndexAck acknowledges single messages of a batch, if the brokers have
    acknowledgmentAtBatchIndexLevelEnabled. Otherwise, the broker counts and redelivers the whole
    batch while one of its messages waits for its next attempt."""


_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
ExceptionName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*$"),
]
"""The type of a Python exception, with or without its module."""


Factor = Annotated[
    IntOrString,
    Rule(
        "type(self) == int ? self >= 1 && self <= 10"
        " : string(self).matches('^([1-9]([.][0-9]{1,2})?|10([.]0{1,2})?)$')",
        "must be a number from 1 to 10; put decimal numbers in quotes, such as '1.5'",
    ),
]
"""A factor from 1 to 10 with at most two decimal places."""


class Retry(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.topic) || self.strategy == 'RetryTopic'",
            "topic may be set only if strategy is RetryTopic",
            field_path=".topic",
        ),
        Rule(
            "self.initialDelaySeconds <= self.maxDelaySeconds",
            "initialDelaySeconds must not exceed maxDelaySeconds",
        ),
    ),
):
    """Retry configures further attempts at messages that failed."""

    strategy: RetryStrategy = RetryStrategy.NEGATIVE_ACK
    """strategy is NegativeAck or RetryTopic. RetryTopic needs permission to produce to the retry
    topic."""
    max_attempts: Annotated[int, Field(ge=1, le=1000)] = 5
    """maxAttempts is the number of attempts for a message, including the first: one more than
    maxRedeliverCount of Pulsar's clients. The attempts of all pods count. With strategy
    NegativeAck, pods share them in the topic topic-subscription-ATTEMPTS; if they cannot use it,
    each pod counts its own attempts. Without deadLetter, attempts are not limited."""
    initial_delay_seconds: Seconds = 1
    """initialDelaySeconds is the delay before the second attempt."""
    max_delay_seconds: Seconds = 600
    """maxDelaySeconds is the maximum delay between two attempts."""
    multiplier: Factor = 2
    """multiplier is the factor between two successive delays, from 1 to 10: an integer, or a
    decimal number in quotes."""
    topic: TopicName | None = None
    """topic is the topic in which messages wait for their next attempt, for strategy RetryTopic
    (retryLetterTopic of Pulsar's clients). It must be persistent, and no other PulsarConsumer may
    use it. Defaults to topic-subscription-RETRY, and with topicPattern to
    subscription-hash-RETRY, where hash depends on the pattern."""
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
    """DeadLetter configures the topic for messages that failed in every attempt."""

    topic: TopicName | None = None
    """topic is the dead-letter topic, which must be persistent. Defaults to topic-subscription-DLQ,
    and with topicPattern to subscription-hash-DLQ, where hash depends on the pattern."""
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
    """key is the key in the ConfigMap."""


class MessageSchema(
    KubernetesModel,
    rules=(
        Rule(
            "self.type != 'Avro' || has(self.configMapKeyRef)",
            "configMapKeyRef is required if type is Avro",
            field_path=".configMapKeyRef",
        ),
        Rule(
            "!has(self.configMapKeyRef) || self.type in ['JSON', 'Avro']",
            "configMapKeyRef may be set only if type is JSON or Avro",
            field_path=".configMapKeyRef",
        ),
    ),
):
    """MessageSchema is the schema of the messages."""

    type: SchemaType
    """type is Bytes, String, JSON or Avro."""
    config_map_key_ref: SchemaReference | None = None
    """configMapKeyRef names the definition of the schema."""
    on_mismatch: MismatchPolicy = MismatchPolicy.DEAD_LETTER
    """onMismatch is what happens to a message that does not match: DeadLetter moves it to the
    dead-letter topic, Skip acknowledges it, Fail stops the consumer."""


class Encryption(KubernetesModel):
    """Encryption configures the keys of end-to-end encryption."""

    private_key_secret_ref: KeyReference
    """privateKeySecretRef names the private key, as PEM."""
    public_key_secret_ref: KeyReference | None = None
    """publicKeySecretRef names the public key, as PEM."""
    on_decrypt_failure: DecryptFailurePolicy = DecryptFailurePolicy.FAIL
    """onDecryptFailure is what happens to a message that cannot be decrypted: Fail leaves it
    unacknowledged, Discard acknowledges it, Consume passes it to the handler encrypted."""


class MessageLog(KubernetesModel):
    """MessageLog configures what consumers log for each message."""

    format: LogFormat = LogFormat.JSON
    """format is JSON or Text."""
    payload: PayloadPolicy = PayloadPolicy.FULL
    """payload is how much of the payload is logged."""
    max_payload_bytes: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    """maxPayloadBytes is the maximum size of a logged payload, for payload Truncated."""
    redact_properties: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^,\s]+$")]],
        ListSet(),
        Field(max_length=64),
    ] = []
    """redactProperties are names of message properties whose values are not logged."""
    sample_percent: Annotated[int, IntFormat("int32"), Field(ge=0, le=100)] | None = None
    """samplePercent is the percentage of messages that are logged. Defaults to 100 without a
    handler and to 0 with one."""


class Drain(KubernetesModel):
    """Drain configures how a consumer stops."""

    timeout_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """timeoutSeconds is the time in which a consumer that stops can finish calls of the handler."""


Handler = Annotated[
    ShortText,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"),
]
"""A Python function, as `module:function`."""
