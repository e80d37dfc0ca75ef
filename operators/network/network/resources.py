"""What a Network makes; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from libs.common.contracts.multus import NETWORK_ATTACHMENT_DEFINITION
from libs.common.kinds import Manifest, build_object
from operators.network.api.v1alpha1 import NETWORK, Network
from operators.network.api.v1alpha1.network import Isolation
from operators.network.naming import attachment_name, deny_policy_name, open_policy_name
from operators.network.resources import (
    Carrier,
    Owner,
    build_metadata,
    build_policy,
    select_every_instance,
    select_instances,
)

_CNI_VERSION: Final = "0.4.0"


def build_deny_policy(network: Network, carrier: Carrier) -> Manifest:
    """Build the policy that closes every instance, whatever its network or firewall.

    Policies add up, so it takes nothing away from what a firewall opens; but an instance that no
    other policy names yet is closed, from its first moment.
    """
    return build_policy(
        _owner_of(network),
        deny_policy_name(network.metadata.name),
        select_every_instance(),
        carrier=carrier,
        outlasts=True,
    )


def build_open_policy(
    network: Network, bare: Iterable[str], members: Iterable[str], carrier: Carrier
) -> Manifest:
    """Build the policy that opens the instances without firewall as far as `isolation` says.

    Args:
        network: Whose policy it is.
        bare: UIDs of the instances of the network that name no firewall.
        members: UIDs of all instances of the network.
        carrier: Kind of policy.
    """
    return build_policy(
        _owner_of(network),
        open_policy_name(network.metadata.name),
        select_instances(bare),
        ingress=[_build_entrance(network.spec.isolation, members)],
        egress=[{}],
        carrier=carrier,
    )


def build_attachment(network: Network) -> Manifest:
    """Build the NetworkAttachmentDefinition of a network that Multus attaches.

    It has no addresses to give: machines get theirs from cloud-init, which is told of them.
    """
    name = attachment_name(network.metadata.name)
    config: Manifest = {
        "cniVersion": _CNI_VERSION,
        "name": f"{network.metadata.namespace}-{name}",
        "type": "bridge",
        "bridge": network.spec.bridge,
        # A guest may not use the hardware address of another one.
        "macspoofchk": True,
        "ipam": {},
    }
    for field, value in (("vlan", network.spec.vlan), ("mtu", network.spec.mtu)):
        if value is not None:
            config[field] = value
    return build_object(
        NETWORK_ATTACHMENT_DEFINITION,
        name,
        network.metadata.namespace,
        metadata=build_metadata(_owner_of(network), {}),
        spec={"config": json.dumps(config, sort_keys=True)},
    )


def _build_entrance(isolation: Isolation, members: Iterable[str]) -> Manifest:
    match isolation:
        case Isolation.NONE:
            return {}
        case Isolation.NAMESPACE:
            return {"from": [{"podSelector": {}}]}
        case Isolation.NETWORK:
            return {"from": [{"podSelector": select_instances(members)}]}


def _owner_of(network: Network) -> Owner:
    return Owner(NETWORK, network.key, network.metadata.uid)
