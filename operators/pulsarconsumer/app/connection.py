"""The connection to Pulsar: a client that is renewed with its credentials, and copies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

import pulsar
import structlog

from operators.pulsarconsumer.app.client import CredentialsMissing, build_client
from operators.pulsarconsumer.app.core.topics import full_name
from operators.pulsarconsumer.app.received import RawMessage, read_text
from operators.pulsarconsumer.app.settings import Settings
from slipway_handler import Output, Pause

_ENCRYPTION_KEY: Final = "slipway"
_SEND_MILLISECONDS: Final = 30_000
_COPY_MILLISECONDS: Final = 5_000
"""Time-out for copies, which are sent again until they are stored."""
_PAUSE_SECONDS: Final = 5.0
"""Duration of the pause if an output cannot be published."""
_REFUSALS: Final = (
    pulsar.InvalidMessage,
    pulsar.InvalidTopicName,
    pulsar.IncompatibleSchema,
    pulsar.MessageTooBig,
)
"""Errors that are caused by the message, so that other messages can be published."""
_GONE: Final = (
    pulsar.AlreadyClosed,
    pulsar.ProducerFenced,
    pulsar.ProducerNotInitialized,
    pulsar.Timeout,
    pulsar.TopicNotFound,
)
"""Errors after which a producer is replaced: its topic was deleted or moved.

