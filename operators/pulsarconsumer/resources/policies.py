"""PodDisruptionBudget and PodMonitor of a PulsarConsumer."""

from __future__ import annotations

from typing import Any, Final

from libs.common.kinds import POD_DISRUPTION_BUDGET, Kind, Manifest
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.naming import selector_labels
from operators.pulsarconsumer.resources.child import build_child

POD_MONITOR: Final = Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors")
"""Optional kind of the Prometheus operator."""


def build_disruption_budget(consumer: PulsarConsumer, owner: Manifest) -> Manifest | None:
    """Build the PodDisruptionBudget; None if the spec does not request one."""
    budget = consumer.spec.pod_disruption_budget
    if budget is None:
        return None
    spec: Manifest = {
        "selector": {"matchLabels": selector_labels(consumer.metadata.name)},
        # A consumer that is not ready handles no messages, so it must not block a drain.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        **budget.to_manifest(),
    }
    return build_child(POD_DISRUPTION_BUDGET, consumer, owner, spec)


def build_pod_monitor(consumer: PulsarConsumer, owner: Manifest) -> Manifest | None:
    """Build the PodMonitor; None if the spec does not request one."""
    monitor = consumer.spec.metrics.pod_monitor
    if monitor is None:
        return None
    endpoint: dict[str, Any] = {"port": "metrics", "interval": f"{monitor.interval_seconds}s"}
    spec: Manifest = {
        "selector": {"matchLabels": selector_labels(consumer.metadata.name)},
        "podMetricsEndpoints": [endpoint],
    }
    built = build_child(POD_MONITOR, consumer, owner, spec)
    built["metadata"]["labels"] = {**monitor.labels, **built["metadata"]["labels"]}
    return built
