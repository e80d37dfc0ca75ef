"""Finishes messages after their handling: acknowledges, copies or keeps them.

A message is acknowledged only after its handler has returned, or after the broker has stored the
copy that replaces it. Until then it is kept in memory and handled again, and the broker keeps it as
well, in case this process ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import pulsar
import structlog

from libs.common.redaction import redact_text
from operators.pulsarconsumer.app.attempt_log import AttemptLog
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.copier import Copier
from operators.pulsarconsumer.app.core.faults import AttemptsUsed, HandlerCrash
from operators.pulsarconsumer.app.core.headers import (
    COPY_OF,
    build_dead_letter_properties,
    build_retry_properties,
)
from operators.pulsarconsumer.app.core.retry import DeadLetter, Retry, Strategy, plan_retry
from operators.pulsarconsumer.app.core.states import TRANSITIONS, Event, State
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.memory import Memory
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.received import Copy, Received, read_properties
from operators.pulsarconsumer.app.settings import Settings
from slipway_handler import Pause

_LONGEST_PAUSE: Final = 3600.0

log = structlog.get_logger("settle")


class MessageAcknowledger:
    """The part that acknowledges messages, keeps them for a retry, or copies them; thread-safe."""

    def __init__(
        self,
        settings: Settings,
        meters: Meters,
        memory: Memory,
        journal: Journal,
        connection: Connection,
        attempts: AttemptLog,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        roll: Callable[[], float] = random.random,
    ) -> None:
        """Initialize with the connection for copies, and random numbers that spread the delays."""
        self._settings = settings
        self._policy = settings.retry_policy
        self._meters, self._memory, self._journal = meters, memory, journal
        self._attempts, self._shared = attempts, attempts.table
        self._monotonic, self._roll = monotonic, roll
        self.copier = Copier(connection, settings.max_in_flight, self._finish_copied, meters.fail)
        """Sends copies."""
        meters.waiting.set_function(memory.count_waiting)
        meters.waiting_copies.set_function(memory.count_copied)

    def count_attempts(self, identity: str) -> int:
        """Return the number of failed attempts at a message of the topic itself.

        The redelivery count of the broker is not considered: it is always 0 with Exclusive and
        Failover, it is lost with the connection, and it counts deliveries without an attempt.
        """
        shared = 0 if self._shared.is_empty else self._shared.count(identity)
        return max(self._memory.attempts(identity), shared)

    def has_failed_elsewhere(self, message: Received) -> bool:
        """Return whether attempts at a message are shared with other consumers."""
        return self._shared.is_known(message.identity)

    def succeed(self, message: Received, result: str = "acknowledged") -> None:
        """Acknowledge a message that was handled."""
        self._acknowledge(message, Event.SUCCEEDED, result)

    def _acknowledge(self, message: Received, event: Event, result: str) -> None:
        """Acknowledge a message, and count the result of its handling."""
        if (message.state, event) not in TRANSITIONS:
            return  # Its call has timed out, or the broker does not have it any more.
        raw = message.raw
        try:
            message.source.acknowledge(raw)
        except pulsar.PulsarException as err:
            self._meters.fail("acknowledge")
            # The broker will redeliver the message. Its id is remembered, so it is then
            # acknowledged without calling the handler again.
            message_id = message.origin.message_id
            log.warning("Cannot acknowledge", message_id=message_id, error=str(err))
        else:
            self._meters.settle(result)
        if not self._shared.is_empty or result == "dead_lettered":
            self._attempts.finish(message.identity, dead_lettered=result == "dead_lettered")
        self._memory.finish(message, event)
        if message.raw is not raw:
            # It was redelivered while it was being acknowledged.
            with suppress(pulsar.PulsarException):
                message.source.acknowledge(message.raw)

    def check_shared(self, message: Received) -> bool:
        """Consider the attempts of other consumers; return whether no attempt must follow."""
        if self._shared.is_empty:
            return False
        if self._shared.is_dead_lettered(message.identity):
            # The acknowledgment of another consumer was lost, or this one is not the active one.
            with suppress(pulsar.PulsarException):
                message.source.acknowledge(message.raw)
            self._memory.finish(message, Event.SUCCEEDED)
            return True
        made = self._shared.count(message.identity)
        message.attempt = max(message.attempt, made + 1)
        if made < self._policy.max_attempts:
            return False
        message.attempt = made
        error = AttemptsUsed("other consumers failed, or ended during an attempt")
        self.fail(message, error, {})
        return True

    def fail(self, message: Received, error: BaseException, headers: Mapping[str, str]) -> None:
        """Retry a message, or move it to the dead-letter topic.

        Args:
            message: The failed message.
            error: Exception of its handler.
            headers: Properties that connect copies to the trace.
        """
        if message.state is not State.IN_HANDLER:
            return  # It has timed out.
        if isinstance(error, Pause):
            self._pause(error)
            self._memory.fail(message, self._memory.paused_until, message.attempt)
            return
        decision = plan_retry(self._policy, message.attempt, error, self._roll())
        shown = _describe(error)
        origin = message.origin
        fields = {
            "topic": origin.topic,
            "message_id": origin.message_id,
            "attempt": message.attempt,
            "error": shown,
        }
        match decision:
            case DeadLetter(reason):
                log.error("Moving message to the dead-letter topic", reason=reason, **fields)
                self._replace(message, self._build_dead_letter(message, reason, shown, headers))
            case Retry(delay):
                log.warning("Retrying message", delay_seconds=round(delay, 3), **fields)
                if self._settings.retry_strategy is Strategy.RETRY_TOPIC:
                    self._replace(message, self._build_retry(message, delay, headers))
                else:
                    self._keep(message, error, delay)

    def _keep(self, message: Received, error: BaseException, delay: float) -> None:
        """Keep a message in memory until its next attempt."""
        self._meters.settle("retried")
        if not message.source.is_retry:
            self._journal.remember(message.identity, message.attempt)
        if not isinstance(error, HandlerCrash):  # It was counted at the start.
            self._attempts.add(message.identity)
        self._memory.fail(message, self._monotonic() + delay, message.attempt + 1)

    def _pause(self, error: Pause) -> None:
        now = self._monotonic()
        if not self._memory.is_paused(now):
            log.warning("Pausing consumption", seconds=error.seconds, reason=_describe(error))
        self._memory.pause(now + min(max(0.0, error.seconds), _LONGEST_PAUSE))

    def _build_retry(self, message: Received, delay: float, headers: Mapping[str, str]) -> Copy:
        properties = build_retry_properties(
            read_properties(message.raw), message.origin, self._settings.subscription_name, delay
        )
        # If the cursor is moved back, the message is copied a second time, which is no duplicate.
        properties[COPY_OF] = f"{message.identity}@{time.time_ns() // 1_000_000}"
        topic = self._settings.retry_topic_name
        return Copy(topic, {**properties, **headers}, "retry", "retried", delay)

    def _build_dead_letter(
        self, message: Received, reason: str, error: str, headers: Mapping[str, str]
    ) -> Copy:
        properties = build_dead_letter_properties(
            read_properties(message.raw),
            message.origin,
            self._settings.subscription_name,
            reason,
            error,
        )
        topic = self._settings.dead_letter_topic_name
        return Copy(topic, {**properties, **headers}, "dead_letter", "dead_lettered")

    def _replace(self, message: Received, copy: Copy) -> None:
        """Keep a message until its copy is stored; its handler is not called again."""
        if self._memory.replace(message) and not self.copier.send(message, copy):
            self._meters.fail(copy.operation)

    def _finish_copied(self, message: Received, copy: Copy) -> None:
        """Acknowledge a message whose copy is stored, unless the broker does not have it."""
        if message.state is not State.COPIED:
            return
        # Record the copy before the acknowledgment: if the process is killed in between, the broker
        # redelivers the message, which must not be copied twice.
        self._journal.remember_copied(message.identity)
        self._acknowledge(message, Event.STORED, copy.result)


def _describe(error: BaseException) -> str:
    """Return the text of an error of a handler, without secrets, as text that can be encoded."""
    name = type(error).__name__
    try:
        text = f"{name}: {error}"
    except Exception:  # noqa: BLE001  # The text of an error is code of the handler.
        text = name
    # A text can contain half of a character, for example of the JSON string "\\ud800".
    return redact_text(text.encode(errors="backslashreplace").decode())
