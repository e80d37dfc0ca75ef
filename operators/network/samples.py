"""Objects for the tests of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import Manifest, build_object
from libs.contracts.compute import INSTANCE
from operators.network.api.v1alpha1 import (
    FIREWALL,
    NETWORK,
    PROVIDER_NETWORK,
    Firewall,
)

NETWORK_UID: Final = "11111111-1111-4111-8111-111111111111"
"""UID of the Network that `build_network` builds."""
FIREWALL_UID: Final = "22222222-2222-4222-8222-222222222222"
"""UID of the Firewall that `build_firewall` builds."""


def build_network(name: str = "lan", /, **spec: Any) -> Manifest:
    """Build a Network of 10.0.0.0/16, as the API server would return it."""
    return build_object(
        NETWORK,
        name,
        "default",
        metadata={"uid": NETWORK_UID, "generation": 1},
        spec={"cidrs": ["10.0.0.0/16"], **spec},
    )


def build_attached(name: str = "lan", /, **spec: Any) -> Manifest:
    """Build a Network that Multus attaches to VLAN 42 of the ProviderNetwork `fabric`."""
    attached = {"backend": "Multus", "providerNetworkRef": {"name": "fabric"}, "vlan": 42}
    return build_network(name, **{**attached, **spec})


def build_provider(name: str = "fabric", /, **spec: Any) -> Manifest:
    """Build a ProviderNetwork that offers VLANs 40 to 49 of `br0` to all namespaces."""
    offered = {"bridge": "br0", "vlans": [{"first": 40, "last": 49}], "allowedNamespaces": {}}
    return build_object(PROVIDER_NETWORK, name, spec={**offered, **spec})


def build_firewall(name: str = "web", /, *rules: Manifest, **spec: Any) -> Manifest:
    """Build a Firewall with the given rules, as the API server would return it."""
    return build_object(
        FIREWALL,
        name,
        "default",
        metadata={"uid": FIREWALL_UID, "generation": 1},
        spec={"networkRef": {"name": "lan"}, "rules": list(rules), **spec},
    )


def build_rule(name: str, /, **fields: Any) -> Manifest:
    """Build a rule that by default allows TCP from all addresses."""
    return {"name": name, "protocol": "TCP", **fields}


def build_instance(
    name: str = "vm",
    /,
    *,
    network: str = "lan",
    firewall: str = "",
    private_ip: str = "",
    labels: Mapping[str, str] | None = None,
) -> Manifest:
    """Build an Instance with a UID that is derived from its name."""
    spec: Manifest = {"networkRef": {"name": network}} if network else {}
    if firewall:
        spec["firewallRef"] = {"name": firewall}
    return build_object(
        INSTANCE,
        name,
        "default",
        metadata={"uid": f"{name}-uid", **({"labels": dict(labels)} if labels else {})},
        spec=spec,
        status={"privateIP": private_ip} if private_ip else {},
    )


def parse_firewall(name: str = "web", /, *rules: Manifest, **spec: Any) -> Firewall:
    """Build a parsed Firewall."""
    return Firewall.parse(build_firewall(name, *rules, **spec))
