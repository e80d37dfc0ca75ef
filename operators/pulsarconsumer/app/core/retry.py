"""Retry policy: decides whether and when a failed message is retried. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from slipway_handler import Reject, RetryLater

_SPREAD: Final = 0.1
"""Random share of a delay, so that messages that failed together are not retried together."""
_MAX_DELAY: Final = 10 * 86_400.0


class Strategy(StrEnum):
    """Where a failed message waits for its next attempt."""

    NEGATIVE_ACK = "NegativeAck"
    RETRY_TOPIC = "RetryTopic"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number and the delays of attempts.

    Attributes:
        max_attempts: Number of attempts after which a message is moved to the dead-letter topic.
        initial_delay: Seconds before the second attempt.
        max_delay: Maximum delay in seconds.
        multiplier: Factor between successive delays.
        dead_letter: Whether there is a dead-letter topic; without it, messages are retried
            indefinitely.
        reject_on: Exception types that no further attempt can fix, by name, with or without their
            module; subclasses count as well.
    """

    max_attempts: int = 5
    initial_delay: float = 1.0
    max_delay: float = 600.0
    multiplier: float = 2.0
    dead_letter: bool = False
    reject_on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to retry after a delay in seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The decision to stop: no attempt is left, or no attempt would succeed."""

    reason: str


type Decision = Retry | DeadLetter


def plan_retry(policy: RetryPolicy, attempt: int, error: BaseException, roll: float) -> Decision:
    """Decide about a message after a failed attempt.

    Args:
        policy: The retry policy.
        attempt: Number of the failed attempt, from 1.
        error: Exception of the attempt; Reject and RetryLater override the policy.
        roll: A random number from 0 to 1 that spreads the delays.
    """
    if policy.dead_letter and isinstance(error, Reject):
        return DeadLetter(error.cause)
    if policy.dead_letter and policy.reject_on and policy.reject_on & _names_of(error):
        return DeadLetter(Reject.cause)
    if policy.dead_letter and attempt >= policy.max_attempts:
        return DeadLetter("AttemptsExhausted")
    if isinstance(error, RetryLater):
        return Retry(min(max(0.0, error.seconds), _MAX_DELAY))
    return Retry(compute_delay(policy, attempt, roll))


def compute_delay(policy: RetryPolicy, attempt: int, roll: float = 0.5) -> float:
    """Return the seconds between a failed attempt and the next, at most the policy's maximum."""
    try:
        delay = policy.initial_delay * policy.multiplier ** (attempt - 1)
    except OverflowError:
        delay = policy.max_delay
    spread = 1.0 + _SPREAD * (2.0 * roll - 1.0)
    return min(delay * spread, policy.max_delay)


def _names_of(error: BaseException) -> set[str]:
    classes = type(error).__mro__
    return {
        name
        for each in classes
        for name in (each.__name__, f"{each.__module__}.{each.__qualname__}")
    }
