"""Receives messages from the client: one at a time, or in bursts if many wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Final

import pulsar

from operators.pulsarconsumer.app.received import RawMessage
from operators.pulsarconsumer.app.settings import Settings

POLL_MILLISECONDS: Final = 200
"""Time that a receipt waits for the first message."""
_RUN: Final = 100
"""Number of messages after which the rate is measured."""
_MANY_PER_SECOND: Final = 1000
"""Rate above which messages are received in bursts."""
_BURST: Final = 100
_BURST_MILLISECONDS: Final = 1
_LENGTH: Final = methodcaller("length")


def build_batch_policy(settings: Settings) -> pulsar.ConsumerBatchReceivePolicy:
    """Build the batch policy of the client: from the settings, or for bursts."""
    # The client requests more messages from the broker only after half of its queue was taken, so a
    # batch could wait for its last messages in vain. `MessageReceiver` implements the time-out.
    return pulsar.ConsumerBatchReceivePolicy(
        settings.batch_max_messages or _burst_of(settings),
        settings.batch_max_bytes,
        _BURST_MILLISECONDS,
    )


class MessageReceiver:
    """A receiver of the messages of one consumer.

    Bursts cost less for each message. They are used only while more than 1,000 messages per second
    are received and handled, so that no message waits long for those before it.
    """

    def __init__(
        self,
        consumer: Any,
        settings: Settings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize with a native consumer that uses the policy of `build_batch_policy`."""
        self._consumer = consumer
        self._most = settings.batch_max_messages
        self._most_bytes = settings.batch_max_bytes
        self._batch_seconds = settings.batch_timeout_milliseconds / 1000
        # A handler of single messages does not need full lists, and cutting them costs time.
        self._fills = settings.handler_batch
        self._left: list[RawMessage] = []
        # A message of a burst waits for the others while its acknowledgment time-out runs.
        self._bursts = not settings.ack_timeout_seconds
        self._monotonic = monotonic
        self._many = False
        self._run = 0
        self._since = monotonic()

    def receive(self) -> Sequence[RawMessage]:
        """Return received messages, at least one.

        Raises:
            pulsar.Timeout: No message arrived.
            pulsar.PulsarException: The connection is broken.
        """
        if self._most:
            return self._receive_batch()
        come: Sequence[RawMessage] = self._consumer.batch_receive() if self._many else ()
        if not come:
            try:
                come = (self._consumer.receive(POLL_MILLISECONDS),)
            except pulsar.Timeout:
                self._many = False
                raise
        self._run += len(come)
        if self._run >= _RUN:
            now = self._monotonic()
            rate_is_high = self._run > (now - self._since) * _MANY_PER_SECOND
            self._many = self._bursts and rate_is_high
            self._run, self._since = 0, now
        return come

    def forget(self) -> None:
        """Drop the messages that were received for the next batch; the broker redelivers them."""
        self._left = []

    def _receive_batch(self) -> Sequence[RawMessage]:
        """Return a full batch, or the messages that arrived before the time-out of the batch."""
        come = self._left or list(self._consumer.batch_receive())
        if len(come) == self._most:
            self._left = []
            return come
        if not come:
            come = [self._consumer.receive(POLL_MILLISECONDS)]
        batch: list[RawMessage] = []
        size, until = 0, self._monotonic() + self._batch_seconds
        while True:
            room = self._most - len(batch)
            if batch and len(come) > room and not self._fills:
                self._left = come
                return batch
            part = come[:room]
            added = sum(map(_LENGTH, part))
            if size + added > self._most_bytes:
                part = self._cut(part, size, at_least=0 if batch else 1)
            batch += part
            size += added
            self._left = come[len(part) :]
            if self._left or len(batch) == self._most or self._monotonic() >= until:
                return batch
            come = list(self._consumer.batch_receive())

    def _cut(self, part: list[RawMessage], size: int, *, at_least: int) -> list[RawMessage]:
        """Return the first messages of a part that fit into a batch of some bytes."""
        for number, message in enumerate(part):
            size += message.length()
            if number >= at_least and size > self._most_bytes:
                return part[:number]
        return part


def _burst_of(settings: Settings) -> int:
    # The client requests more messages from the broker when half of its queue is empty.
    return max(1, min(_BURST, settings.receiver_queue_size // 2))
