"""One message, or a list of them, from receipt to settlement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import pulsar

from libs.common.telemetry import MessageSpan, Telemetry
from operators.pulsarconsumer.app.core.headers import Origin, parse_origin, strip_own
from operators.pulsarconsumer.app.core.lines import is_sampled, render_line
from operators.pulsarconsumer.app.core.message import Message
from operators.pulsarconsumer.app.core.message import Mismatch as MismatchError
from operators.pulsarconsumer.app.core.topics import without_partition
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.schemas import DecodeFailed, version_of
from operators.pulsarconsumer.app.session import Session, Source
from operators.pulsarconsumer.app.settings import Mismatch, Settings
from operators.pulsarconsumer.app.settle import Held, Settler
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

    def process(self, session: Session, source: Source, unit: Sequence[pulsar.Message]) -> None:
        """Handle messages and settle each of them.

        Raises:
            Fatal: A payload is not what the schema says, and schema_on_mismatch is Fail.
        """
        held = [one for raw in unit if (one := self._accept(session, source, raw)) is not None]
        if not held:
            return
        if self._telemetry.enabled:
            first = held[0].message
            name = f"process {first.topic.rpartition('/')[2]}"
            values = ("pulsar", first.topic, self._settings.subscription_name, first.message_id)
            attributes = dict(zip(SPAN_ATTRIBUTES, values, strict=True))
            with self._telemetry.message_span(name, first.properties, attributes) as span:
                self._handle(held, span)
        else:
            self._handle(held, None)

    def _accept(self, session: Session, source: Source, raw: pulsar.Message) -> Held | None:
        """Make a message of what was received; one that has no value is settled at once."""
        self._meters.receive(source.name, raw.publish_timestamp())
        properties = raw.properties()
        origin = self._find_origin(source, raw, properties)
        failed = False
        value: object = None
        try:
            value = session.payloads.decode(raw, origin.topic, origin.schema_version)
        except DecodeFailed as err:
            failed = True
            value = str(err)
        message = Message(
            raw.data(),
            None if failed else value,
            origin.topic,
            origin.message_id,
            raw.partition_key(),
            raw.ordering_key(),
            strip_own(properties) if source.is_retry else properties,
            raw.publish_timestamp(),
            raw.event_timestamp(),
            origin.attempt,
        )
        held = Held(session, source, raw, origin, message)
        if is_sampled(self._lines, origin.message_id):
            self._stream.write(render_line(self._lines, message, datetime.now(UTC)))
        if failed:
            self._settle_mismatch(held, str(value))
            return None
        return held

    def _find_origin(
        self, source: Source, raw: pulsar.Message, properties: Mapping[str, str]
    ) -> Origin:
        # The client shows (ledger,entry,partition,batch), in one call instead of four.
        shown = str(raw.message_id())[1:-1].replace(",", ":")
        topic = without_partition(raw.topic_name())
        if source.is_retry:
            return parse_origin(properties, Origin(topic, shown))
        tries = self._settler.count_tries(topic, shown, raw.redelivery_count())
        return Origin(topic, shown, version_of(raw), tries)

    def _settle_mismatch(self, held: Held, error: str) -> None:
        where = f"{held.origin.topic} {held.origin.message_id}"
        expected = self._settings.schema_type
        match self._settings.schema_on_mismatch:
            case Mismatch.SKIP:
                self._settler.succeed(held, "skipped")
            case Mismatch.DEAD_LETTER:
                self._settler.fail(held, MismatchError(f"is not {expected}: {error}"), {})
            case Mismatch.FAIL:
                raise Fatal(f"Message {where}: is not {expected}: {error}")

    def _handle(self, held: Sequence[Held], span: MessageSpan | None) -> None:
        error = self._call(held)
        if error is not None and span:
            span.set_error(error)
        for one in held:
            if error is None:
                self._settler.succeed(one)
            else:
                self._settler.fail(one, error, span.properties() if span else {})

    def _call(self, held: Sequence[Held]) -> BaseException | None:
        batch = self._settings.handler_batch
        argument = [one.message for one in held] if batch else held[0].message
        self._meters.begin()
        try:
            self._handler(argument)
        except (Exception, SystemExit) as err:  # noqa: BLE001  # Whatever it raises, it failed.
            return err
        finally:
            self._meters.end()
        return None
