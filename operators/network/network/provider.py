"""Permissions that a ProviderNetwork grants to a Network. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from operators.network.api.v1alpha1 import Network, ProviderNetwork
from operators.network.api.v1alpha1.network import NetworkReason

type Objection = tuple[NetworkReason, str]
"""Why a Network may not attach machines: the reason, and a message that names the field."""


def find_objection(
    network: Network,
    provider: ProviderNetwork | None,
    labels: Mapping[str, str],
    *,
    taken: bool = False,
) -> Objection | None:
    """Return why a Network may not attach machines; None if it may.

    Args:
        network: A Network of backend Multus.
        provider: The ProviderNetwork in its spec; None if it does not exist.
        labels: Labels of the namespace of the Network.
        taken: Whether another namespace has the VLAN.
    """
    reference, vlan = network.spec.provider_network_ref, network.spec.vlan
    if reference is None:
        message = "spec.providerNetworkRef is not set; set it to a ProviderNetwork"
        return NetworkReason.PROVIDER_NETWORK_MISSING, message
    name = f"ProviderNetwork {reference.name}"
    if provider is None:
        message = f"spec.providerNetworkRef: {name} does not exist or is invalid"
        return NetworkReason.PROVIDER_NETWORK_MISSING, message
    if not provider.spec.allowed_namespaces.matches(labels):
        message = f"{name} does not allow this namespace; see its spec.allowedNamespaces"
        return NetworkReason.NAMESPACE_NOT_ALLOWED, message
    if not provider.spec.permits(vlan):
        asked = "untagged packets; set spec.vlan" if vlan is None else f"spec.vlan {vlan}"
        return NetworkReason.VLAN_NOT_ALLOWED, f"{name} does not allow {asked}"
    if taken:
        message = f"spec.vlan {vlan} of {name} belongs to another namespace; choose another VLAN"
        return NetworkReason.VLAN_TAKEN, message
    if (network.spec.mtu or 0) > (provider.spec.mtu or 65_535):
        message = f"{name} carries packets of {provider.spec.mtu} bytes; reduce spec.mtu"
        return NetworkReason.MTU_TOO_LARGE, message
    return None
