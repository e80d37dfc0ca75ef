"""What becomes of a message once it was handled: acknowledged, or safe elsewhere and then so.

A message is acknowledged only after its handler returned, or after the broker stored the copy that
takes its place. Whatever fails in between leaves it unacknowledged: it comes again.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pulsar
import structlog

from libs.common.redaction import redact_text
from operators.pulsarconsumer.app.core.delays import Delays
from operators.pulsarconsumer.app.core.headers import (
    Origin,
    build_dead_letter_properties,
    build_retry_properties,
)
from operators.pulsarconsumer.app.core.message import Message
from operators.pulsarconsumer.app.core.retry import DeadLetter, Retry, Strategy, plan_retry
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.session import Session, Source
from operators.pulsarconsumer.app.settings import Settings

_REMEMBERED: Final = 10_000
"""Messages whose tries are remembered here, for subscriptions whose broker does not count."""
_AT_ONCE_SECONDS: Final = 0.1

log = structlog.get_logger("settle")


@dataclass(frozen=True, slots=True)
class Held:
    """One message that is neither acknowledged nor given back."""

    session: Session
    source: Source
    raw: pulsar.Message
    origin: Origin
    message: Message


class Settler:
    """Acknowledge, retry and bury messages; threads may share it."""

    def __init__(
        self,
        settings: Settings,
        meters: Meters,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        roll: Callable[[], float] = random.random,
    ) -> None:
        """Take the policy.

        Args:
            settings: How often, how soon, where to.
            meters: Where results are counted.
            monotonic: Gives seconds.
            roll: Gives random numbers from 0 to 1, which spread the delays.
        """
        self._settings = settings
        self._policy = settings.retry_policy
        self._meters = meters
        self._monotonic = monotonic
        self._roll = roll
        self._delays: Delays[Held] = Delays()
        self._tries: OrderedDict[str, int] = OrderedDict()
        meters.waiting.set_function(lambda: len(self._delays))

    def count_tries(self, topic: str, message_id: str, redeliveries: int) -> int:
        """Return which try a message of the topic itself is, from 1.

        Args:
            topic: Its topic.
            message_id: Its id in it.
            redeliveries: What the broker counted, which is 0 for Exclusive and Failover.
        """
        return max(redeliveries, self._tries.get(f"{topic} {message_id}", 0)) + 1

    def succeed(self, held: Held, result: str = "acknowledged") -> None:
        """Acknowledge a message, whose handling ended with a result of the metric."""
        if self._acknowledge(held):
            self._meters.settle(result)
        if self._tries:
            self._tries.pop(f"{held.origin.topic} {held.origin.message_id}", None)

    def fail(self, held: Held, error: BaseException, headers: Mapping[str, str]) -> None:
        """Retry a message or bury it.

        Args:
            held: The message.
            error: What its handler raised.
            headers: Properties by which copies join the trace.
        """
        attempt = held.origin.attempt
        decision = plan_retry(self._policy, attempt, error, self._roll())
        shown = redact_text(f"{type(error).__name__}: {error}")
        fields = {
            "topic": held.origin.topic,
            "message_id": held.origin.message_id,
            "attempt": attempt,
            "error": shown,
        }
        match decision:
            case DeadLetter(reason):
                log.error("Putting message aside", reason=reason, **fields)
                self._bury(held, reason, shown, headers)
            case Retry(delay) if self._settings.retry_strategy is Strategy.RETRY_TOPIC:
                log.warning("Retrying message", delay_seconds=round(delay, 3), **fields)
                self._send_back(held, delay, headers)
            case Retry(delay):
                log.warning("Retrying message", delay_seconds=round(delay, 3), **fields)
                self._remember(held)
                self.hold_back(held, delay)
                self._meters.settle("retried")

    def hold_back(self, held: Held, delay: float) -> None:
        """Keep a message for some seconds, then have the broker deliver it again."""
        if delay <= _AT_ONCE_SECONDS:
            self._give_back(held)
        else:
            self._delays.add(self._monotonic() + delay - _AT_ONCE_SECONDS, held)

    def release_due(self) -> None:
        """Give back what was held for long enough; called often."""
        if len(self._delays):
            for held in self._delays.pop_due(self._monotonic()):
                self._give_back(held)

    def _send_back(self, held: Held, delay: float, headers: Mapping[str, str]) -> None:
        properties = build_retry_properties(
            held.raw.properties(), held.origin, self._settings.subscription_name, delay
        )
        topic = self._settings.retry_topic_name
        self._replace("retry", held, topic, {**properties, **headers}, "retried", delay)

    def _bury(self, held: Held, reason: str, error: str, headers: Mapping[str, str]) -> None:
        properties = build_dead_letter_properties(
            held.raw.properties(), held.origin, self._settings.subscription_name, reason, error
        )
        topic = self._settings.dead_letter_topic_name
        self._replace("dead_letter", held, topic, {**properties, **headers}, "dead_lettered")

    def _replace(
        self,
        operation: str,
        held: Held,
        topic: str,
        properties: Mapping[str, str],
        result: str,
        delay: float = 0,
    ) -> None:
        """Store a copy, then acknowledge; if it is not certain that it is stored, do neither."""
        try:
            held.session.send_copy(topic, held.raw, properties, delay)
        except pulsar.PulsarException as err:
            self._meters.fail(operation)
            log.error("Keeping message, since no copy could be stored", topic=topic, error=str(err))
            self.hold_back(held, max(delay, self._policy.initial_delay, 1.0))
            return
        self.succeed(held, result)

    def _acknowledge(self, held: Held) -> bool:
        try:
            held.source.consumer.acknowledge(held.raw)
        except pulsar.PulsarException as err:
            self._meters.fail("acknowledge")
            # It comes again: at least once is what is promised.
            log.warning("Failing to acknowledge", message_id=held.origin.message_id, error=str(err))
            return False
        return True

    def _give_back(self, held: Held) -> None:
        try:
            held.source.consumer.negative_acknowledge(held.raw)
        except pulsar.PulsarException:
            # The consumer is closed, by which the broker has it back already.
            log.debug("Leaving message to the broker", message_id=held.origin.message_id)

    def _remember(self, held: Held) -> None:
        self._tries[f"{held.origin.topic} {held.origin.message_id}"] = held.origin.attempt
        while len(self._tries) > _REMEMBERED:
            self._tries.popitem(last=False)
