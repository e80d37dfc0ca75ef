"""Manifests of the children of a Network. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from libs.common.kinds import Manifest, build_object
from libs.contracts.multus import NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1 import NETWORK, Network, ProviderNetwork
from operators.network.api.v1alpha1.network import Isolation
from operators.network.naming import (
    attachment_name,
    deny_policy_name,
    open_policy_name,
    unlabelled_policy_name,
)
from operators.network.resources import (
    Owner,
    PolicyTarget,
    build_metadata,
    build_network_peers,
    build_policy,
    select_instances,
    select_network,
)

_CNI_VERSION: Final = "0.4.0"


def build_deny_policy(network: Network, policy_target: PolicyTarget) -> Manifest:
    """Build the policy that isolates every instance, whatever its firewall.

    Policies are additive, so it does not deny traffic that the policy of a firewall allows. But it
    isolates an instance from its first moment, before another policy names the instance.
    """
    return build_policy(
        _owner_of(network),
        deny_policy_name(network.metadata.name),
        select_network(network.metadata.name),
        policy_target=policy_target,
        outlasts=True,
    )


def build_unlabelled_policy(
    network: Network, unlabelled: Iterable[str], policy_target: PolicyTarget
) -> Manifest:
    """Build the policy that isolates instances whose pods lack the label of the network.

    Their machines were started before pods had the label, and KubeVirt does not add labels to
    existing pods.
    """
    return build_policy(
        _owner_of(network),
        unlabelled_policy_name(network.metadata.name),
        select_instances(unlabelled),
        policy_target=policy_target,
    )


def build_open_policy(
    network: Network,
    bare: Iterable[str],
    unlabelled: Iterable[str],
    policy_target: PolicyTarget,
    egress: Sequence[Manifest],
) -> Manifest:
    """Build the policy that allows the traffic of instances without firewall, by spec.isolation.

    Args:
        network: The Network.
        bare: UIDs of the instances of the network that name no firewall.
        unlabelled: UIDs of the instances of the network whose pods lack its label.
        policy_target: Kind of policy.
        egress: Egress rules of the policy.
    """
    return build_policy(
        _owner_of(network),
        open_policy_name(network.metadata.name),
        select_instances(bare),
        ingress=[_build_entrance(network, unlabelled)],
        egress=egress,
        policy_target=policy_target,
    )


def build_attachment(network: Network, provider: ProviderNetwork) -> Manifest:
    """Build the NetworkAttachmentDefinition of a network that Multus attaches.

    It has no IPAM: guests receive their addresses in the network data of cloud-init.
    """
    name = attachment_name(network.metadata.name)
    config: Manifest = {
        "cniVersion": _CNI_VERSION,
        "name": f"{network.metadata.namespace}-{name}",
        "type": "bridge",
        "bridge": provider.spec.bridge,
        # Prevents a guest from using the MAC address of another guest.
        "macspoofchk": True,
        "ipam": {},
    }
    for field, value in (("vlan", network.spec.vlan), ("mtu", find_mtu(network, provider))):
        if value is not None:
            config[field] = value
    return build_object(
        NETWORK_ATTACHMENT_DEFINITION,
        name,
        network.metadata.namespace,
        metadata=build_metadata(_owner_of(network), {}),
        spec={"config": json.dumps(config, sort_keys=True)},
    )


def find_mtu(network: Network, provider: ProviderNetwork | None) -> int | None:
    """Return the MTU of guests; None if neither the spec nor the ProviderNetwork defines it."""
    return network.spec.mtu or (provider.spec.mtu if provider is not None else None)


def _build_entrance(network: Network, unlabelled: Iterable[str]) -> Manifest:
    match network.spec.isolation:
        case Isolation.NONE:
            return {}
        case Isolation.NAMESPACE:
            return {"from": [{"podSelector": {}}]}
        case Isolation.NETWORK:
            return {"from": build_network_peers(network.metadata.name, unlabelled)}


def _owner_of(network: Network) -> Owner:
    return Owner(NETWORK, network.key, network.metadata.uid)
