"""Planning of seeks: whether a seek is requested, and whether consumers must stop for it. Pure.

A running consumer remembers the messages that it has handled or moved to another topic, and
acknowledges them without handling them if they are delivered again. So no consumer may run while
the subscription is moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from operators.pulsarconsumer.api.consuming import InitialPosition, Seek
from operators.pulsarconsumer.api.status import SeekStatus
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.observed import Observed

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_FAILURES: Final = 3
"""Consecutive failed queries of the broker after which consumers no longer wait for a seek."""


@dataclass(frozen=True, slots=True)
class SeekProgress:
    """The progress of a seek.

    Attributes:
        status: Desired status of the last seek; None if there was none.
        message: What the seek waits for; empty if it does not wait.
        again: Seconds until it continues; 0 if it does not wait.
    """

    status: SeekStatus | None
    message: str = ""
    again: float = 0.0


def plan_seek(consumer: PulsarConsumer, now: datetime) -> SeekStatus | None:
    """Return the status of a seek; for a new one, with the time to which it moves.

    The time is recorded before the subscription is moved. So a repetition after a crash moves to
    the same position, and no message that arrived in the meantime is skipped. A seek that was
    removed from the spec before it was done has failed.
    """
    seek = consumer.spec.subscription.seek
    held = consumer.status.last_seek if consumer.status is not None else None
    if seek is None:
        pending = held is not None and held.outcome == "Pending"
        return held.model_copy(update={"outcome": "Failed"}) if held and pending else held
    if held is not None and held.id == seek.id:
        return held
    target = _find_target(seek, now).replace(microsecond=0)
    return SeekStatus(id=seek.id, target_time=target, outcome="Pending")


def needs_stop(consumer: PulsarConsumer, observed: Observed) -> bool:
    """Return whether the consumers must stop for a seek that is not done.

    While the broker does not respond, the seek cannot be executed: the consumers run until it does.
    """
    seek = consumer.spec.subscription.seek
    held = consumer.status.last_seek if consumer.status is not None else None
    if seek is None or observed.broker_state.failures >= _MAX_FAILURES:
        return False
    return held is None or held.id != seek.id or held.outcome == "Pending"


def _find_target(seek: Seek, now: datetime) -> datetime:
    if seek.time is not None:
        return seek.time
    return _BEGINNING if seek.position is InitialPosition.EARLIEST else now
