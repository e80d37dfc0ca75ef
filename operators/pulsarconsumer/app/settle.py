"""What becomes of a message once it was handled: acknowledged, or safe elsewhere and then so.

A message is acknowledged only after its handler returned, or after the broker stored the copy that
takes its place. Whatever fails in between leaves it unacknowledged: it comes again.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import pulsar
import structlog

from libs.common.redaction import redact_text
from operators.pulsarconsumer.app.core.delays import Delays
from operators.pulsarconsumer.app.core.headers import (
    build_dead_letter_properties,
    build_retry_properties,
)
from operators.pulsarconsumer.app.core.retry import DeadLetter, Retry, Strategy, plan_retry
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.settings import Settings

_REMEMBERED: Final = 10_000
"""Messages whose tries are remembered here, for subscriptions whose broker does not count."""
_AT_ONCE_SECONDS: Final = 0.1

log = structlog.get_logger("settle")


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
        self._delays: Delays[Received] = Delays()
        self._tries: OrderedDict[str, int] = OrderedDict()
        meters.waiting.set_function(lambda: len(self._delays))

    def count_tries(self, topic: str, message_id: str, redeliveries: int) -> int:
        """Return which try a message of the topic itself is, from 1.

        Args:
            topic: Its topic.
            message_id: Its id in it.
            redeliveries: What the broker counted, which is 0 for Exclusive and Failover.
        """
        if not self._tries:
            return redeliveries + 1
        return max(redeliveries, self._tries.get(f"{topic} {message_id}", 0)) + 1

    def succeed(self, message: Received, result: str = "acknowledged") -> None:
        """Acknowledge a message, whose handling ended with a result of the metric."""
        try:
            message.source.consumer.acknowledge(message.raw)
        except pulsar.PulsarException as err:
            self._meters.fail("acknowledge")
            # It comes again: at least once is what is promised.
            log.warning("Failing to acknowledge", message_id=message.message_id, error=str(err))
        else:
            self._meters.settle(result)
        if self._tries:
            self._tries.pop(f"{message.topic} {message.message_id}", None)

    def fail(self, message: Received, error: BaseException, headers: Mapping[str, str]) -> None:
        """Retry a message or bury it.

        Args:
            message: What failed.
            error: What its handler raised.
            headers: Properties by which copies join the trace.
        """
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
                log.error("Putting message aside", reason=reason, **fields)
                self._bury(message, reason, shown, headers)
            case Retry(delay) if self._settings.retry_strategy is Strategy.RETRY_TOPIC:
                log.warning("Retrying message", delay_seconds=round(delay, 3), **fields)
                self._send_back(message, delay, headers)
            case Retry(delay):
                log.warning("Retrying message", delay_seconds=round(delay, 3), **fields)
                self._remember(message)
                self.hold_back(message, delay)
                self._meters.settle("retried")

    def hold_back(self, message: Received, delay: float) -> None:
        """Keep a message for some seconds, then have the broker deliver it again."""
        if delay <= _AT_ONCE_SECONDS:
            self._give_back(message)
        else:
            self._delays.add(self._monotonic() + delay - _AT_ONCE_SECONDS, message)

    def release_due(self) -> None:
        """Give back what was held for long enough; called often."""
        if len(self._delays):
            for message in self._delays.pop_due(self._monotonic()):
                self._give_back(message)

    def _send_back(self, message: Received, delay: float, headers: Mapping[str, str]) -> None:
        properties = build_retry_properties(
            message.raw.properties(), message.origin, self._settings.subscription_name, delay
        )
        topic = self._settings.retry_topic_name
        self._replace("retry", message, topic, {**properties, **headers}, "retried", delay)

    def _bury(self, message: Received, reason: str, error: str, headers: Mapping[str, str]) -> None:
        properties = build_dead_letter_properties(
            message.raw.properties(),
            message.origin,
            self._settings.subscription_name,
            reason,
            error,
        )
        topic = self._settings.dead_letter_topic_name
        self._replace("dead_letter", message, topic, {**properties, **headers}, "dead_lettered")

    def _replace(
        self,
        operation: str,
        message: Received,
        topic: str,
        properties: Mapping[str, str],
        result: str,
        delay: float = 0,
    ) -> None:
        """Store a copy, then acknowledge; if it is not certain that it is stored, do neither."""
        try:
            message.source.session.send_copy(topic, message.raw, properties, delay)
        except pulsar.PulsarException as err:
            self._meters.fail(operation)
            log.error("Keeping message, since no copy could be stored", topic=topic, error=str(err))
            self.hold_back(message, max(delay, self._policy.initial_delay, 1.0))
            return
        self.succeed(message, result)

    def _give_back(self, message: Received) -> None:
        try:
            message.source.consumer.negative_acknowledge(message.raw)
        except pulsar.PulsarException:
            # The consumer is closed, by which the broker has it back already.
            log.debug("Leaving message to the broker", message_id=message.message_id)

    def _remember(self, message: Received) -> None:
        self._tries[f"{message.topic} {message.message_id}"] = message.attempt
        while len(self._tries) > _REMEMBERED:
            self._tries.popitem(last=False)
