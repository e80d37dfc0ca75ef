"""Runs the engine Native once for each result of a query of a broker and for each new spec."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.kinds import Key
from libs.common.runtime import Context
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.scaling import ScalingEngine
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.autoscaler import Decision, Memory, Scaler
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.reconcile import current_replicas
from operators.pulsarconsumer.seeking import needs_stop


@dataclass(slots=True)
class _Scaling:
    """The state of the engine Native for one PulsarConsumer.

    It is lost at a restart, which is safe: see `operators.pulsarconsumer.autoscaler`.
    """

    uid: str
    generation: int
    serial: int
    memory: Memory
    decision: Decision
    asked: int | None


class NativeScaling:
    """The decisions of the engine Native for all PulsarConsumers."""

    def __init__(self) -> None:
        """Start without decisions."""
        self._scalings: dict[Key, _Scaling] = {}

    def keys(self) -> list[Key]:
        """Return the keys of all PulsarConsumers that have a decision."""
        return list(self._scalings)

    def forget(self, key: Key) -> None:
        """Forget a deleted PulsarConsumer."""
        self._scalings.pop(key, None)

    def last_decision(self, key: Key) -> Decision | None:
        """Return the last decision for a PulsarConsumer."""
        held = self._scalings.get(key)
        return None if held is None else held.decision

    def decide(
        self, ctx: Context, consumer: PulsarConsumer, observed: Observed, serial: int
    ) -> Decision | None:
        """Return the number of consumers; None if another engine sets it or none is known.

        Args:
            ctx: Context of the reconcile.
            consumer: The PulsarConsumer.
            observed: What exists, and the known state of the broker.
            serial: Number of the query that returned this state.
        """
        spec, broker_state = consumer.spec, observed.broker_state
        policy = spec.autoscaling
        native = policy is not None and policy.engine is ScalingEngine.NATIVE
        if policy is None or not native or spec.paused or needs_stop(consumer, observed):
            self._scalings.pop(ctx.key, None)
            return None
        if not broker_state.asked:
            return None
        held = self._scalings.get(ctx.key)
        if held is not None and held.uid != ctx.uid:
            held = None
        if held and (held.serial, held.generation) == (serial, ctx.generation):
            return held.decision
        memory = held.memory if held is not None else Memory()
        scaler = Scaler(policy, spec.subscription.type, memory)
        current = current_replicas(consumer, observed)
        report = broker_state.fresh
        if report is None:
            decision = scaler.decide_without_broker(current, broker_state.failures)
        else:
            decision, memory = scaler.decide(current, report, ctx.now().timestamp())
        if held is not None and spec.replicas not in (None, held.asked):
            note = (
                f"spec.replicas: {spec.replicas} is not used while spec.autoscaling.engine is "
                "Native; set spec.autoscaling.minReplicas and maxReplicas, or remove autoscaling"
            )
            ctx.event("Warning", Reason.REPLICAS_IGNORED, note)
        self._scalings[ctx.key] = _Scaling(
            ctx.uid, ctx.generation, serial, memory, decision, spec.replicas
        )
        return decision
