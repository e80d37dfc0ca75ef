"""The observed objects of a PulsarConsumer, as input of plan and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from libs.common.kinds import Kind, Manifest, version_text
from libs.common.reading import map_at, text_at
from operators.pulsarconsumer.autoscaler import Decision
from operators.pulsarconsumer.report import NOT_QUERIED, BrokerState


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """The parts of the Deployment that the operator uses.

    Attributes:
        replicas: Actual number of pods.
        current: Whether its status is based on its current spec.
        deadline: Its message if the progress deadline is exceeded; otherwise empty.
    """

    wanted: int
    replicas: int
    ready: int
    updated: int
    current: bool
    deadline: str = ""
    version: str = ""

    @classmethod
    def parse(cls, manifest: Manifest) -> DeploymentView:
        """Parse a Deployment; invalid fields count as absent."""
        status = map_at(manifest, "status")
        observed = _count(status, "observedGeneration")
        return cls(
            wanted=_count(map_at(manifest, "spec"), "replicas"),
            replicas=_count(status, "replicas"),
            ready=_count(status, "readyReplicas"),
            updated=_count(status, "updatedReplicas"),
            current=observed >= _count(map_at(manifest, "metadata"), "generation"),
            deadline=_find_deadline(status),
            version=version_text(manifest),
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed objects of a PulsarConsumer.

    Attributes:
        deployment: Deployment of the PulsarConsumer; None if it does not exist.
        children: Other children, by kind.
        served: Optional kinds that the cluster serves.
        decision: Decision of the engine Native; None before the first, or with another engine.
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