If a topic is unloaded while a producer is created, brokers can lose the producer without telling
the client, and each of its messages times out (apache/pulsar#16246).
"""

log = structlog.get_logger("connection")


class Connection:
    """A client and the producers of copies; thread-safe.

    Its requests raise pulsar.PulsarException if the broker cannot be reached, refuses, or may not
    have stored a message, and CredentialsMissing if a file with credentials cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        """Initialize; the first use connects."""
        self._settings = settings
        self._lock = threading.Lock()
        self._client: pulsar.Client | None = None
        self._producers: dict[str, pulsar.Producer] = {}
        # One lock for each topic, so that an unreachable topic does not block the others.
        self._creations: dict[str, threading.Lock] = {}
        self._is_stopped = False

    def client(self) -> pulsar.Client:
        """Return the client; raises pulsar.AlreadyClosed if the app is stopping."""
        with self._lock:
            if self._is_stopped:
                raise pulsar.AlreadyClosed("the app is stopping")
            if self._client is None:
                self._client = build_client(self._settings)
            return self._client

    def stop(self) -> None:
        """Refuse to send from now on."""
        self._is_stopped = True

    def close(self) -> None:
        """Close permanently."""
        self.stop()
        self.renew()

    def renew(self) -> None:
        """Close the client; the next one reads the credentials again."""
        with self._lock:
            client, self._client = self._client, None
            producers, self._producers = self._producers, {}
        for producer in producers.values():
            attempt(producer.close)
        if client is not None:
            attempt(client.close)

    def build_key_reader(self) -> pulsar.CryptoKeyReader | None:
        """Build the reader of the encryption keys; None without encryption."""
        settings = self._settings
        if not settings.encryption_private_key_file:
            return None
        return pulsar.CryptoKeyReader(
            settings.encryption_public_key_file, settings.encryption_private_key_file
        )

    def send_copy(
        self,
        topic: str,
        message: RawMessage,
        properties: Mapping[str, str],
        delay: float = 0,
    ) -> None:
        """Send a copy of a message, and return after the broker has stored it.

        Args:
            topic: The retry topic or the dead-letter topic.
            message: Message to copy: payload, keys and event time.
            properties: Properties of the copy.
            delay: Seconds until the copy is delivered.
        """
        self._send(
            topic,
            message.data() or (None if message.has_null_value() else b""),
            properties=dict(properties),
            partition_key=read_text(message.partition_key) or None,
            ordering_key=read_text(message.ordering_key) or None,
            event_timestamp=message.event_timestamp() or None,
            deliver_after=timedelta(seconds=delay) if delay > 0 else None,
        )

    def publish_record(self, topic: str, data: bytes) -> None:
        """Publish a record of attempts, and return after the broker has stored it."""
        self._send(topic, data)

    def provide(self, topic: str) -> None:
        """Create the topic of attempts, with the subscription that keeps its records."""
        self._subscribe_to_records(topic).close()

    def acknowledge_until(self, topic: str, position: pulsar.MessageId) -> None:
        """Acknowledge the records of attempts up to one, so that the broker deletes them."""
        consumer = self._subscribe_to_records(topic)
        try:
            consumer.acknowledge_cumulative(position)
        finally:
            consumer.close()

    def _subscribe_to_records(self, topic: str) -> pulsar.Consumer:
        return self.client().subscribe(
            topic,
            self._settings.subscription_name,
            # Several consumers may do this, and only this type acknowledges up to a message.
            consumer_type=pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1,
        )

    def publish(self, output: Output) -> None:
        """Publish the output of a handler, and return after the broker has stored it.

        Raises:
            Pause: The broker cannot store the output now.
            pulsar.PulsarException: The broker refuses this output.
        """
        data = output.data.encode() if isinstance(output.data, str) else output.data
        topic = full_name(output.topic or self._settings.output_topic)
        try:
            self._send(
                topic,
                data,
                properties=dict(output.properties),
                partition_key=output.key or None,
                event_timestamp=output.event_time or None,
            )
        except _REFUSALS:
            raise
        except (pulsar.PulsarException, CredentialsMissing) as err:
            reason = f"cannot publish to {topic}: {type(err).__name__}: {err}"
            raise Pause(_PAUSE_SECONDS, reason) from err

    def _send(self, topic: str, data: bytes | None, **options: object) -> None:
        producer = self._find_producer(topic)
        if self._is_stopped:
            raise pulsar.AlreadyClosed("the app is stopping")
        try:
            producer.send(data, **options)
        except _GONE:
            with self._lock:
                if self._producers.get(topic) is producer:
                    del self._producers[topic]
            attempt(producer.close)
            raise

    def close_producer(self, topic: str) -> None:
        """Close the producer of a topic, so that running requests fail; the next one is new."""
        with self._lock:
            producer = self._producers.pop(topic, None)
        if producer is not None:
            attempt(producer.close)

    def _find_producer(self, topic: str) -> pulsar.Producer:
        producer = self._producers.get(topic)
        if producer is not None:
            return producer
        with self._lock:
            creation = self._creations.setdefault(topic, threading.Lock())
        with creation:
            producer = self._producers.get(topic)
            if producer is not None:
                return producer
            client = self.client()
            producer = self._create_producer(client, topic)
            with self._lock:
                if self._client is client:
                    self._producers[topic] = producer
            return producer

    def _create_producer(self, client: pulsar.Client, topic: str) -> pulsar.Producer:
        settings = self._settings
        is_copy = topic in (settings.retry_topic_name, settings.dead_letter_topic_name)
        if is_copy:
            self._create_subscription(client, topic)
        reader = self.build_key_reader() if settings.encryption_public_key_file else None
        return client.create_producer(
            topic,
            # A message that was received in chunks is too large to be sent without chunking.
            chunking_enabled=True,
            block_if_queue_full=True,
            send_timeout_millis=_COPY_MILLISECONDS if is_copy else _SEND_MILLISECONDS,
            crypto_key_reader=reader,
            encryption_key=_ENCRYPTION_KEY if reader else None,
        )

    def _create_subscription(self, client: pulsar.Client, topic: str) -> None:
        """Create a subscription on a topic; without one, the broker drops its messages."""
        settings, name = self._settings, self._settings.subscription_name
        if topic == settings.dead_letter_topic_name:
            name = settings.dead_letter_subscription or name
        client.subscribe(
            topic,
            name,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1,
        ).close()
        log.info(
            "Created a subscription that keeps copies of messages", topic=topic, subscription=name
        )


def attempt(close: Callable[[], object]) -> None:
    """Call a close function, and ignore that the object may already be closed."""
    try:
        close()
    except pulsar.PulsarException as err:
        log.debug("Closing failed; it may be closed already", error=str(err))
