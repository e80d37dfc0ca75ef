"""The consumer of one topic, which resubscribes independently of other topics."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pulsar
import structlog

from operators.pulsarconsumer.app.client import CredentialsMissing
from operators.pulsarconsumer.app.connection import Connection, attempt
from operators.pulsarconsumer.app.core.retry import Strategy
from operators.pulsarconsumer.app.received import RawMessage
from operators.pulsarconsumer.app.receiver import MANY_MILLISECONDS, MessageReceiver, count_many
from operators.pulsarconsumer.app.schemas import Payloads
from operators.pulsarconsumer.app.settings import Settings, SubscriptionType

BROKEN_SECONDS: Final = 30.0
"""Time without connection after which a consumer is replaced; before, the client reconnects."""
SILENT_SECONDS: Final = 30.0
"""Time after which a consumer that has received nothing since it connected is replaced, once.

If a topic is unloaded while a consumer subscribes, brokers can lose the consumer without telling
the client (apache/pulsar#16246).
"""
CHECK_SECONDS: Final = 0.1
"""Time between two checks of the connection."""
SENT_BACK_MILLISECONDS: Final = 1000
"""Time after which the broker delivers a message again that was sent back."""
PROBE_SECONDS: Final = 60.0
"""Time between two attempts to subscribe to partitions that could not be subscribed to."""

type Topics = str | list[str] | re.Pattern[str]

log = structlog.get_logger("source")


class Source:
    """The consumer of one topic, of the topics of a pattern, or of the retry topic.

    Attributes:
        label: `topic` or `retry`, for metrics.
        name: The topic or the pattern.
        is_retry: Whether its messages are copies from the retry topic.
        is_durable: Whether the broker keeps its messages until they are acknowledged.
        redelivers_in_order: Whether the broker redelivers messages to this consumer only.
        is_optional: Whether the app works without it: it looks for a retry topic of an earlier
            release, which most installations do not have.
        acknowledge: Acknowledges a message of this consumer or of the previous one; raises
            pulsar.PulsarException if it is closed.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        payloads: Payloads,
        topics: Topics,
        *,
        is_retry: bool = False,
    ) -> None:
        """Initialize; `open` subscribes."""
        self.is_retry = is_retry
        self.is_optional = is_retry and isinstance(topics, re.Pattern)
        self.acknowledge: Callable[[RawMessage], object] = _refuse
        self._settings, self._connection, self._payloads = settings, connection, payloads
        self._topics = topics
        self.name = topics.pattern if isinstance(topics, re.Pattern) else str(topics)
        self.label = "retry" if self.is_retry else "topic"
        self.is_durable = not self.name.startswith("non-persistent://")
        self.redelivers_in_order = (
            not is_retry and settings.subscription_type is not SubscriptionType.SHARED
        )
        self._closed_because = "not subscribed yet"
        self._consumer: pulsar.Consumer | None = None
        self._receiver: MessageReceiver | None = None
        self._connected_at = self._checked_at = 0.0
        self._is_due = self._is_silent = False
        self._silent_at = math.inf
        self._missing: list[str] = []
        self._partitions = 0
        self._probed_at = 0.0
        self._has_begun = False
        self._lock = threading.Lock()

    @property
    def is_connected(self) -> bool:
        """Whether the consumer is connected to all brokers of its topics."""
        consumer = self._consumer
        return consumer is not None and bool(consumer.is_connected())

    @property
    def is_open(self) -> bool:
        """Whether a consumer exists, connected or not."""
        return self._consumer is not None

    @property
    def problem(self) -> str:
        """Why no messages, or not all messages, can be received now; empty if all can.

        It is derived from the state of the consumer, because the thread of the source may be
        waiting for a handler when the connection is lost.
        """
        if not self.is_open:
            return self._closed_because
        if self._is_silent:
            return "no message since it connected; the broker may have lost the consumer"
        if self._missing:
            return f"no access to {', '.join(self._missing)}"
        return "" if self.is_connected else "not connected to the broker"

    def open(self) -> None:
        """Subscribe.

        Raises:
            pulsar.PulsarException: The broker is unreachable or refuses.
            CredentialsMissing: A file with credentials cannot be read.
        """
        try:
            consumer = self._subscribe(self._topics)
            self._missing = []
        except pulsar.PulsarException:
            found = self._subscribe_to_some()
            if found is None:
                raise
            consumer = found
        self._consumer, self.acknowledge = consumer, consumer.acknowledge
        self._receiver = MessageReceiver(consumer, self._settings)
        self._connected_at = self._probed_at = time.monotonic()
        if self._is_silent:
            self._silent_at = math.inf
        else:
            self.expect_message()
        self._is_due = self._is_silent = False

    def expect_message(self) -> None:
        """Record that the source has connected, or will, so that it must prove that it receives."""
        if self.is_durable:
            self._silent_at = time.monotonic() + SILENT_SECONDS

    def check(self, now: float) -> bool:
        """Return whether the source must resubscribe; called for each receipt.

        The result stays True until `open`: the caller checks it while it waits for a handler, and
        again to find out why the wait has ended.
        """
        if self._consumer is None:
            return False
        if not 0 <= now - self._checked_at < CHECK_SECONDS and not self._is_due:
            self._checked_at = now
            self._is_due = self._find_due(now)
        return self._is_due

    def _find_due(self, now: float) -> bool:
        if self._missing and now - self._probed_at > PROBE_SECONDS and self._probe(now):
            return True
        if self.is_connected:
            self._connected_at = now
            return False
        return now - self._connected_at > BROKEN_SECONDS

    def receive(self, *, many: bool) -> Sequence[RawMessage]:
        """Return received messages; see `MessageReceiver.receive`.

        Raises:
            pulsar.Timeout: No message arrived.
            pulsar.PulsarException: The connection is broken.
        """
        assert self._receiver is not None
        try:
            found = self._receiver.receive(many=many)
        except pulsar.Timeout:
            if time.monotonic() > self._silent_at and self.is_connected:
                self._is_due = self._is_silent = True
            raise
        self._silent_at = math.inf
        return found

    def send_back(self, raw: RawMessage) -> None:
        """Let the broker deliver a message again, to any consumer of a shared subscription."""
        consumer = self._consumer
        if consumer is not None:
            consumer.negative_acknowledge(raw)

    def ask_again(self) -> None:
        """Ask the broker to deliver all unacknowledged messages again."""
        consumer, receiver = self._consumer, self._receiver
        if consumer is not None and receiver is not None:
            receiver.forget()
            consumer.redeliver_unacknowledged_messages()

    def close(self, problem: str = "closed") -> None:
        """Close the consumer; the broker redelivers unacknowledged messages."""
        self._closed_because = problem
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            attempt(consumer.close)

    def _subscribe_to_some(self) -> pulsar.Consumer | None:
        """Subscribe to the partitions that can be subscribed to, if there are any."""
        if not isinstance(self._topics, str):
            return None
        partitions = self._connection.client().get_topic_partitions(self._topics)
        if partitions == [self._topics]:
            return None
        good = [each for each in partitions if self._can_subscribe(each)]
        if not good:
            return None
        self._missing = [each for each in partitions if each not in good]
        self._partitions = len(partitions)
        log.error("Some partitions are not connected", topic=self.name, missing=self._missing)
        return self._subscribe(good)

    def _can_subscribe(self, topic: str) -> bool:
        try:
            self._subscribe(topic).close()
        except pulsar.PulsarException as err:
            log.warning("Cannot subscribe", topic=topic, error=describe(err))
            return False
        return True

    def _probe(self, now: float) -> bool:
        self._probed_at = now
        if any(self._can_subscribe(each) for each in self._missing):
            return True
        try:
            # The client detects new partitions only of a topic, not of a list of partitions.
            found = self._connection.client().get_topic_partitions(str(self._topics))
        except SUBSCRIBE_ERRORS as err:
            log.warning("Cannot find partitions", topic=self.name, error=describe(err))
            return False
        return len(found) > self._partitions

    def _subscribe(self, topics: Topics) -> pulsar.Consumer:
        settings = self._settings
        kind = pulsar.ConsumerType.__members__[settings.subscription_type]
        position = pulsar.InitialPosition.__members__[settings.initial_position]
        options: dict[str, object]
        if self.is_retry:
            # Only shared subscriptions support delayed messages.
            kind, position = pulsar.ConsumerType.Shared, pulsar.InitialPosition.Earliest
            options = {"schema": self._payloads.copies_schema}
        else:
            options = self._options_of_topic()
        if isinstance(topics, re.Pattern) and position is pulsar.InitialPosition.Latest:
            # The position is that of the topics that exist now. The client finds topics up to a
            # minute after their creation, and their first messages must not be skipped.
            if not self._has_begun:
                self._subscribe_at(topics, kind, position, options).close()
                self._has_begun = True
            position = pulsar.InitialPosition.Earliest
        return self._subscribe_at(topics, kind, position, options)

    def _subscribe_at(
        self,
        topics: Topics,
        kind: pulsar.ConsumerType,
        position: pulsar.InitialPosition,
        options: Mapping[str, object],
    ) -> pulsar.Consumer:
        settings = self._settings
        return self._connection.client().subscribe(
            topics,
            settings.subscription_name,
            consumer_type=kind,
            initial_position=position,
            batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(
                count_many(settings), settings.batch_max_bytes, MANY_MILLISECONDS
            ),
            receiver_queue_size=settings.receiver_queue_size,
            consumer_name=settings.name or None,
            negative_ack_redelivery_delay_ms=SENT_BACK_MILLISECONDS,
            batch_index_ack_enabled=settings.batch_index_ack,
            crypto_key_reader=self._connection.build_key_reader(),
            crypto_failure_action=pulsar.ConsumerCryptoFailureAction.__members__[
                settings.encryption_on_failure.name
            ],
            **options,
        )

    def _options_of_topic(self) -> dict[str, object]:
        settings = self._settings
        policy = None
        if settings.subscription_type is SubscriptionType.KEY_SHARED:
            policy = pulsar.ConsumerKeySharedPolicy(
                allow_out_of_order_delivery=settings.key_shared_allow_out_of_order
            )
        return {
            "schema": self._payloads.schema,
            "key_shared_policy": policy,
            "is_read_compacted": settings.read_compacted,
            "replicate_subscription_state_enabled": settings.replicate_subscription_state,
            "unacked_messages_timeout_ms": round(settings.ack_timeout_seconds * 1000) or None,
        }


