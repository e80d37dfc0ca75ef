"""Settings of the consumer: what it receives, how it handles, what becomes of failures."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from libs.common.settings import CommaList
from operators.pulsarconsumer.app.core import topics
from operators.pulsarconsumer.app.core.lines import Format, LineOptions, Payload
from operators.pulsarconsumer.app.core.retry import RetryPolicy, Strategy
from operators.pulsarconsumer.app.settings.choices import (
    DecryptFailure,
    Mismatch,
    SchemaType,
    SubscriptionType,
    Switch,
)
from operators.pulsarconsumer.app.settings.connection import ConnectionSettings


class Settings(ConnectionSettings):
    """Settings of the consumer."""

    topic: str = ""
    """topic is the topic to consume: one of topic, topics and topic_pattern is set."""

    topics: CommaList = ()
    """topics is a comma list of topics to consume."""

    topic_pattern: str = ""
    """topic_pattern is a regular expression for the topics of one namespace to consume, such as
    `persistent://public/default/orders-.*`; new ones are found each minute."""

    subscription_name: str = Field(min_length=1)
    """subscription_name is the name of the subscription, which all replicas share."""

    name: str = ""
    """name is the name of this consumer in the broker's statistics, such as the name of the pod."""

    subscription_type: SubscriptionType = SubscriptionType.SHARED
    """subscription_type is Exclusive, Shared, Failover or KeyShared."""

    initial_position: Literal["Latest", "Earliest"] = "Latest"
    """initial_position is where a new subscription begins: Latest or Earliest."""

    key_shared_allow_out_of_order: bool = False
    """key_shared_allow_out_of_order sets whether messages of one key may come out of order when
    consumers join, rather than wait."""

    read_compacted: bool = False
    """read_compacted sets whether only the last message of each key is read."""

    replicate_subscription_state: bool = False
    """replicate_subscription_state sets whether other clusters learn what is acknowledged."""

    receiver_queue_size: int = Field(default=100, ge=1, le=100_000)
    """receiver_queue_size is how many messages the client fetches ahead; other consumers get none
    of these."""

    max_in_flight: int = Field(default=1, ge=1, le=1000)
    """max_in_flight is how many messages are handled at a time; above 1 the handler must be
    thread-safe, and only messages of one key stay in order."""

    ack_timeout_seconds: float = Field(default=0, ge=0)
    """ack_timeout_seconds is the time after which a message that is not acknowledged is delivered
    again, at least 10; 0 means never while the consumer is connected."""

    batch_index_ack: bool = True
    """batch_index_ack sets whether messages of a batch are acknowledged one by one, if the brokers
    have acknowledgmentAtBatchIndexLevelEnabled; otherwise it has no effect."""

    batch_max_messages: int = Field(default=0, ge=0, le=100_000)
    """batch_max_messages is how many messages are received at a time; 0 means one."""

    batch_max_bytes: int = Field(default=10_485_760, ge=1)
    """batch_max_bytes is how many bytes are received at a time, with batch_max_messages."""

    batch_timeout_milliseconds: int = Field(default=100, ge=1, le=10_000)
    """batch_timeout_milliseconds is how long to wait for batch_max_messages."""

    rate_limit_per_second: float = Field(default=0, ge=0)
    """rate_limit_per_second is how many messages are handled per second; 0 means no
    limit."""

    retry_strategy: Strategy = Strategy.NEGATIVE_ACK
    """retry_strategy is where a message waits whose handling failed: RetryTopic sends a copy with
    the number of attempts in it, which survives restarts; NegativeAck keeps the message in memory,
    and messages that must stay in order wait behind it."""

    retry_max_attempts: int = Field(default=5, ge=1, le=1_000_000)
    """retry_max_attempts is the number of attempts after which a message is moved to the
    dead-letter topic, if dead_letter is Enabled."""

    retry_initial_delay_seconds: float = Field(default=1, ge=0, le=864_000)
    """retry_initial_delay_seconds is the delay before the second attempt."""

    retry_max_delay_seconds: float = Field(default=600, ge=0, le=864_000)
    """retry_max_delay_seconds is the longest delay between two attempts."""

    retry_multiplier: float = Field(default=2, ge=1, le=100)
    """retry_multiplier is the factor by which each delay is longer than the previous
    delay."""

    retry_reject_on: CommaList = ()
    """retry_reject_on is a comma list of exception types, such as `ValueError` or
    `shop.errors.InvalidOrder`. A message whose handler raises one of them, or a subclass, is moved
    to the dead-letter topic without further attempts."""

    retry_topic: str = ""
    """retry_topic is where copies wait for their next attempt, a persistent topic; empty means
    `<topic>-<subscription>-RETRY`, with the first of several topics; with a pattern
    `<subscription>-<hash of the pattern>-RETRY` in its namespace."""

    dead_letter: Switch = Switch.DISABLED
    """dead_letter is Enabled to move messages that failed too often to the dead-letter topic;
    Disabled retries them indefinitely, because no message is dropped."""

    dead_letter_topic: str = ""
    """dead_letter_topic is the topic for these messages; empty means `<topic>-<subscription>-DLQ`,
    or as for retry_topic."""

    dead_letter_subscription: str = ""
    """dead_letter_subscription is created on the dead-letter topic before the first message is
    sent there, because a broker drops messages without a subscription; empty means the name of the
    subscription."""

    schema_type: SchemaType = SchemaType.BYTES
    """schema_type is what payloads are: Bytes, String, JSON or Avro."""

    schema_file: str = ""
    """schema_file contains the Avro definition that JSON and Avro payloads must match; the broker
    checks it against the topic's."""

    schema_on_mismatch: Mismatch = Mismatch.DEAD_LETTER
    """schema_on_mismatch is the action for a payload that does not match schema_type:
    DeadLetter treats it as failed without further attempts, Skip acknowledges it, Fail stops the
    app."""

    encryption_private_key_file: str = ""
    """encryption_private_key_file holds the key that decrypts messages (end-to-end encryption)."""

    encryption_public_key_file: str = ""
    """encryption_public_key_file holds the key that encrypts the copies in the retry and
    dead-letter topics."""

    encryption_on_failure: DecryptFailure = DecryptFailure.FAIL
    """encryption_on_failure is the action for a message that cannot be decrypted: Fail leaves it
    unacknowledged, Discard acknowledges it, Consume hands it on encrypted."""

    log_format: Format = Format.JSON
    """log_format is how the line of each message is written: JSON or Text."""

    log_payload: Payload = Payload.FULL
    """log_payload is what the line shows of the payload: Full, Truncated, Hash or None."""

    log_max_payload_bytes: int = Field(default=1024, ge=0)
    """log_max_payload_bytes is where Truncated cuts the payload."""

    log_redact_properties: CommaList = ()
    """log_redact_properties is a comma list of properties, and fields of JSON and Avro payloads,
    whose values the line hides; names like `token` and `password` are always hidden."""

    log_sample_ratio: float | None = Field(default=None, ge=0, le=1)
    """log_sample_ratio is the share of the messages that have a line. Defaults to 1 without a
    handler and to 0 with one."""

    handler: str = Field(default="", pattern=r"^$|^[\w.]+:[\w.]+$")
    """handler is the function that handles messages, as `module:function`; empty means that
    messages are only logged."""

    handler_batch: bool = False
    """handler_batch sets whether the handler takes a list of messages, with
    batch_max_messages."""

    output_topic: str = ""
    """output_topic is the topic to which the app publishes what the handler returns, before it
    acknowledges the message. Empty means that what the handler returns is ignored."""

    handler_timeout_seconds: float = Field(default=0, ge=0)
    """handler_timeout_seconds is the time after which a call of the handler counts as a failed
    attempt and the app ends, to be restarted; 0 means never."""

    held_messages: int = Field(default=10_000, ge=1)
    """held_messages is the number of failed messages that wait in memory for their next attempt
    before no more messages are received."""

    held_bytes: int = Field(default=33_554_432, ge=1)
    """held_bytes is the size of these messages before no more messages are received."""

    journal_folder: str = ""
    """journal_folder is where the app records which messages it handles, so that a crash counts as
    an attempt; it should be a volume that outlives the container. Empty disables it."""

    drain_timeout_seconds: float = Field(default=30, ge=0, le=86_400)
    """drain_timeout_seconds is the time that handlers have to end after SIGTERM; less than the
    pod's terminationGracePeriodSeconds."""

    metrics_port: int = Field(default=8080, ge=0, le=65_535)
    """metrics_port serves /metrics."""

    health_port: int = Field(default=8081, ge=0, le=65_535)
    """health_port serves /healthz and /readyz."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """log_level is the least severity of the app's own log, which goes to stderr."""

    otlp_endpoint: str = Field(
        default="", json_schema_extra={"environment": ["OTEL_EXPORTER_OTLP_ENDPOINT"]}
    )
    """otlp_endpoint is the base URL of an OTLP/HTTP receiver for traces; empty disables
    tracing."""

    trace_sample_ratio: float = Field(default=1, ge=0, le=1)
    """trace_sample_ratio is the share of the messages without a trace of their own that are
    traced."""

    @property
    def all_topics(self) -> tuple[str, ...]:
        """The topics by their full names; empty with a pattern."""
        named = (self.topic,) if self.topic else self.topics
        return tuple(topics.full_name(topic) for topic in named)

    @property
    def retry_topic_name(self) -> str:
        """The full name of the retry topic."""
        return topics.full_name(self.retry_topic or self._derive(topics.RETRY_SUFFIX))

    @property
    def former_retry_topic_name(self) -> str:
        """The default retry topic of earlier releases; empty if it had the same name."""
        if self.retry_topic or self.retry_strategy is not Strategy.RETRY_TOPIC:
            return ""
        return self._derive_former(topics.RETRY_SUFFIX)

    @property
    def dead_letter_topic_name(self) -> str:
        """The full name of the dead-letter topic."""
        return topics.full_name(self.dead_letter_topic or self._derive(topics.DEAD_LETTER_SUFFIX))

    @property
    def former_dead_letter_topic_name(self) -> str:
        """The default dead-letter topic of earlier releases; empty if it had the same name."""
        return "" if self.dead_letter_topic else self._derive_former(topics.DEAD_LETTER_SUFFIX)

    @property
    def attempts_topic_name(self) -> str:
        """The full name of the topic in which consumers share attempts; empty if they do not.

        It has a default name only: a topic that is consumed or used otherwise is not used for it.
        """
        if self.retry_strategy is Strategy.RETRY_TOPIC or self.dead_letter is Switch.DISABLED:
            return ""
        if self._base.startswith("non-persistent://"):
            return ""
        # Consumers may share it, because ids of messages are unique.
        name = self._derive_former(topics.ATTEMPTS_SUFFIX) or self._derive(topics.ATTEMPTS_SUFFIX)
        if self.topic_pattern and topics.matches_pattern(self.topic_pattern, name):
            return ""
        used = (*self.all_topics, *(topic for _, topic in self._own_topics()))
        return "" if name in used else name

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often and how soon a failed message is tried again."""
        return RetryPolicy(
            self.retry_max_attempts,
            self.retry_initial_delay_seconds,
            self.retry_max_delay_seconds,
            self.retry_multiplier,
            self.dead_letter is Switch.ENABLED,
            frozenset(self.retry_reject_on),
        )

    @property
    def keeps_order(self) -> bool:
        """Whether messages of a partition, or of a key, are handled in their order."""
        match self.subscription_type:
            case SubscriptionType.SHARED:
                return False
            case SubscriptionType.KEY_SHARED:
                return not self.key_shared_allow_out_of_order
            case _:
                return True

    @property
    def orders_by_key(self) -> bool:
        """Whether only messages of one key are kept in order."""
        return self.subscription_type is SubscriptionType.KEY_SHARED or self.max_in_flight > 1

    @property
    def line_options(self) -> LineOptions:
        """What the log shows of messages."""
        return LineOptions(
            self.log_format,
            self.log_payload,
            self.log_max_payload_bytes,
            frozenset(name.lower() for name in self.log_redact_properties),
            self._sample_ratio,
        )

    @property
    def _sample_ratio(self) -> float:
        # A handler shows what it wants to show; payloads may be large, or personal data.
        if self.log_sample_ratio is None:
            return 0.0 if self.handler else 1.0
        return self.log_sample_ratio

    @property
    def _base(self) -> str:
        if self.topic_pattern:
            return topics.base_of_pattern(self.topic_pattern, self.subscription_name)
        return f"{self.all_topics[0]}-{self.subscription_name}"

    def _derive(self, suffix: str) -> str:
        # Persistent even for a non-persistent topic, or every broker restart would drop copies.
        return topics.as_persistent(f"{self._base}-{suffix}")

    def _derive_former(self, suffix: str) -> str:
        if not self.topic_pattern:
            return ""
        base = topics.former_base_of_pattern(self.topic_pattern, self.subscription_name)
        return topics.as_persistent(f"{base}-{suffix}")

    def consumes(self, topic: str) -> bool:
        """Return whether a topic, by its full name, is one of those to consume."""
        if self.topic_pattern:
            return topics.matches_pattern(self.topic_pattern, topic)
        return topic in self.all_topics

    @field_validator("ack_timeout_seconds")
    @classmethod
    def _check_ack_timeout(cls, value: float) -> float:
        if 0 < value < 10:
            raise ValueError("must be 0 or at least 10")
        return value

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        chosen = [name for name in ("topic", "topics", "topic_pattern") if getattr(self, name)]
        if len(chosen) != 1:
            found = " and ".join(chosen) or "none"
            raise ValueError(f"one of topic, topics and topic_pattern must be set, not {found}")
        own = (self.retry_topic, self.dead_letter_topic, self.output_topic)
        named = [*self.all_topics, *own]
        if wrong := [topic for topic in named if topic and not topics.is_topic(topic)]:
            raise ValueError(f"not of the form persistent://a/b/c: {', '.join(map(repr, wrong))}")
        for name, topic in self._own_topics():
            if name != "output_topic" and topic.startswith("non-persistent://"):
                raise ValueError(f"{name} {topic} must be persistent, or messages would be lost")
        if self.topic_pattern:
            self._check_pattern()
        else:
            self._check_own_topics()
        return self

    def _check_pattern(self) -> None:
        try:
            re.compile(self.topic_pattern)
        except re.error as err:
            raise ValueError(f"topic_pattern is not a regular expression: {err}") from err
        for name, topic in self._own_topics():
            if topics.matches_pattern(self.topic_pattern, topic):
                raise ValueError(
                    f"topic_pattern matches the {name} {topic}, so messages sent there would "
                    f"be consumed again: set {name} to one that it does not match"
                )

    def _check_own_topics(self) -> None:
        own = self._own_topics()
        for name, topic in own:
            if topic in self.all_topics:
                raise ValueError(f"{name} {topic} is consumed itself: choose another")
        for number, (name, topic) in enumerate(own):
            for other, taken in own[:number]:
                if topic == taken:
                    raise ValueError(f"{other} and {name} are both {topic}")

    def _own_topics(self) -> list[tuple[str, str]]:
        """Return the topics that the app publishes to, by their settings."""
        own = []
        if self.retry_strategy is Strategy.RETRY_TOPIC:
            own.append(("retry_topic", self.retry_topic_name))
        if self.dead_letter is Switch.ENABLED:
            own.append(("dead_letter_topic", self.dead_letter_topic_name))
        if self.output_topic:
            own.append(("output_topic", topics.full_name(self.output_topic)))
        return own

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.retry_max_delay_seconds < self.retry_initial_delay_seconds:
            raise ValueError(
                "retry_max_delay_seconds must not be less than retry_initial_delay_seconds"
            )
        if self.schema_type is SchemaType.AVRO and not self.schema_file:
            raise ValueError("schema_type Avro needs schema_file")
        if self.schema_file and self.schema_type not in (SchemaType.JSON, SchemaType.AVRO):
            raise ValueError(f"schema_file has no effect with schema_type {self.schema_type}")
        if self.handler_batch and not (self.batch_max_messages and self.handler):
            raise ValueError("handler_batch needs handler and batch_max_messages")
        copies = self.retry_strategy is Strategy.RETRY_TOPIC or self.dead_letter is Switch.ENABLED
        if self.encryption_private_key_file and copies and not self.encryption_public_key_file:
            raise ValueError(
                "encryption_public_key_file must be set, or copies in the retry and dead-letter "
                "topics would not be encrypted"
            )
        return self
