"""References to the instancetypes and preferences of KubeVirt."""

from __future__ import annotations

from enum import StrEnum

from libs.common.crd import DnsSubdomain, KubernetesModel
from libs.contracts.instancetypes import Matcher


class InstancetypeKind(StrEnum):
    """InstancetypeKind is the scope of an instancetype."""

    CLUSTER = "VirtualMachineClusterInstancetype"
    NAMESPACE = "VirtualMachineInstancetype"


class PreferenceKind(StrEnum):
    """PreferenceKind is the scope of a preference."""

    CLUSTER = "VirtualMachineClusterPreference"
    NAMESPACE = "VirtualMachinePreference"


class Instancetype(KubernetesModel):
    """Instancetype names an instancetype of KubeVirt, which defines processors and memory."""

    name: DnsSubdomain
    """name is the name of the instancetype."""
    kind: InstancetypeKind = InstancetypeKind.CLUSTER
    """kind is VirtualMachineClusterInstancetype, or VirtualMachineInstancetype for one in the
    namespace of the Instance. Defaults to VirtualMachineClusterInstancetype."""

    @property
    def matcher(self) -> Matcher:
        """The reference as a machine holds it."""
        return Matcher(str(self.kind), self.name)


class Preference(KubernetesModel):
    """Preference names a preference of KubeVirt, which chooses devices for a guest."""

    name: DnsSubdomain
    """name is the name of the preference."""
    kind: PreferenceKind = PreferenceKind.CLUSTER
    """kind is VirtualMachineClusterPreference, or VirtualMachinePreference for one in the namespace
    of the Instance. Defaults to VirtualMachineClusterPreference."""

    @property
    def matcher(self) -> Matcher:
        """The reference as a machine holds it."""
        return Matcher(str(self.kind), self.name)


type SizeRef = str | Instancetype
"""What defines processors and memory: the name of an InstanceSize, or an instancetype."""


def describe_size(size: SizeRef | None) -> str:
    """Return a size for people: `size large`, `VirtualMachineClusterInstancetype u1.small`."""
    return str(size.matcher) if isinstance(size, Instancetype) else f"size {size or 'unknown'}"
