"""Processes one message, or a list of messages, from receipt to acknowledgment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from libs.common.telemetry import Telemetry
from operators.pulsarconsumer.app.acknowledger import MessageAcknowledger
from operators.pulsarconsumer.app.core.attempts import AttemptTable
from operators.pulsarconsumer.app.core.faults import HandlerCrash, HandlerTimeout
from operators.pulsarconsumer.app.core.faults import Mismatch as MismatchError
from operators.pulsarconsumer.app.core.lines import is_sampled, render_lines
from operators.pulsarconsumer.app.core.slot import Slot
from operators.pulsarconsumer.app.held_messages import HeldMessages
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.lanes import Blocked
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.received import (
    RawMessage,
    Received,
    is_decoded,
    put_value,
    read_for_log,
    receive_message,
    set_attempt,
    set_value,
)
from operators.pulsarconsumer.app.schemas import DecodeFailed, Payloads, SchemaUnavailable
from operators.pulsarconsumer.app.settings import Mismatch, Settings
from operators.pulsarconsumer.app.source import Source
from operators.pulsarconsumer.app.streams import MessageStream
from slipway_handler import Output, PartialFailure, Pause
from slipway_handler.outputs import read_outputs

SPAN_ATTRIBUTES = (
    "messaging.system",
    "messaging.destination.name",
    "messaging.destination.subscription.name",
    "messaging.message.id",
)
"""Attributes of exported spans, according to the semantic conventions of OpenTelemetry."""

_COPY_SECONDS: Final = 10.0
"""Maximum time for storing the copy of a message whose handler timed out."""

type Unit = list[Received]
"""Messages that one call handles: one message, or a list for a handler of lists."""


class Fatal(Exception):
    """The app must exit: continuing would violate the settings."""


class Processor:
    """Logs, handles and finishes messages; thread-safe."""

    def __init__(
        self,
        settings: Settings,
        handler: Callable[[Any], object],
        stream: MessageStream,
        payloads: Payloads,
        acknowledger: MessageAcknowledger,
        held: HeldMessages,
        journal: Journal,
        attempts: AttemptTable,
        meters: Meters,
        telemetry: Telemetry,
        *,
        publish: Callable[[Output], None] | None = None,
        time: Callable[[], float] = time.time,
    ) -> None:
        """Initialize; see Worker for the other arguments.

        Args:
            attempts: Attempts of all consumers.
            publish: Publishes the result of the handler; None to ignore it.
            time: Returns the seconds since 1970.
        """
        self._publish = publish
        self._settings = settings
        self._handler = handler
        self._whole = settings.handler_batch
        self._stream = stream
        self._payloads, self._parse = payloads, payloads.parse
        self._decodes = payloads.decodes
        self._acknowledger = acknowledger
        self._held = held
        self._journal, self._shared = journal, attempts
        self._meters, self._took = meters, meters.took
        self._telemetry = telemetry
        self._lines = settings.line_options
        self._logs = self._lines.sample_ratio > 0
        # To hide fields of the payload in the log, the value must be decoded before the handler.
        self._decodes_early = self._decodes and self._logs and bool(self._lines.redacted)
        plain = not payloads.needs_writer and not self._decodes_early
        self._decode = self._decode_plainly if plain else self._decode_carefully
        self._traced = telemetry.enabled
        self._time = time
        self._timed_out: set[str] = set()

    def accept(self, source: Source, batch: Sequence[RawMessage]) -> list[Received]:
        """Build messages from received ones, and log their lines before any of them is handled.

        Raises:
            OSError: The reader of the message log has closed it.
        """
        now = self._time()
        count = len(batch)
        first = last = now - batch[0].publish_timestamp() / 1000
        if count > 1:
            last = now - batch[-1].publish_timestamp() / 1000
        self._meters.receive(source.label, count, first, last)
        taken = [receive_message(source, raw) for raw in batch]
        if self._logs:
            self._log(source, taken, now)
        return taken

    def process(self, message: Received, slot: Slot[Any]) -> Blocked[Received] | None:
        """Handle one message and finish it; return it if it waits for its next attempt.

        Raises:
            Fatal: A payload does not match the schema, and schema_on_mismatch is Fail.
        """
        # Each call costs about 0.1 us, so rarely needed functions are called only after a check.
        journal = self._journal
        shared = not self._shared.is_empty
        if shared or self._held.is_watching or journal.careful or journal.unsettled:
            done, waits = self._prepare(message)
            if done:
                return Blocked(waits) if waits is not None else None
        if self._decodes and not self._decode(message):
            waits = self._settle_undecoded(message, slot)
        elif self._traced or self._timed_out:
            waits = self._handle(message, message, slot)
        else:
            error = self._attempt(message, slot)
            if error is None:
                self._acknowledger.succeed(message)
                return None
            waits = self._fail(message, error, {}, slot)
        return None if waits is None else Blocked(waits)

    def process_list(self, unit: Unit, slot: Slot[Any]) -> Blocked[Unit] | None:
        """Handle messages in one call of the handler, and finish each; raises as `process`."""
        if not (self._decodes or self._must_prepare):
            fit, blocked = unit, None
        else:
            fit, blocked = self._sort_out(unit, slot)
        if not fit:
            return None if blocked is None else Blocked([blocked])
        if len(fit) == 1:
            waits = self._handle(fit, fit[0], slot)
            blocked = blocked or waits
            return None if blocked is None else Blocked([blocked])
        # After a crash, messages are handled one by one to find the message that causes the crash.
        handle = self._handle_each if self._journal.careful else self._handle_several
        found = handle(fit, slot)
        if blocked is None:
            return found
        return Blocked([blocked], [found.owner, *found.rest] if found else ())

    def time_out(self, message: Received, seconds: float) -> Received | None:
        """Finish a message whose handler timed out; return it if that is not possible now.

        The process must exit soon, because a running handler cannot be cancelled.
        """
        self._timed_out.add(message.identity)
        error = HandlerTimeout(f"not ended after {seconds:.0f} s")
        waits = self._acknowledger.fail(message, error, {})
        if waits is None or self._acknowledger.copier.wait_stored(message.identity, _COPY_SECONDS):
            return None
        return waits

    def _sort_out(self, unit: Unit, slot: Slot[Any]) -> tuple[Unit, Received | None]:
        """Return the messages to pass to the handler, and a message that blocks the others."""
        fit: Unit = []
        blocked: Received | None = None
        for message in unit:
            done, waits = False, None
            if self._must_prepare:
                done, waits = self._prepare(message)
            if not done and self._decodes and not self._decode(message):
                done, waits = True, self._settle_undecoded(message, slot)
            if not done:
                fit.append(message)
            blocked = blocked or waits
        return fit, blocked

    @property
    def _must_prepare(self) -> bool:
        return self._held.is_watching or self._journal.is_watching or not self._shared.is_empty

    def _prepare(self, message: Received) -> tuple[bool, Received | None]:
        """Return whether a message was finished without its handler, and the message that waits."""
        resume = self._held.take(message)
        if resume is not None:
            return True, resume(message)
        if self._held.pop_given_up(message.identity):
            return True, None
        crashes = self._journal.settle(message.identity) if self._journal.unsettled else 0
        if crashes:
            # An earlier process crashed at this message before it could be finished.
            attempt = message.origin.attempt + crashes - 1
            if not message.source.is_retry:
                # The broker may have counted the redelivery after a crash as well.
                known = self._held.attempts(message.identity) + crashes
                attempt = max(message.origin.attempt - 1, known)
            set_attempt(message, attempt)
            error = HandlerCrash("the process ended while it handled this message")
            return True, self._acknowledger.fail(message, error, {})
        if not self._shared.is_empty:
            done, waits = self._acknowledger.check_shared(message)
            if done:
                return True, waits
        if self._acknowledger.is_paused(monotonic()):
            return True, self._acknowledger.postpone(message)
        if self._journal.careful or self._shared.is_known(message.identity):
            self._journal.begin(threading.get_ident(), message.identity)
        return False, None

    def _log(self, source: Source, taken: Sequence[Received], now: float) -> None:
        """Log the lines of sampled messages."""
        options = self._lines
        if options.sample_ratio < 1:
            taken = [one for one in taken if is_sampled(options, one.message_id)]
        if self._decodes_early:
            for message in taken:
                self._decode(message)
        read_for_log(source, taken)
        self._stream.write(render_lines(options, taken, now))

    def _decode_plainly(self, message: Received) -> bool:
        """Decode a value without its writer's schema; see `_decode_carefully`."""
        if not message.data and self._payloads.is_tombstone(message.data, message.raw):
            put_value(message, None)
            return True
        try:
            put_value(message, self._parse(message.data))
        except Exception as err:  # noqa: BLE001  # Parsers raise many types.
            set_value(message, None, mismatch=type(err).__name__)
            return False
        return True

    def _decode_carefully(self, message: Received) -> bool:
        """Decode the value of a message, and return whether it has one."""
        # Otherwise, this check would cost more than decoding again.
        if self._decodes_early and is_decoded(message):
            return not message.mismatch and message.error is None
        payloads = self._payloads
        if not message.data and payloads.is_tombstone(message.data, message.raw):
            set_value(message, None)
            return True
        try:
            if payloads.needs_writer:
                origin = message.origin
                value = payloads.decode(message.data, origin.topic, origin.schema_version)
            else:
                value = payloads.decode(message.data)
        except DecodeFailed as err:
            set_value(message, None, mismatch=str(err))
            return False
        except SchemaUnavailable as err:
            self._meters.fail("schema")
            set_value(message, None, error=err)
            return False
        set_value(message, value)
        return True

    def _settle_undecoded(self, message: Received, slot: Slot[Any]) -> Received | None:
        if message.error is not None:
            return self._fail(message, message.error, {}, slot)
        where, error = f"{message.topic} {message.message_id}", message.mismatch
        expected = self._settings.schema_type
        match self._settings.schema_on_mismatch:
            case Mismatch.SKIP:
                self._acknowledger.succeed(message, "skipped")
                return None
            case Mismatch.DEAD_LETTER:
                fault = MismatchError(f"is not {expected}: {error}")
                return self._fail(message, fault, {}, slot)
            case Mismatch.FAIL:
                raise Fatal(f"Message {where}: is not {expected}: {error}")

    def _handle(self, argument: object, message: Received, slot: Slot[Any]) -> Received | None:
        """Call the handler for a message, within a span if tracing is on, and finish it."""
        error, headers = self._call(argument, message, slot)
        if error is not None:
            return self._fail(message, error, headers, slot)
        if not (self._timed_out and message.identity in self._timed_out):
            self._acknowledger.succeed(message)
        return None

    def _fail(
        self,
        message: Received,
        error: BaseException,
        headers: dict[str, str],
        slot: Slot[Any],
    ) -> Received | None:
        """Finish a message whose handler failed, unless its time-out has already finished it."""
        if self._timed_out and message.identity in self._timed_out:
            return None
        began = monotonic()
        waits = self._acknowledger.fail(message, error, headers)
        slot.seconds += monotonic() - began
        return waits

    def _handle_several(self, unit: Unit, slot: Slot[Any]) -> Blocked[Unit] | None:
        error, headers = self._call(unit, unit[0], slot)
        if error is None:
            for message in unit:
                self._acknowledger.succeed(message)
            return None
        failed = _find_failed(unit, error)
        if failed is not None:
            waiting = []
            for message in unit:
                if id(message) not in failed:
                    self._acknowledger.succeed(message)
                elif (waits := self._fail(message, error, headers, slot)) is not None:
                    waiting.append(waits)
            return Blocked([waiting[0]], [[each] for each in waiting[1:]]) if waiting else None
        # Perhaps only one of them fails, so handle them one by one.
        return self._handle_each(unit, slot)

    def _handle_each(self, unit: Unit, slot: Slot[Any]) -> Blocked[Unit] | None:
        """Handle each message of a list by itself."""
        blocked: Blocked[Unit] | None = None
        for number, message in enumerate(unit):
            waits: Received | None
            if self._acknowledger.is_paused(monotonic()):
                waits = self._acknowledger.postpone(message)
            else:
                if self._journal.careful:
                    self._journal.begin(slot.thread, message.identity)
                waits = self._handle([message], message, slot)
            if waits is not None and self._is_ordered(message):
                rest = unit[number + 1 :]
                return Blocked([waits], [rest] if rest else ())
            if waits is not None and blocked is None:
                blocked = Blocked([waits])
        return blocked

    def _is_ordered(self, message: Received) -> bool:
        """Return whether a message must be handled before later messages of the list."""
        return self._settings.keeps_order and not message.source.is_retry

    def _call(
        self, argument: object, message: Received, slot: Slot[Any]
    ) -> tuple[BaseException | None, dict[str, str]]:
        """Call the handler; return its exception, and properties that link copies to the trace."""
        if not self._traced:
            return self._attempt(argument, slot), {}
        name = f"process {message.topic.rpartition('/')[2]}"
        values = ("pulsar", message.topic, self._settings.subscription_name, message.message_id)
        attributes = dict(zip(SPAN_ATTRIBUTES, values, strict=True))
        with self._telemetry.message_span(name, message.properties, attributes) as span:
            error = self._attempt(argument, slot)
            if error is not None:
                span.set_error(error)
            return error, span.properties()

    def _attempt(self, argument: object, slot: Slot[Any]) -> BaseException | None:
        """Call the handler and return its exception; record the duration in slot and metrics."""
        slot.began = began = monotonic()
        error: BaseException | None = None
        try:
            result = self._handler(argument)
            if result is not None and self._publish is not None:
                for output in read_outputs(result):
                    self._publish(output)
        except BaseException as err:  # noqa: BLE001  # Any exception is a failed attempt.
            error = err
        slot.began = 0.0
        seconds = monotonic() - began
        slot.seconds += seconds
        self._took(seconds)
        if self._journal.has_entries:
            self._journal.end(slot.thread)
        return error


def _find_failed(unit: Unit, error: BaseException) -> set[int] | None:
    """Return the identities of the messages that an error names; None if it names none.

    A named message that is not in the list may be a copy of a failed message, for example from
    another process. Since the original is unknown, the error counts as naming none.
    """
    if isinstance(error, Pause):
        return {id(message) for message in unit}
    if not isinstance(error, PartialFailure):
        return None
    failed = {id(message) for message in error.failed}
    return failed if failed <= {id(message) for message in unit} else None
