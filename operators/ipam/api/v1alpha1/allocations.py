"""IPAllocation v1alpha1: one entry of the ledger, that is, one allocated address.

The name of an entry consists of realm and address; the API server validates this. So no two entries
can exist for one address, no matter who writes them: creating the entry is the lock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.crd import (
    AGE,
    Conditions,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    KubernetesModel,
    PrinterColumn,
    Rule,
    Timestamp,
    Uid,
    kind_of,
)
from operators.ipam.api.v1alpha1.fields import GROUP, Address, NamedReference, Realm


class AllocationCondition(StrEnum):
    """Conditions of an IPAllocation. The entry of an address in use has none."""

    RELEASED = "Released"
    """Released is True when the claim no longer exists and the address is in quarantine."""
    TERMINATING = "Terminating"
    """Terminating is True when somebody deleted the entry of an address that is in use."""


class AllocationReason(StrEnum):
    """Reasons of the conditions and events of an IPAllocation."""

    QUARANTINED = "Quarantined"
    """Quarantined means that the address cannot be allocated to another claim until
    status.quarantinedUntil."""
    RETURNED = "Returned"
    """Returned means that the address is free again."""
    SURPLUS = "Surplus"
    """Surplus means that the claim has another address; this address was never used."""
    HELD_BY_CLAIM = "HeldByClaim"
    """HeldByClaim means that a claim still has the address; delete the claim to release it."""
    HELD_BY_SERVICE = "HeldByService"
    """HeldByService means that a Service has the address without a claim; delete the Service to
    release the address."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


class ClaimReference(KubernetesModel):
    """ClaimReference names one incarnation of an IPClaim."""

    namespace: DnsLabel
    """namespace is the namespace of the claim."""
    name: DnsSubdomain
    """name is the name of the claim."""
    uid: Annotated[Uid, Field(min_length=1)]
    """uid is the UID of the object."""


class IPAllocationSpec(
    KubernetesModel,
    rules=(Rule("self == oldSelf", "an IPAllocation is immutable"),),
):
    """IPAllocationSpec names an address and the claim that has it. It is immutable."""

    realm: Realm
    """realm is the space in which the address is unique."""
    address: Address
    """address is the allocated address."""
    pool_ref: NamedReference
    """poolRef names the pool of the address."""
    claim_ref: ClaimReference
    """claimRef names the claim that has the address."""


class IPAllocationStatus(KubernetesModel):
    """IPAllocationStatus describes the release of the address.

    It is absent while the address is in use.
    """

    conditions: Conditions = []
    """conditions report whether the address was released."""
    released_at: Timestamp | None = None
    """releasedAt is the time at which the claim was found deleted."""
    quarantined_until: Timestamp | None = None
    """quarantinedUntil is the time after which another claim can get the address."""


class IPAllocation(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="ipallocations",
    scope="Cluster",
    short_names=("ipa",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Address", "string", ".spec.address"),
        PrinterColumn("Pool", "string", ".spec.poolRef.name"),
        PrinterColumn("Claim-NS", "string", ".spec.claimRef.namespace"),
        PrinterColumn("Claim", "string", ".spec.claimRef.name"),
        PrinterColumn("Quarantined-Until", "string", ".status.quarantinedUntil"),
        PrinterColumn("Realm", "string", ".spec.realm", priority=1),
        AGE,
    ),
    rules=(
        Rule(
            "self.metadata.name == self.spec.realm + (self.spec.address.contains(':') "
            "? '-ip6-' + self.spec.address.replace(':', '-') + '-x' "
            ": '-ip4-' + self.spec.address.replace('.', '-'))",
            "metadata.name must be made of spec.realm and spec.address "
            "(public-ip4-203-0-113-7): the name guarantees that an address is allocated only once",
        ),
    ),
    conditions=AllocationCondition,
    reasons=AllocationReason,
):
    """IPAllocation is an entry of the ledger: one address, and the claim that has it.

    Only the operator writes entries.
    """

    spec: IPAllocationSpec
    """spec is the address and its owner."""
    status: IPAllocationStatus | None = None
    """status describes the release of the address."""


IP_ALLOCATION = kind_of(IPAllocation)
"""The kind IPAllocation."""
