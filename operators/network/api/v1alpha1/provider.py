"""ProviderNetwork v1alpha1: a bridge of the nodes that administrators offer to Networks."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from libs.common.crd import (
    AGE,
    CustomResource,
    Immutable,
    KubernetesModel,
    LabelSelector,
    ListAtomic,
    PrinterColumn,
    Rule,
    ShortText,
    kind_of,
)
from libs.common.kinds import Kind
from operators.network.api.v1alpha1.fields import GROUP

_BACKWARDS: Final = "last must not be less than first"

Vlan = Annotated[int, Field(ge=1, le=4094)]
"""The number of a VLAN."""
Mtu = Annotated[int, Field(ge=576, le=65535)]
"""The largest packet in bytes."""


class Untagged(StrEnum):
    """Untagged defines whether Networks can use a bridge without a VLAN."""

    FORBIDDEN = "Forbidden"
    ALLOWED = "Allowed"


class VlanSharing(StrEnum):
    """VlanSharing defines whether Networks of several namespaces can use one VLAN."""

    ONE_NAMESPACE = "OneNamespace"
    ALL_NAMESPACES = "AllNamespaces"


class VlanRange(
    KubernetesModel,
    rules=(Rule("!has(self.last) || self.last >= self.first", _BACKWARDS, field_path=".last"),),
):
    """VlanRange is one VLAN, or several in sequence."""

    first: Vlan
    """first is the lowest VLAN."""
    last: Vlan | None = None
    """last is the highest VLAN. Defaults to first."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.last is not None and self.last < self.first:
            raise ValueError(_BACKWARDS)
        return self

    def holds(self, vlan: int) -> bool:
        """Return whether a VLAN is in the range."""
        return self.first <= vlan <= (self.last or self.first)


class ProviderNetworkSpec(KubernetesModel):
    """ProviderNetworkSpec describes a bridge of the nodes and who may attach machines to it."""

    bridge: Annotated[
        str,
        Field(min_length=1, max_length=15, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"),
        Immutable(),
    ]
    """bridge is the name of the Linux bridge on each node. Machines stay on the bridge with which
    they started, so another bridge needs another ProviderNetwork. Immutable."""
    vlans: Annotated[list[VlanRange], ListAtomic(), Field(max_length=64)] = []
    """vlans are the VLANs that Networks may choose. Defaults to none."""
    vlan_sharing: VlanSharing = VlanSharing.ONE_NAMESPACE
    """vlanSharing is OneNamespace if a VLAN belongs to the first namespace that uses it, until that
    namespace has no Network with the VLAN and no running pod, or AllNamespaces if machines of all
    allowed namespaces can share a VLAN. Defaults to OneNamespace."""
    untagged: Untagged = Untagged.FORBIDDEN
    """untagged says whether a Network may attach machines without a VLAN. On many bridges untagged
    packets reach the nodes themselves. All allowed namespaces share them. Defaults to
    Forbidden."""
    mtu: Mtu | None = None
    """mtu is the largest packet in bytes that the bridge carries. Networks may ask for less.
    Defaults to the MTU of the bridge."""
    allowed_namespaces: LabelSelector
    """allowedNamespaces selects the namespaces whose Networks may name this object. An empty
    selector selects all namespaces."""
    description: ShortText = ""
    """description helps people choose a network."""

    def permits(self, vlan: int | None) -> bool:
        """Return whether a Network can use a VLAN; None stands for untagged packets."""
        if vlan is None:
            return self.untagged is Untagged.ALLOWED
        return any(each.holds(vlan) for each in self.vlans)


class ProviderNetwork(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="providernetworks",
    scope="Cluster",
    short_names=("pnet",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Bridge", "string", ".spec.bridge"),
        PrinterColumn("Untagged", "string", ".spec.untagged"),
        PrinterColumn("MTU", "integer", ".spec.mtu"),
        PrinterColumn("Description", "string", ".spec.description", priority=1),
        AGE,
    ),
):
    """ProviderNetwork is a bridge of the nodes that administrators offer to Networks."""

    spec: ProviderNetworkSpec
    """spec describes the bridge and who may use it."""


PROVIDER_NETWORK: Final[Kind] = kind_of(ProviderNetwork)
"""The kind as a value, for the client and the generator."""
