"""The ipam operator: claims, pools and the ledger in one process."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import CORE_EVENT
from libs.common.rbac import grant
from libs.common.runtime import Operator
from operators.ipam.allocation.controller import build_controller as build_allocation_controller
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.claim.controller import build_controller as build_claim_controller
from operators.ipam.cluster_api.controller import (
    build_controller as build_cluster_api_controller,
)
from operators.ipam.metrics import METRICS
from operators.ipam.naming import OPERATOR_ID
from operators.ipam.pool.controller import build_controller as build_pool_controller
from operators.ipam.service.controller import build_controller as build_service_controller
from operators.ipam.settings import Settings

OPERATOR: Final = Operator(
    OPERATOR_ID,
    (
        build_claim_controller,
        build_pool_controller,
        build_allocation_controller,
        build_service_controller,
        build_cluster_api_controller,
    ),
    settings=Settings,
    permissions=(
        # The ledger is owned by its pool.
        grant(IP_POOL, "update", subresource="finalizers", why="own the ledger"),
        grant(IP_POOL, "announce", why="put addresses of pools into Services"),
        grant(CORE_EVENT, "list", why="report why a load balancer refuses an address"),
    ),
    metrics=METRICS,
    summary="Allocates addresses from pools to claims, and routes them to machines and Services.",
)
"""The operator, which the process and the tests run."""
