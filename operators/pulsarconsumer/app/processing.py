"""Handles messages that a thread has taken: decodes them, calls the handler, and decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from libs.common.telemetry import Telemetry
from operators.pulsarconsumer.app.acknowledger import MessageAcknowledger
from operators.pulsarconsumer.app.core.faults import HandlerCrash, HandlerTimeout
from operators.pulsarconsumer.app.core.faults import Mismatch as MismatchError
from operators.pulsarconsumer.app.core.states import State
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.memory import Memory, Unit
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.pool import Slot
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.schemas import DecodeFailed, Payloads, SchemaUnavailable
from operators.pulsarconsumer.app.settings import Mismatch, Settings
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


class Fatal(Exception):
    """The app must exit: continuing would violate the settings."""


class Processor:
    """Handles messages; thread-safe."""

    def __init__(
        self,
        settings: Settings,
        handler: Callable[[Any], object],
        payloads: Payloads,
        acknowledger: MessageAcknowledger,
        memory: Memory,
        journal: Journal,
        meters: Meters,
        telemetry: Telemetry,
        publish: Callable[[Output], None] | None = None,
    ) -> None:
        """Initialize; see Worker for the other arguments.

        Args:
            publish: Publishes the result of the handler; None to ignore it.
        """
        self._settings, self._handler, self._publish = settings, handler, publish
        self._payloads, self._acknowledger = payloads, acknowledger
        self._memory, self._journal = memory, journal
        self._meters, self._telemetry = meters, telemetry

    def process(self, unit: Unit, slot: Slot) -> None:
        """Handle messages of one receipt; those that this does not handle stay in the handler.

        Raises:
            Fatal: A payload does not match the schema, and schema_on_mismatch is Fail.
        """
        ready: Unit = []
        for message in unit:
            if self._prepare(message, slot):
                ready.append(message)
            elif message.state is State.WAITING and message.group:
                break
        # After a crash, messages are handled one by one to find the message that causes the crash.
        if len(ready) > 1 and not self._journal.careful:
            self._handle_several(ready, slot)
        else:
            self._handle_each(ready, slot)

    def time_out(self, message: Received, seconds: float) -> bool:
        """Finish a message whose handler timed out; return False if it still waits for its copy.

        The process must exit soon, because a running handler cannot be cancelled.
        """
        error = HandlerTimeout(f"not ended after {seconds:.0f} s")
        self._acknowledger.fail(message, error, {})
        deadline = time.monotonic() + _COPY_SECONDS
        while message.state is State.COPIED and time.monotonic() < deadline:
            time.sleep(0.01)
        return message.state is not State.COPIED

    def _prepare(self, message: Received, slot: Slot) -> bool:
        """Return whether the handler must be called for a message, and decode it."""
        crashes = self._journal.settle(message.identity)
        if crashes:
            # An earlier process crashed at this message before it could be finished.
            attempt = message.attempt + crashes - 1
            if not message.source.is_retry:
                # The attempts that consumers share may include the crashes already.
                known = self._memory.attempts(message.identity) + crashes
                attempt = max(message.attempt - 1, known)
            message.attempt = attempt
            error = HandlerCrash("the process ended while it handled this message")
            self._acknowledger.fail(message, error, {})
            return False
        if self._acknowledger.check_shared(message):
            return False
        if self._journal.careful or self._acknowledger.has_failed_elsewhere(message):
            self._journal.begin(slot.thread, message.identity)
        try:
            value = self._payloads.decode(message)
        except SchemaUnavailable as err:
            self._meters.fail("schema")
            self._acknowledger.fail(message, err, {})
            return False
        except DecodeFailed as err:
            self._settle_mismatch(message, str(err))
            return False
        message.build_message(value)
        return True

    def _settle_mismatch(self, message: Received, error: str) -> None:
        text = f"is not {self._settings.schema_type}: {error}"
        match self._settings.schema_on_mismatch:
            case Mismatch.SKIP:
                self._acknowledger.succeed(message, "skipped")
            case Mismatch.DEAD_LETTER:
                self._acknowledger.fail(message, MismatchError(text), {})
            case Mismatch.FAIL:
                origin = message.origin
                raise Fatal(f"Message {origin.topic} {origin.message_id}: {text}")

    def _handle_several(self, unit: Unit, slot: Slot) -> None:
        error, headers = self._call([each.message for each in unit], unit[0], slot)
        failed = _find_failed(unit, error)
        if failed is None:
            # Perhaps only one of them fails, so handle them one by one.
            self._handle_each(unit, slot)
            return
        for message in unit:
            if error is None or id(message.message) not in failed:
                self._acknowledger.succeed(message)
            else:
                self._acknowledger.fail(message, error, headers)

    def _handle_each(self, unit: Unit, slot: Slot) -> None:
        """Handle each message by itself, until later ones must wait for one of them."""
        for message in unit:
            if self._memory.is_paused(monotonic()):
                return
            if self._journal.careful:
                self._journal.begin(slot.thread, message.identity)
            argument = [message.message] if self._settings.handler_batch else message.message
            error, headers = self._call(argument, message, slot)
            if error is None:
                self._acknowledger.succeed(message)
            else:
                self._acknowledger.fail(message, error, headers)
            if message.group and message.state is not State.DONE:
                return

    def _call(
        self, argument: object, message: Received, slot: Slot
    ) -> tuple[BaseException | None, dict[str, str]]:
        """Call the handler; return its exception, and properties that link copies to the trace."""
        if not self._telemetry.enabled:
            return self._attempt(argument, slot), {}
        shown = message.message
        assert shown is not None
        name = f"process {shown.topic.rpartition('/')[2]}"
        values = ("pulsar", shown.topic, self._settings.subscription_name, shown.message_id)
        attributes = dict(zip(SPAN_ATTRIBUTES, values, strict=True))
        with self._telemetry.message_span(name, shown.properties, attributes) as span:
            error = self._attempt(argument, slot)
            if error is not None:
                span.set_error(error)
            return error, span.properties()

    def _attempt(self, argument: object, slot: Slot) -> BaseException | None:
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
        self._meters.took(monotonic() - began)
        if self._journal.has_entries:
            self._journal.end(slot.thread)
        return error


def _find_failed(unit: Unit, error: BaseException | None) -> set[int] | None:
    """Return the identities of the messages that an error names; None if it names none.

    A named message that is not in the list may be a copy of a failed message, for example from
    another process. Since the original is unknown, the error counts as naming none.
    """
    if error is None:
        return set()
    known = {id(message.message) for message in unit}
    if isinstance(error, Pause):
        return known
    if not isinstance(error, PartialFailure):
        return None
    failed = {id(message) for message in error.failed}
    return failed if failed <= known else None
