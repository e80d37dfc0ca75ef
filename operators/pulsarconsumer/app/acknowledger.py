"""Finishes messages after their handling: acknowledges, copies or keeps them.

A message is acknowledged only after its handler has returned, or after the broker has stored the
copy that replaces it. Until then it is kept in memory and handled again, and the broker keeps it as
well, in case this process ends.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import pulsar
import structlog

from libs.common.redaction import redact_text
from operators.pulsarconsumer.app.attempt_log import AttemptLog
from operators.pulsarconsumer.app.connection import Connection
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
from operators.pulsarconsumer.app.source import SUBSCRIBE_ERRORS
from slipway_handler import Pause

_COPY_SECONDS: Final = 1.0
"""Time until a copy that could not be stored is sent again."""
_LONGEST_PAUSE: Final = 3600.0
_MOST_UNSENT: Final = 20_000
"""Maximum number of remembered messages whose copies could not be stored."""

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
        pending: Callable[[], Iterable[Received]] = tuple,
        monotonic: Callable[[], float] = time.monotonic,
        roll: Callable[[], float] = random.random,
    ) -> None:
        """Initialize.

        Args:
            settings: Settings of retries and topics.
            meters: Counts results.
            held: Messages that wait for their next attempt.
            journal: Records failed attempts.
            connection: Sends copies.
            attempts: Shares failed attempts with other consumers.
            pending: Returns the messages that are being handled or wait for a thread.
            monotonic: Returns seconds of a monotonic clock.
            roll: Returns random numbers from 0 to 1, which spread the delays.
        """
        self._settings = settings
        self._policy = settings.retry_policy
        self._meters, self._settled = meters, meters.settle
        self._held, self._journal = held, journal
        self._connection, self._attempts, self._shared = connection, attempts, attempts.table
        self._pending = pending
        self._monotonic = monotonic
        self._roll = roll
        self._unsent: OrderedDict[str, Callable[[Received], Received | None]] = OrderedDict()
        self.paused_until = 0.0
        """Time of the monotonic clock before which no message is handled."""
        meters.waiting.set_function(lambda: len(held))

    def count_attempts(self, message: Received) -> int:
        """Return the number of the current attempt at a message of the topic itself, from 1."""
        # With Exclusive and Failover, the broker always reports 0.
        redeliveries: int = message.raw.redelivery_count()
        if self._shared.is_empty and not self._held.attempts_made:
            return redeliveries + 1
        known = self._held.attempts(message.identity) if self._held.attempts_made else 0
        shared = 0 if self._shared.is_empty else self._shared.count(message.identity)
        return max(redeliveries, known, shared) + 1

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
        held = self._held
        if held.is_watching or held.attempts_made:
            held.acknowledged(message)
            if message.raw is not raw:
                self._acknowledge_again(message)

    def _acknowledge_again(self, message: Received) -> None:
        """Acknowledge a message that was redelivered while it was being acknowledged."""
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
            self._held.acknowledged(message)
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
                return self._keep(again, delay)

    def is_paused(self, now: float) -> bool:
        """Return whether a pause that a handler requested is in effect at a time."""
        return now < self.paused_until

    def postpone(self, message: Received) -> Received:
        """Keep a message until the end of the pause, which does not count as an attempt."""
        self._held.keep(message, self.paused_until)
        self._held.note_siblings(message, self._pending())
        return message

    def _pause(self, error: Pause) -> None:
        now = self._monotonic()
        if not self.is_paused(now):
            log.warning(
                "Pausing consumption", seconds=error.seconds, reason=redact_text(str(error))
            )
        until = now + min(max(0.0, error.seconds), _LONGEST_PAUSE)
        self.paused_until = max(self.paused_until, until)

    def take_unsent(self, message: Received) -> Callable[[], Received | None] | None:
        """Return the function that sends the copy of a message again, if it could not be stored."""
        send = self._unsent.pop(message.identity, None) if self._unsent else None
        return None if send is None else partial(send, message)

    def _keep(self, message: Received, delay: float) -> Received:
        self._held.keep(message, self._monotonic() + delay)
        # If the whole batch is redelivered, the messages before this one were already handled.
        self._held.note_siblings(message, self._pending())
        return message

    def _send_back(
        self, message: Received, delay: float, headers: Mapping[str, str]
    ) -> Received | None:
        properties = build_retry_properties(
            read_properties(message.raw), message.origin, self._settings.subscription_name, delay
        )
        properties[COPY_OF] = message.identity
        topic = self._settings.retry_topic_name
        properties = {**properties, **headers}
        return self._replace("retry", topic, properties, "retried", delay, message)

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
        return self._replace("dead_letter", topic, properties, "dead_lettered", 0, message)

    def _replace(
        self,
        operation: str,
        topic: str,
        properties: Mapping[str, str],
        result: str,
        delay: float,
        message: Received,
    ) -> Received | None:
        """Store a copy, then acknowledge; if it may not be stored, keep the message."""
        try:
            self._connection.send_copy(topic, message.raw, properties, delay)
        except SUBSCRIBE_ERRORS as err:
            self._meters.fail(operation)
            log.error(
                "Message kept unacknowledged: no copy could be stored", topic=topic, error=str(err)
            )
            # Only the copy is retried; the handler is not called again.
            self._unsent[message.identity] = partial(
                self._replace, operation, topic, properties, result, delay
            )
            # Messages of a lost connection may be delivered to other consumers and never return, so
            # the memory must be bounded.
            while len(self._unsent) > _MOST_UNSENT:
                self._unsent.popitem(last=False)
            return self._keep(message, _COPY_SECONDS)
        # Record the copy before the acknowledgment: if the process is killed in between, the broker
        # redelivers the message, which must not be copied twice.
        self._journal.remember_copied(message.identity)
        self.succeed(message, result)
        self._held.copied(message.identity)
        return None
