"""One message, or a list of them, from receipt to settlement."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pulsar

from libs.common.telemetry import MessageSpan, Telemetry
from operators.pulsarconsumer.app.core.lines import is_sampled, render_line
from operators.pulsarconsumer.app.core.message import Mismatch as MismatchError
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.received import Received, receive_message, set_value
from operators.pulsarconsumer.app.schemas import DecodeFailed
from operators.pulsarconsumer.app.session import Source
from operators.pulsarconsumer.app.settings import Mismatch, Settings
from operators.pulsarconsumer.app.settle import Settler
from operators.pulsarconsumer.app.streams import MessageStream

SPAN_ATTRIBUTES = (
    "messaging.system",
    "messaging.destination.name",
    "messaging.destination.subscription.name",
    "messaging.message.id",
)
"""Attributes of spans that are exported, in the words of OpenTelemetry."""


class Fatal(Exception):
    """The app has to end: going on would do what the settings forbid."""


class Processor:
    """Log, handle and settle; threads may share it."""

    def __init__(
        self,
        settings: Settings,
        handler: Callable[[object], object],
        stream: MessageStream,
        settler: Settler,
        meters: Meters,
        telemetry: Telemetry,
    ) -> None:
        """Take what does the work; see Worker."""
        self._settings = settings
        self._handler = handler
        self._stream = stream
        self._settler = settler
        self._meters = meters
        self._telemetry = telemetry
        self._lines = settings.line_options
        self._logs = self._lines.sample_ratio > 0
        self._traced = telemetry.enabled

    def process(self, source: Source, raw: pulsar.Message) -> None:
        """Handle one message and settle it.

        Raises:
            Fatal: A payload is not what the schema says, and schema_on_mismatch is Fail.
        """
        message = self._accept(source, raw)
        if message is not None:
            self._handle(message, (message,))

    def process_list(self, source: Source, batch: Sequence[pulsar.Message]) -> None:
        """Handle messages by one call of the handler and settle each of them; raises likewise."""
        taken = [one for raw in batch if (one := self._accept(source, raw)) is not None]
        if taken:
            self._handle(taken, taken)

    def _accept(self, source: Source, raw: pulsar.Message) -> Received | None:
        """Make a message of what was received; one that has no value is settled at once."""
        self._meters.receive(source.name, time.time() - raw.publish_timestamp() / 1000)
        message = receive_message(source, raw, self._settler.count_tries)
        mismatch = self._decode(message) if source.session.payloads.decodes else ""
        if self._logs and is_sampled(self._lines, message.origin.message_id):
            message.read()
            self._stream.write(render_line(self._lines, message, time.time()))
        if mismatch:
            self._settle_mismatch(message, mismatch)
            return None
        return message

    def _decode(self, message: Received) -> str:
        """Set the value of a message, or say why it has none."""
        origin = message.origin
        try:
            payloads = message.source.session.payloads
            value = payloads.decode(message.raw, origin.topic, origin.schema_version)
        except DecodeFailed as err:
            set_value(message, None)
            return str(err)
        set_value(message, value)
        return ""

    def _settle_mismatch(self, message: Received, error: str) -> None:
        where = f"{message.topic} {message.message_id}"
        expected = self._settings.schema_type
        match self._settings.schema_on_mismatch:
            case Mismatch.SKIP:
                self._settler.succeed(message, "skipped")
            case Mismatch.DEAD_LETTER:
                self._settler.fail(message, MismatchError(f"is not {expected}: {error}"), {})
            case Mismatch.FAIL:
                raise Fatal(f"Message {where}: is not {expected}: {error}")

    def _handle(self, argument: object, taken: Sequence[Received]) -> None:
        """Call the handler for messages, in a span where there are any, and settle them."""
        if not self._traced:
            self._call(argument, taken, None)
            return
        first = taken[0]
        name = f"process {first.topic.rpartition('/')[2]}"
        values = ("pulsar", first.topic, self._settings.subscription_name, first.message_id)
        attributes = dict(zip(SPAN_ATTRIBUTES, values, strict=True))
        with self._telemetry.message_span(name, first.properties, attributes) as span:
            self._call(argument, taken, span)

    def _call(self, argument: object, taken: Sequence[Received], span: MessageSpan | None) -> None:
        try:
            self._meters.call(self._handler, argument)
        except (Exception, SystemExit) as err:  # noqa: BLE001  # Whatever it raises, it failed.
            if span:
                span.set_error(err)
            for message in taken:
                self._settler.fail(message, err, span.properties() if span else {})
            return
        for message in taken:
            self._settler.succeed(message)
