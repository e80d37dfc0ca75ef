"""The log of messages: a line for each, before it is handled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from operators.pulsarconsumer.app.core.lines import is_sampled, render_lines
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.schemas import DecodeFailed, Payloads, SchemaUnavailable
from operators.pulsarconsumer.app.settings import Settings
from operators.pulsarconsumer.app.streams import MessageStream
from slipway_handler import Message


class MessageLog:
    """A writer of the lines of messages."""

    def __init__(self, settings: Settings, payloads: Payloads, stream: MessageStream) -> None:
        """Initialize."""
        self._options = settings.line_options
        self._payloads, self._stream = payloads, stream

    def write(self, taken: Sequence[Received], now: float) -> None:
        """Write the lines of messages that were received at a time in seconds since 1970.

        Raises:
            OSError: The reader of the log has closed it.
        """
        options = self._options
        if options.sample_ratio <= 0:
            return
        messages = [self._build(message) for message in taken]
        messages = [each for each in messages if is_sampled(options, each.message_id)]
        self._stream.write(render_lines(options, messages, now))

    def _build(self, message: Received) -> Message:
        value: object = message.data
        if self._options.redacted:
            # Fields of the value are hidden.
            with suppress(DecodeFailed, SchemaUnavailable):
                value = self._payloads.decode(message)
        return message.build_message(value)
