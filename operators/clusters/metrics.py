"""Metrics of the clusters operator, in addition to the common metrics."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

ACTIONS: Final = MetricSpec(
    "clusters_actions_total",
    MetricKind.COUNTER,
    "Total number of changes made to the objects of clusters, by reason.",
    ("reason",),
)
NODE_STEPS: Final = MetricSpec(
    "clusters_node_steps_total",
    MetricKind.COUNTER,
    "Total number of steps taken on Nodes of workload clusters, by step and result.",
    ("step", "result"),
)
ADDONS: Final = MetricSpec(
    "clusters_addons_total",
    MetricKind.COUNTER,
    "Total number of addons applied to clusters, by result.",
    ("result",),
)
LOOK_SECONDS: Final = MetricSpec(
    "clusters_look_seconds",
    MetricKind.HISTOGRAM,
    "Duration of a check of a cluster through its API server, by result.",
    ("result",),
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10),
)

METRICS: Final[tuple[MetricSpec, ...]] = (ACTIONS, NODE_STEPS, ADDONS, LOOK_SECONDS)
"""Metrics that the process registers and the reference documentation lists."""
