"""What was seen of a PulsarConsumer: values for the plan and the status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from libs.common.kinds import Kind, Manifest
from libs.common.reading import map_at, text_at
from operators.pulsarconsumer.autoscaler import Decision
from operators.pulsarconsumer.report import NOT_QUERIED, BrokerState


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """The parts of the Deployment that the operator uses.

    Attributes:
        wanted: Number of pods that it should have.
        replicas: Number of pods that it has.
        ready: Number of pods that are ready.
        updated: Number of pods of its present template.
        current: Whether its status is about its present spec.
        deadline: What it says when a roll-out takes too long; empty when it does not.
    """

    wanted: int
    replicas: int
    ready: int
    updated: int
    current: bool
    deadline: str = ""

    @classmethod
    def parse(cls, manifest: Manifest) -> DeploymentView:
        """Read a Deployment; what does not fit counts as absent."""
        status = map_at(manifest, "status")
        observed = _count(status, "observedGeneration")
        return cls(
            wanted=_count(map_at(manifest, "spec"), "replicas"),
            replicas=_count(status, "replicas"),
            ready=_count(status, "readyReplicas"),
            updated=_count(status, "updatedReplicas"),
            current=observed >= _count(map_at(manifest, "metadata"), "generation"),
            deadline=_find_deadline(status),
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed objects of a PulsarConsumer.

    Attributes:
        deployment: The Deployment that belongs to the PulsarConsumer; None when there is none.
        children: Other objects that belong to it, by kind.
        served: Kinds that the cluster has only perhaps, and that it has.
        broker_state: What is known of the broker.
        decision: What the engine Native decided; None when it has not yet, or is not asked.
        unanswered: Seconds for which messages have waited without a reaction of KEDA; 0 if none
            wait, or with another engine.
    """

    deployment: DeploymentView | None = None
    children: Mapping[Kind, Manifest] = field(default_factory=dict)
    served: frozenset[Kind] = frozenset()
    broker_state: BrokerState = NOT_QUERIED
    decision: Decision | None = None
    unanswered: float = 0.0


def _count(manifest: Mapping[str, object], name: str) -> int:
    value = manifest.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _find_deadline(status: Mapping[str, object]) -> str:
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, Mapping) and condition.get("type") == "Progressing":
            late = condition.get("reason") == "ProgressDeadlineExceeded"
            return text_at(condition, "message") if late else ""
    return ""
