"""Manifests of the entries of the ledger. Pure."""

from __future__ import annotations

from libs.common.kinds import Manifest, build_object
from libs.common.labels import MANAGED_BY
from libs.common.naming import label_value
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.pools import IPPool
from operators.ipam.ledger import Request
from operators.ipam.naming import (
    CLAIM_LABEL,
    FINALIZER,
    OPERATOR_ID,
    POOL_LABEL,
    allocation_name,
)


def build_allocation(pool: IPPool, request: Request, address: str) -> Manifest:
    """Build the entry of the ledger that allocates an address to a claim.

    It has no owner: a namespaced claim cannot own a cluster-scoped object, and the entry must
    outlive the claim, to reserve the address until no traffic is routed to the old target any more.
    """
    labels = {
        MANAGED_BY: OPERATOR_ID,
        POOL_LABEL: label_value(pool.metadata.name),
        CLAIM_LABEL: request.uid,
    }
    spec = {
        "realm": pool.spec.realm,
        "address": address,
        "poolRef": {"name": pool.metadata.name, "uid": pool.metadata.uid},
        "claimRef": {
            "namespace": request.claim.namespace,
            "name": request.claim.name,
            "uid": request.uid,
        },
    }
    name = allocation_name(pool.spec.realm, address)
    # The finalizer is set on creation: no second write is needed, and the entry is never without
    # it.
    metadata = {"labels": labels, "finalizers": [FINALIZER]}
    return build_object(IP_ALLOCATION, name, metadata=metadata, spec=spec)
