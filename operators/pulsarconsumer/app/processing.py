"""One message, or a list of them, from receipt to settlement."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pulsar

from libs.common.telemetry import MessageSpan, Telemetry
from operators.pulsarconsumer.app.core.lines import is_sampled, render_lines
from operators.pulsarconsumer.app.core.message import Mismatch as MismatchError
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.received import (
    Received,
    read_for_log,
    receive_message,
    set_value,
)
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
        *,
        time: Callable[[], float] = time.time,
    ) -> None:
        """Take what does the work, see Worker, and what tells the seconds since 1970."""
        self._settings = settings
        self._handler = handler
        self._stream = stream
        self._settler = settler
        self._meters = meters
        self._telemetry = telemetry
        self._lines = settings.line_options
        self._logs = self._lines.sample_ratio > 0
        self._traced = telemetry.enabled
        self._time = time

    def accept(self, source: Source, batch: Sequence[pulsar.Message]) -> list[Received]:
        """Make messages of what was received, and write their lines before any is handled.

        Raises:
            OSError: Nobody reads the lines any more.
        """
        now, count_tries = self._time(), self._settler.count_tries
        times = [raw.publish_timestamp() for raw in batch]
        self._meters.receive(source.name, [now - time / 1000 for time in times])
        taken = [
            receive_message(source, raw, count_tries, time)
            for raw, time in zip(batch, times, strict=True)
        ]
        if source.session.payloads.decodes:
            for message in taken:
                self._decode(message)
        if self._logs:
            self._log(source, taken, now)
        return taken

    def process(self, message: Received) -> None:
        """Handle one message and settle it.

        Raises:
            Fatal: A payload is not what the schema says, and schema_on_mismatch is Fail.
        """
        if message.mismatch:
            self._settle_mismatch(message)
        else:
            self._handle(message, (message,))

    def process_list(self, batch: Sequence[Received]) -> None:
        """Handle messages by one call of the handler and settle each of them; raises likewise."""
        for message in batch:
            if message.mismatch:
                self._settle_mismatch(message)
        if fit := [message for message in batch if not message.mismatch]:
            self._handle(fit, fit)

    def _log(self, source: Source, taken: Sequence[Received], now: float) -> None:
        """Write the lines of messages; those that are not sampled have none."""
        options = self._lines
        if options.sample_ratio < 1:
            taken = [one for one in taken if is_sampled(options, one.message_id)]
        read_for_log(source, taken)
        self._stream.write(render_lines(options, taken, now))

    def _decode(self, message: Received) -> None:
        """Set the value of a message, or say why it has none."""
        origin = message.origin
        try:
            payloads = message.source.session.payloads
            value = payloads.decode(message.raw, origin.topic, origin.schema_version)
        except DecodeFailed as err:
            set_value(message, None, str(err))
        else:
            set_value(message, value)

    def _settle_mismatch(self, message: Received) -> None:
        where, error = f"{message.topic} {message.message_id}", message.mismatch
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
