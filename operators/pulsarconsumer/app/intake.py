"""How messages are taken from the client: one at a time, or many while many wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import pulsar

from operators.pulsarconsumer.app.settings import Settings

POLL_MILLISECONDS: Final = 200
"""How long a receipt waits for the first message."""
_RUN: Final = 100
"""Messages after which the rate is looked at."""
_RUN_SECONDS: Final = 0.1
"""A run that took less is one of a consumer that many messages wait for."""
_BURST: Final = 100
_BURST_MILLISECONDS: Final = 1


def build_batch_policy(settings: Settings) -> pulsar.ConsumerBatchReceivePolicy:
    """Build how the client makes batches: as the settings ask, or for bursts."""
    if settings.batch_max_messages:
        return pulsar.ConsumerBatchReceivePolicy(
            settings.batch_max_messages,
            settings.batch_max_bytes,
            settings.batch_timeout_milliseconds,
        )
    return pulsar.ConsumerBatchReceivePolicy(
        _burst_of(settings), settings.batch_max_bytes, _BURST_MILLISECONDS
    )


class Intake:
    """Take messages from one consumer.

    To take them in bursts costs less for each, and is only done while more than a thousand a second
    come and are handled: then none waits long for those before it.
    """

    def __init__(
        self,
        consumer: pulsar.Consumer,
        settings: Settings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the consumer, which was subscribed with the policy of `build_batch_policy`."""
        self._consumer = consumer
        self._batched = settings.batch_max_messages > 0
        # A message of a burst waits for the others, and the time of an acknowledgment runs.
        self._bursts = not settings.ack_timeout_seconds
        self._full = _burst_of(settings)
        self._monotonic = monotonic
        self._many = self._batched
        self._run = 0
        self._since = monotonic()

    def receive(self) -> Sequence[pulsar.Message]:
        """Return what came, at least one message, or a batch that may be empty.

        Raises:
            pulsar.Timeout: Nothing came.
            pulsar.PulsarException: The connection is broken.
        """
        if self._many:
            batch: Sequence[pulsar.Message] = self._consumer.batch_receive()
            self._many = self._batched or len(batch) == self._full
            return batch
        message = self._consumer.receive(POLL_MILLISECONDS)
        self._run += 1
        if self._run == _RUN:
            now = self._monotonic()
            self._many = self._bursts and now - self._since < _RUN_SECONDS
            self._run, self._since = 0, now
        return (message,)


def _burst_of(settings: Settings) -> int:
    # The client asks the broker for more when half of its queue is empty.
    return max(1, min(_BURST, settings.receiver_queue_size // 2))
