"""Detects whether KEDA reacts to messages.

If KEDA stops, the conditions of its ScaledObjects do not change, so they do not show this.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from libs.common.kinds import Key
from libs.common.reading import text_at
from operators.pulsarconsumer.api.reasons import ConditionType, Reason
from operators.pulsarconsumer.api.scaling import ScalingEngine
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.resources.scalers import SCALED_OBJECT
from operators.pulsarconsumer.seeking import needs_stop


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Messages that wait for KEDA to scale a PulsarConsumer.

    Attributes:
        active: `status.lastActiveTime` of the ScaledObject.
        since: Start of the wait, in seconds since 1970.
    """

    uid: str
    active: str
    since: float


class KedaWatch:
    """Measures for each PulsarConsumer that KEDA scales how long KEDA has not reacted.

    KEDA sets `status.lastActiveTime` at each poll that finds messages. So if messages wait and this
    time does not change, KEDA does not poll.
    """

    def __init__(self) -> None:
        """Start without measurements."""
        self._waiting: dict[Key, _Waiting] = {}

    def keys(self) -> AbstractSet[Key]:
        """Return the keys of the PulsarConsumers that wait."""
        return self._waiting.keys()

    def forget(self, key: Key) -> None:
        """Forget a deleted PulsarConsumer."""
        self._waiting.pop(key, None)

    def measure(self, key: Key, consumer: PulsarConsumer, observed: Observed, now: float) -> float:
        """Return for how many seconds messages have waited without a reaction of KEDA."""
        if not _has_work_for_keda(consumer, observed):
            self.forget(key)
            return 0.0
        uid = consumer.metadata.uid
        active = text_at(observed.children.get(SCALED_OBJECT, {}), "status", "lastActiveTime")
        held = self._waiting.get(key)
        if held is None or (held.uid, held.active) != (uid, active):
            # After a restart, continue with the result of the previous process.
            since = 0.0 if held is None and _was_silent(consumer) else now
            held = self._waiting[key] = _Waiting(uid, active, since)
        return now - held.since


def _has_work_for_keda(consumer: PulsarConsumer, observed: Observed) -> bool:
    scaling, report = consumer.spec.autoscaling, observed.broker_state.fresh
    if scaling is None or scaling.engine is not ScalingEngine.KEDA:
        return False
    if consumer.spec.paused or needs_stop(consumer, observed):
        return False
    # KEDA compares each topic with the threshold, and counts no fewer entries.
    topics = report.consumed if report is not None else ()
    return any(topic.entries > scaling.activation_backlog for topic in topics)


def _was_silent(consumer: PulsarConsumer) -> bool:
    conditions = consumer.status.conditions if consumer.status is not None else []
    return any(
        each.type == ConditionType.SCALING_ACTIVE and each.reason == Reason.ENGINE_SILENT
        for each in conditions
    )
