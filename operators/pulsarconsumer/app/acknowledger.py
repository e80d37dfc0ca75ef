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
from dataclasses import replace
from typing import Final

import pulsar
import structlog

from libs.common.redaction import redact_text
from operators.pulsarconsumer.app.attempt_log import AttemptLog
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.copier import Copier, Copy
from operators.pulsarconsumer.app.core.faults import AttemptsUsed, HandlerCrash
from operators.pulsarconsumer.app.core.headers import (
    COPY_OF,
    build_dead_letter_properties,
    build_retry_properties,
)
from operators.pulsarconsumer.app.core.retry import DeadLetter, Retry, Strategy, plan_retry
from operators.pulsarconsumer.app.held_messages import HeldMessages
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.received import (
    Received,
    next_attempt,
    read_properties,
    set_attempt,
)
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
        held: HeldMessages,
        journal: Journal,
        connection: Connection,
        attempts: AttemptLog,
        *,
        wake: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        roll: Callable[[], float] = random.random,
    ) -> None:
        """Initialize.

        Args:
            settings: Settings of retries and topics.
            meters: Counts results.
            held: Messages that wait for their next attempt.
            journal: Records failed attempts.
            connection: Client for copies only.
            attempts: Shares failed attempts with other consumers.
            wake: Called if a message that waited for its copy is due.
            monotonic: Returns seconds of a monotonic clock.
            roll: Returns random numbers from 0 to 1, which spread the delays.
        """
        self._settings = settings
        self._policy = settings.retry_policy
        self._meters, self._settled = meters, meters.settle
        self._held, self._journal = held, journal
        self._attempts, self._shared = attempts, attempts.table
        self._wake, self._monotonic, self._roll = wake, monotonic, roll
        self.copier = Copier(connection, settings.max_in_flight, self._replaced, meters.fail)
        """Sends copies."""
        self.paused_until = 0.0
        """Time of the monotonic clock before which no message is handled."""
        meters.waiting.set_function(lambda: len(held))
        meters.waiting_copies.set_function(lambda: len(self.copier))

    def count_attempts(self, message: Received) -> int:
        """Return the number of the current attempt at a message of the topic itself, from 1.

        The redelivery count of the broker is not considered: it is always 0 with Exclusive and
        Failover, it is lost with the connection, and it counts deliveries without an attempt.
        """
        if self._shared.is_empty and not self._held.attempts_made:
            return 1
        known = self._held.attempts(message.identity) if self._held.attempts_made else 0
        shared = 0 if self._shared.is_empty else self._shared.count(message.identity)
        return max(known, shared) + 1

    def succeed(self, message: Received, result: str = "acknowledged") -> None:
        """Acknowledge a message, and count the result of its handling."""
        raw = message.raw
        try:
            message.source.acknowledge(raw)
        except pulsar.PulsarException as err:
            self._meters.fail("acknowledge")
            # The broker will redeliver the message. Its id is remembered, so it is then
            # acknowledged without calling the handler again.
            log.warning("Cannot acknowledge", message_id=message.message_id, error=str(err))
        else:
            self._settled[result](None)
        if not self._shared.is_empty or result == "dead_lettered":
            self._attempts.finish(message.identity, dead_lettered=result == "dead_lettered")
        self._held.finished(message.identity)
        if message.raw is not raw:
            # It was redelivered while it was being acknowledged.
            with suppress(pulsar.PulsarException):
                message.source.acknowledge(message.raw)

    def check_shared(self, message: Received) -> tuple[bool, Received | None]:
        """Consider the attempts of other consumers at a message.

        Returns:
            Whether the message is finished without another attempt, and the message if it waits in
            memory.
        """
        if self._shared.is_dead_lettered(message.identity):
            # The acknowledgment of another consumer was lost, or this one is not the active one.
            with suppress(pulsar.PulsarException):
                message.source.acknowledge(message.raw)
            self._held.finished(message.identity)
            return True, None
        made = self._shared.count(message.identity)
        if made >= message.attempt:
            set_attempt(message, made + 1)
        if made < self._policy.max_attempts:
            return False, None
        set_attempt(message, made)
        error = AttemptsUsed("other consumers failed, or ended during an attempt")
        return True, self.fail(message, error, {})

    def fail(
        self, message: Received, error: BaseException, headers: Mapping[str, str]
    ) -> Received | None:
        """Retry a message, or move it to the dead-letter topic.

        Args:
            message: The failed message.
            error: Exception of its handler.
            headers: Properties that connect copies to the trace.

        Returns:
            The message that now waits in memory, or None if it is finished.
        """
        if isinstance(error, Pause):
            self._pause(error)
            return self.postpone(next_attempt(message, 0))
        attempt = message.attempt
        decision = plan_retry(self._policy, attempt, error, self._roll())
        shown = redact_text(f"{type(error).__name__}: {error}")
        fields = {
            "topic": message.topic,
            "message_id": message.message_id,
            "attempt": attempt,
            "error": shown,
        }
        match decision:
            case DeadLetter(reason):
                log.error("Moving message to the dead-letter topic", reason=reason, **fields)
                return self._send_to_dead_letters(message, reason, shown, headers)
            case Retry(delay):
                log.warning("Retrying message", delay_seconds=round(delay, 3), **fields)
                if self._settings.retry_strategy is Strategy.RETRY_TOPIC:
                    return self._send_back(message, delay, headers)
                self._settled["retried"](None)
                if not message.source.is_retry:
                    self._journal.remember(message.identity, attempt)
                again = next_attempt(message)  # Before its origin would include this attempt.
                if not isinstance(error, HandlerCrash):  # It was counted at the start.
                    self._attempts.add(message.identity)
                self._held.keep(again, self._monotonic() + delay)
                return again

    def is_paused(self, now: float) -> bool:
        """Return whether a pause that a handler requested is in effect at a time."""
        return now < self.paused_until

    def postpone(self, message: Received) -> Received:
        """Keep a message until the end of the pause, which does not count as an attempt."""
        self._held.keep(message, self.paused_until)
        return message

    def _pause(self, error: Pause) -> None:
        now = self._monotonic()
        if not self.is_paused(now):
            log.warning(
                "Pausing consumption", seconds=error.seconds, reason=redact_text(str(error))
            )
        until = now + min(max(0.0, error.seconds), _LONGEST_PAUSE)
        self.paused_until = max(self.paused_until, until)

    def _send_back(
        self, message: Received, delay: float, headers: Mapping[str, str]
    ) -> Received | None:
        properties = build_retry_properties(
            read_properties(message.raw), message.origin, self._settings.subscription_name, delay
        )
        # If the cursor is moved back, the message is copied a second time, which is no duplicate.
        properties[COPY_OF] = f"{message.identity}@{time.time_ns() // 1_000_000}"
        topic = self._settings.retry_topic_name
        properties = {**properties, **headers}
        return self._replace(Copy(message, topic, properties, "retry", "retried", delay))

    def _send_to_dead_letters(
        self, message: Received, reason: str, error: str, headers: Mapping[str, str]
    ) -> Received | None:
        properties = build_dead_letter_properties(
            read_properties(message.raw),
            message.origin,
            self._settings.subscription_name,
            reason,
            error,
        )
        topic, properties = self._settings.dead_letter_topic_name, {**properties, **headers}
        return self._replace(Copy(message, topic, properties, "dead_letter", "dead_lettered"))

    def _replace(self, copy: Copy) -> Received | None:
        """Keep a message until its copy is stored; its handler is not called again."""

        def resume(message: Received) -> Received | None:
            return self._replace(replace(copy, message=message))

        self._held.keep(copy.message, resume=resume)
        if not self.copier.send(copy):
            self._meters.fail(copy.operation)
        return copy.message

    def _replaced(self, copy: Copy) -> None:
        """Acknowledge a message whose copy is stored."""
        message = copy.message
        # Record the copy before the acknowledgment: if the process is killed in between, the broker
        # redelivers the message, which must not be copied twice.
        self._journal.remember_copied(message.identity)
        self.succeed(message, copy.result)
        if self._settings.keeps_order and not message.source.is_retry:
            # Its group waits for it.
            self._held.keep(message, self._monotonic(), resume=lambda _: None)
            self._wake()
        else:
            self._held.take(message)
