"""Receives messages from the client: one at a time, or many."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from operators.pulsarconsumer.app.received import RawMessage
from operators.pulsarconsumer.app.settings import Settings

POLL_MILLISECONDS: Final = 200
"""Time that a receipt waits for the first message."""
_MANY: Final = 100
MANY_MILLISECONDS: Final = 1
"""Time that a receipt of many messages waits for the first of them."""


def count_many(settings: Settings) -> int:
    """Return the maximum number of messages that are received at a time."""
    # The client requests more messages from the broker when half of its queue is empty.
    return settings.batch_max_messages or max(1, min(_MANY, settings.receiver_queue_size // 2))


class MessageReceiver:
    """A receiver of the messages of one consumer."""

    def __init__(
        self,
        consumer: Any,
        settings: Settings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize with a consumer that receives at most `count_many` at a time."""
        self._consumer = consumer
        self._most = settings.batch_max_messages if settings.handler_batch else 0
        self._most_bytes = settings.batch_max_bytes
        self._list_seconds = settings.batch_timeout_milliseconds / 1000
        self._left: list[RawMessage] = []
        # A message waits for those before it while its acknowledgment time-out runs.
        self._may_take_many = not settings.ack_timeout_seconds or settings.batch_max_messages > 0
        self._monotonic = monotonic

    def receive(self, *, many: bool = True) -> Sequence[RawMessage]:
        """Return received messages, at least one.

        Args:
            many: Whether messages are handled so fast that many may be received at a time. Lists
                for a handler of lists are always received as the settings say.

        Raises:
            pulsar.Timeout: No message arrived.
            pulsar.PulsarException: The connection is broken.
        """
        if self._most:
            return self._receive_list()
        if many and self._may_take_many and (found := self._consumer.batch_receive()):
            return list(found)
        return [self._consumer.receive(POLL_MILLISECONDS)]

    def forget(self) -> None:
        """Drop the messages that were received for the next list; the broker redelivers them."""
        self._left = []

    def _receive_list(self) -> list[RawMessage]:
        """Return a full list, or the messages that arrived before the time-out of the list."""
        # The client requests more messages from the broker only after half of its queue was taken,
        # so its own time-out could wait for the last messages of a list in vain.
        come = self._left or list(self._consumer.batch_receive())
        come = come or [self._consumer.receive(POLL_MILLISECONDS)]
        found: list[RawMessage] = []
        size, until = 0, self._monotonic() + self._list_seconds
        while True:
            for number, raw in enumerate(come):
                length = len(raw.data())
                is_full = found and size + length > self._most_bytes
                if is_full or len(found) == self._most:
                    self._left = come[number:]
                    return found
                found.append(raw)
                size += length
            self._left = []
            if len(found) == self._most or self._monotonic() >= until:
                return found
            come = list(self._consumer.batch_receive())
