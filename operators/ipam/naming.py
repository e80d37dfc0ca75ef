"""Names that the operator gives, one function each, and the marks that it leaves."""

from __future__ import annotations

import re
from typing import Final

from libs.common.naming import build_name, short_hash
from operators.ipam.api.v1alpha1.fields import GROUP

OPERATOR: Final = "ipam"
"""Id of the operator: package, chart, release, value of the managed-by label."""
POOL_CONTROLLER: Final = "ipam-pool"
"""Name of the controller of pools, and field manager of what it writes."""
CLAIM_CONTROLLER: Final = "ipam"
"""Name of the controller of claims, which makes the children, and their field manager."""
ALLOCATION_CONTROLLER: Final = "ipam-allocation"
"""Name of the controller of the ledger, and field manager of what it writes."""
SERVICE_CONTROLLER: Final = "ipam-service"
"""Name of the controller of Services of our class, and field manager of what it writes."""
CLUSTER_API_CONTROLLER: Final = "ipam-cluster-api"
"""Name of the controller of IPAddressClaims, and field manager of what it writes."""
LOAD_BALANCER_CLASS: Final = "slipway.dev/ipam"
"""Default of `spec.loadBalancerClass` of Services that get an address of a pool."""
POOL: Final = f"{GROUP}/pool"
"""Annotation on a Service of our class: the IPPool of its address."""
SECONDARY_POOL: Final = f"{GROUP}/secondary-pool"
"""Annotation on a Service of our class: the IPPool of its second address, of the other family."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on pools that have addresses to get back, on claims and on entries of the ledger."""
POOL_LABEL: Final = f"{GROUP}/pool"
"""Label on an entry of the ledger: the pool, cut to 63 characters."""
CLAIM_LABEL: Final = f"{GROUP}/claim-uid"
"""Label on an entry of the ledger: UID of the claim."""
EPOCH: Final = f"{GROUP}/epoch"
"""Annotation on an EndpointSlice: the epoch of the binding that it shows."""
TARGET: Final = f"{GROUP}/target"
"""Annotation on an EndpointSlice: its target, such as Instance/web."""
TARGET_UID: Final = f"{GROUP}/target-uid"
"""Annotation on an EndpointSlice: the incarnation of that."""
VMI_UID: Final = f"{GROUP}/vmi-uid"
"""Annotation on an EndpointSlice: the run of the target machine."""
VMI_CREATED: Final = f"{GROUP}/vmi-created"
"""Annotation on an EndpointSlice: when that run began."""
SLICE_MANAGER: Final = GROUP
"""Value of the label `SLICE_MANAGED_BY` on the slices of a claim."""

_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def allocation_name(realm: str, address: str) -> str:
    """Name the entry of an address in the ledger, as the CRD demands it."""
    if ":" in address:
        return f"{realm}-ip6-{address.replace(':', '-')}-x"
    return f"{realm}-ip4-{address.replace('.', '-')}"


def service_name(claim: str) -> str:
    """Name the Service of a claim `<claim>-ip`, so that a claim may be named like its target."""
    name = f"{claim}-ip"
    if _SERVICE_NAME.fullmatch(name):
        return name
    # Names of claims may have dots, begin with a digit and be long; names of Services may not.
    return build_name("ip", re.sub(r"[^a-z0-9-]", "-", claim)[:40].strip("-"), short_hash(claim))


def slice_name(claim: str, *, v6: bool) -> str:
    """Name the EndpointSlice of a claim; its address type cannot change, so it is in the name."""
    return build_name(service_name(claim), "v6" if v6 else "v4")
