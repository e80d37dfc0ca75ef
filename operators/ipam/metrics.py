"""Metrics of the ipam operator, in addition to the common metrics."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

ADDRESSES: Final = MetricSpec(
    "ipam_pool_addresses",
    MetricKind.GAUGE,
    "Number of addresses of a pool that are free, allocated, quarantined or out of range.",
    ("pool", "state"),
)
WAITING: Final = MetricSpec(
    "ipam_pool_waiting_claims",
    MetricKind.GAUGE,
    "Number of claims that want an address of a pool and have none.",
    ("pool",),
)
ALLOCATIONS: Final = MetricSpec(
    "ipam_allocations_total",
    MetricKind.COUNTER,
    "Total number of addresses allocated to claims.",
    ("pool",),
)
CONFLICTS: Final = MetricSpec(
    "ipam_allocation_conflicts_total",
    MetricKind.COUNTER,
    "Total number of attempts to allocate an address that was already allocated.",
    ("pool",),
)
RELEASES: Final = MetricSpec(
    "ipam_releases_total",
    MetricKind.COUNTER,
    "Total number of addresses released because their claim was deleted or has another address.",
    ("pool",),
)
MOVES: Final = MetricSpec(
    "ipam_binding_moves_total",
    MetricKind.COUNTER,
    "Total number of times an address was routed to another target.",
)

METRICS: Final[tuple[MetricSpec, ...]] = (
    ADDRESSES,
    WAITING,
    ALLOCATIONS,
    CONFLICTS,
    RELEASES,
    MOVES,
)
"""Metrics that the process registers and the reference documentation lists."""
