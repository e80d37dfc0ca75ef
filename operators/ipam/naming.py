"""Names, labels and annotations of the objects that the operator creates."""

from __future__ import annotations

import re
from typing import Final

from libs.common.naming import build_name, short_hash
from operators.ipam.api.v1alpha1.fields import GROUP

OPERATOR_ID: Final = "ipam"
"""Id of the operator: package, chart, release, value of the managed-by label."""
POOL_CONTROLLER: Final = "ipam-pool"
"""Name of the controller of pools, which is the field manager of its writes."""
CLAIM_CONTROLLER: Final = "ipam"
"""Name of the controller of claims, which is the field manager of its writes."""
ALLOCATION_CONTROLLER: Final = "ipam-allocation"
"""Name of the controller of the ledger, which is the field manager of its writes."""
SERVICE_CONTROLLER: Final = "ipam-service"
"""Name of the controller of Services of our class, which is the field manager of its writes."""
CLUSTER_API_CONTROLLER: Final = "ipam-cluster-api"
"""Name of the controller of IPAddressClaims, which is the field manager of its writes."""
LOAD_BALANCER_CLASS: Final = "slipway.dev/ipam"
"""Default of `spec.loadBalancerClass` of Services that get an address of a pool."""
POOL: Final = f"{GROUP}/pool"
"""Annotation on a Service of our class: the IPPool of its address."""
SECONDARY_POOL: Final = f"{GROUP}/secondary-pool"
"""Annotation on a Service of our class: the IPPool of its second address, of the other family."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on pools, on claims with a target, and on entries of the ledger."""
POOL_LABEL: Final = f"{GROUP}/pool"
"""Label on an entry of the ledger: name of the pool, truncated to 63 characters."""
CLAIM_LABEL: Final = f"{GROUP}/claim-uid"
"""Label on an entry of the ledger: UID of the claim."""
KNOWN_UID: Final = f"{GROUP}/known-uid"
"""Annotation on a pool: its UID. It has another value after a restore from a backup."""
EPOCH: Final = f"{GROUP}/epoch"
"""Annotation on an EndpointSlice: epoch of its binding."""
TARGET: Final = f"{GROUP}/target"
"""Annotation on an EndpointSlice: its target, such as Instance/web."""
TARGET_UID: Final = f"{GROUP}/target-uid"
"""Annotation on an EndpointSlice: UID of its target."""
VMI_UID: Final = f"{GROUP}/vmi-uid"
"""Annotation on an EndpointSlice: UID of the VirtualMachineInstance of its target."""
VMI_CREATED: Final = f"{GROUP}/vmi-created"
"""Annotation on an EndpointSlice: creation time of that VirtualMachineInstance."""
SLICE_MANAGER: Final = GROUP
"""Value of the label `SLICE_MANAGED_BY` on the slices of a claim."""

_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def allocation_name(realm: str, address: str) -> str:
    """Return the name of the entry of an address in the ledger, which the CRD validates."""
    if ":" in address:
        return f"{realm}-ip6-{address.replace(':', '-')}-x"
    return f"{realm}-ip4-{address.replace('.', '-')}"


def service_name(claim: str) -> str:
    """Return the name of the Service of a claim: `<claim>-ip`.

    The suffix allows a claim to have the same name as a target Service.
    """
    name = f"{claim}-ip"
    if _SERVICE_NAME.fullmatch(name):
        return name
    # Unlike the name of a Service, the name of a claim can contain dots, begin with a digit and
    # have more than 63 characters.
    return build_name("ip", re.sub(r"[^a-z0-9-]", "-", claim)[:40].strip("-"), short_hash(claim))


def slice_name(claim: str, *, v6: bool) -> str:
    """Return the name of an EndpointSlice of a claim.

    The address type of a slice is immutable, so the name contains the family.
    """
    return build_name(service_name(claim), "v6" if v6 else "v4")