def build_sources(
    settings: Settings,
    connection: Connection,
    payloads: Payloads,
) -> tuple[Source, ...]:
    """Build the source of each topic, and of the retry topic."""
    retries: list[Topics] = []
    if settings.retry_strategy is Strategy.RETRY_TOPIC:
        retries.append(settings.retry_topic_name)
    if former := settings.former_retry_topic_name:
        # A pattern, because subscribing to its name would create it.
        retries.append(re.compile(re.escape(former)))
    topics: list[Topics] = list(settings.all_topics)
    if settings.topic_pattern:
        topics = [re.compile(settings.topic_pattern)]
    return tuple(
        Source(settings, connection, payloads, each, is_retry=is_retry)
        for group, is_retry in ((retries, True), (topics, False))
        for each in group
    )


def _refuse(_raw: RawMessage) -> None:
    raise pulsar.AlreadyClosed("the consumer is closed")


def describe(err: Exception) -> str:
    """Return an error of the client as text."""
    text = f"{type(err).__name__}: {err}"
    if isinstance(err, pulsar.Timeout):
        # The client retries until its time-out, and then does not report the original error.
        return f"{text}; the broker cannot be reached, or refuses the credentials"
    return text


SUBSCRIBE_ERRORS: Final = (pulsar.PulsarException, CredentialsMissing)
"""Errors that `open` raises."""
