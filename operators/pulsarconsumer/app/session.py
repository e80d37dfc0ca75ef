"""One connection: the consumers of the topics and of the retry topic, and where copies go."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pulsar
import structlog

from operators.pulsarconsumer.app.client import build_client
from operators.pulsarconsumer.app.core.retry import Strategy
from operators.pulsarconsumer.app.intake import build_batch_policy
from operators.pulsarconsumer.app.schemas import Payloads
from operators.pulsarconsumer.app.settings import (
    DecryptFailure,
    Settings,
    SubscriptionType,
)

TYPES: Final[Mapping[SubscriptionType, pulsar.ConsumerType]] = {
    SubscriptionType.EXCLUSIVE: pulsar.ConsumerType.Exclusive,
    SubscriptionType.SHARED: pulsar.ConsumerType.Shared,
    SubscriptionType.FAILOVER: pulsar.ConsumerType.Failover,
    SubscriptionType.KEY_SHARED: pulsar.ConsumerType.KeyShared,
}
_DECRYPT: Final[Mapping[DecryptFailure, pulsar.ConsumerCryptoFailureAction]] = {
    DecryptFailure.FAIL: pulsar.ConsumerCryptoFailureAction.FAIL,
    DecryptFailure.DISCARD: pulsar.ConsumerCryptoFailureAction.DISCARD,
    DecryptFailure.CONSUME: pulsar.ConsumerCryptoFailureAction.CONSUME,
}
# The app holds a message back for its delay and then asks for it at once; this is the least that
# the client's timer takes.
_NACK_MILLISECONDS: Final = 100
_ENCRYPTION_KEY: Final = "slipway"

log = structlog.get_logger("session")


@dataclass(frozen=True, slots=True)
class Source:
    """One consumer.

    Attributes:
        session: What it belongs to.
        name: `topic` or `retry`.
        consumer: The client's consumer.
    """

    session: Session
    name: str
    consumer: pulsar.Consumer

    @property
    def is_retry(self) -> bool:
        """Whether its messages are copies that came back."""
        return self.name == "retry"


class Session:
    """Hold a client with its consumers and producers; a broken one is replaced as a whole."""

    def __init__(self, settings: Settings) -> None:
        """Build the client; `open` subscribes.

        Raises:
            CredentialsMissing: A file of the credentials cannot be read.
            SchemaInvalid: The definition of the schema cannot be read.
        """
        self._settings = settings
        self.payloads = Payloads(settings)
        self._client = build_client(settings)
        self._producers: dict[str, pulsar.Producer] = {}
        self._lock = threading.Lock()
        self.sources: tuple[Source, ...] = ()
        self.broken = threading.Event()
        """Set when it has to be replaced, or ended: nothing more is begun then."""

    def open(self) -> None:
        """Subscribe to the retry topic, where there is one, and to the topics.

        Raises:
            pulsar.PulsarException: The broker refused or cannot be reached.
        """
        sources: list[Source] = []
        if self._settings.retry_strategy is Strategy.RETRY_TOPIC:
            # First, so that the subscription is there before the first copy.
            sources.append(Source(self, "retry", self._subscribe_retry()))
        sources.append(Source(self, "topic", self._subscribe_topics()))
        self.sources = tuple(sources)

    def is_connected(self) -> bool:
        """Tell whether all consumers are connected to their brokers."""
        return bool(self.sources) and all(source.consumer.is_connected() for source in self.sources)

    def send_copy(
        self,
        topic: str,
        message: pulsar.Message,
        properties: Mapping[str, str],
        delay: float = 0,
    ) -> None:
        """Send a message on, and return once the broker has stored it.

        Args:
            topic: The retry topic or the dead-letter topic.
            message: What is copied: payload, keys and time of the event.
            properties: Those of the copy.
            delay: Seconds before it is delivered.

        Raises:
            pulsar.PulsarException: It is not certain that it was stored.
        """
        self._find_producer(topic).send(
            message.data(),
            properties=dict(properties),
            partition_key=message.partition_key() or None,
            ordering_key=message.ordering_key() or None,
            event_timestamp=message.event_timestamp() or None,
            deliver_after=timedelta(seconds=delay) if delay > 0 else None,
        )

    def close(self) -> None:
        """Close everything; what is not acknowledged goes back to the broker."""
        for source in self.sources:
            _attempt(source.consumer.close)
        for producer in self._producers.values():
            _attempt(producer.close)
        _attempt(self._client.close)

    def _subscribe_topics(self) -> pulsar.Consumer:
        settings = self._settings
        topic: str | list[str] | re.Pattern[str]
        if settings.topic_pattern:
            topic = re.compile(settings.topic_pattern)
        else:
            named = list(settings.all_topics)
            topic = named if len(named) > 1 else named[0]
        policy = None
        if settings.subscription_type is SubscriptionType.KEY_SHARED:
            policy = pulsar.ConsumerKeySharedPolicy(
                allow_out_of_order_delivery=settings.key_shared_allow_out_of_order
            )
        return self._client.subscribe(
            topic,
            settings.subscription_name,
            consumer_type=TYPES[settings.subscription_type],
            schema=self.payloads.schema,
            initial_position=pulsar.InitialPosition.__members__[settings.initial_position],
            key_shared_policy=policy,
            is_read_compacted=settings.read_compacted,
            replicate_subscription_state_enabled=settings.replicate_subscription_state,
            unacked_messages_timeout_ms=round(settings.ack_timeout_seconds * 1000) or None,
            batch_receive_policy=build_batch_policy(self._settings),
            **self._common(),
        )

    def _subscribe_retry(self) -> pulsar.Consumer:
        return self._client.subscribe(
            self._settings.retry_topic_name,
            self._settings.subscription_name,
            # Only shared subscriptions wait for the time of a delayed message.
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            batch_receive_policy=build_batch_policy(self._settings),
            **self._common(),
        )

    def _common(self) -> dict[str, object]:
        settings = self._settings
        return {
            "receiver_queue_size": settings.receiver_queue_size,
            "consumer_name": settings.name or None,
            "negative_ack_redelivery_delay_ms": _NACK_MILLISECONDS,
            "batch_index_ack_enabled": settings.batch_index_ack,
            "crypto_key_reader": self._build_key_reader(),
            "crypto_failure_action": _DECRYPT[settings.encryption_on_failure],
        }

    def _build_key_reader(self) -> pulsar.CryptoKeyReader | None:
        settings = self._settings
        if not settings.encryption_private_key_file:
            return None
        return pulsar.CryptoKeyReader(
            settings.encryption_public_key_file, settings.encryption_private_key_file
        )

    def _find_producer(self, topic: str) -> pulsar.Producer:
        with self._lock:
            if topic not in self._producers:
                if topic == self._settings.dead_letter_topic_name:
                    self._keep_dead_letters(topic)
                reader = self._build_key_reader()
                self._producers[topic] = self._client.create_producer(
                    topic,
                    # What came in chunks may only leave in chunks.
                    chunking_enabled=True,
                    block_if_queue_full=True,
                    crypto_key_reader=reader,
                    encryption_key=_ENCRYPTION_KEY if reader else None,
                )
            return self._producers[topic]

    def _keep_dead_letters(self, topic: str) -> None:
        """Make the subscription without which the broker drops what is put there."""
        settings = self._settings
        name = settings.dead_letter_subscription or settings.subscription_name
        self._client.subscribe(
            topic,
            name,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1,
        ).close()
        log.info("Keeping dead letters", topic=topic, subscription=name)


def _attempt(close: object) -> None:
    assert callable(close)
    try:
        close()
    except pulsar.PulsarException as err:
        log.debug("Closing what was closed", error=str(err))
