"""Network, Firewall and ProviderNetwork, fuzzed."""

from __future__ import annotations

from typing import Final

from lab.fuzz.subject import FuzzSubject
from libs.common.kinds import Key, Manifest
from libs.common.plan import Apply
from libs.contracts.compute import InstanceView
from libs.contracts.multus import NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1 import Firewall, Network, ProviderNetwork
from operators.network.api.v1alpha1.network import Backend
from operators.network.conformance_test import TestFirewallConformance, TestNetworkConformance
from operators.network.firewall.compiler import compile_firewall
from operators.network.firewall.reconcile import Observed as AroundFirewall
from operators.network.firewall.reconcile import plan_firewall
from operators.network.network.reconcile import Observed as AroundNetwork
from operators.network.network.reconcile import plan_network
from operators.network.samples import build_instance, build_provider


def render_network(manifest: Manifest) -> list[Manifest]:
    """Make the policies of a network with one instance, as the network of pods has them."""
    network = Network.parse(manifest)
    served = frozenset({NETWORK_ATTACHMENT_DEFINITION})
    provider = ProviderNetwork.parse(build_provider())
    plan_network(network, AroundNetwork(served=served, provider=provider))
    pods = network.spec.model_copy(update={"backend": Backend.POD_NETWORK})
    network = network.model_copy(update={"spec": pods})
    plain = InstanceView.parse(build_instance("plain", network=network.metadata.name))
    plan = plan_network(network, AroundNetwork((plain,)))
    return [step.manifest for batch in plan for step in batch if isinstance(step, Apply)]


def render_provider(manifest: Manifest) -> list[Manifest]:
    """Read a ProviderNetwork, of which nothing is made."""
    ProviderNetwork.parse(manifest)
    return []


def render_firewall(manifest: Manifest) -> list[Manifest]:
    """Make the policy of a firewall with one instance."""
    firewall = Firewall.parse(manifest)
    member = InstanceView.parse(build_instance("vm", firewall=firewall.metadata.name))
    assert member.key == Key("default", "vm")
    plan = plan_firewall(firewall, compile_firewall(firewall.spec), AroundFirewall(None, (member,)))
    return [step.manifest for batch in plan for step in batch if isinstance(step, Apply)]


SUBJECTS: Final = (
    FuzzSubject(
        "network",
        Network,
        {
            "cidrs": ["10.0.0.0/16", "fd00::/64"],
            "backend": "Multus",
            "providerNetworkRef": {"name": "fabric"},
            "vlan": 42,
            "poolRef": {"name": "lan"},
            "gateway": "10.0.0.1",
            "nameservers": ["10.0.0.2"],
            "routes": [
                {"destination": "10.9.0.0/16", "nextHop": {"instanceRef": {"name": "router"}}},
                {"destination": "10.8.0.0/16", "nextHop": {"ip": "10.0.0.9"}},
            ],
        },
        render_network,
        live=TestNetworkConformance.subject,
    ),
    FuzzSubject(
        "network",
        ProviderNetwork,
        {
            "bridge": "br0",
            "vlans": [{"first": 40, "last": 49}, {"first": 7}],
            "mtu": 1500,
            "allowedNamespaces": {"matchLabels": {"tenant": "a"}},
        },
        render_provider,
    ),
    FuzzSubject(
        "network",
        Firewall,
        {
            "networkRef": {"name": "lan"},
            "rules": [
                {"name": "ssh", "protocol": "TCP", "ports": [22, "80-90"], "cidrs": ["10.0.0.0/8"]},
                {
                    "name": "peers",
                    "protocol": "ALL",
                    "peers": [
                        {"firewallRef": {"name": "web"}},
                        {"networkRef": {"name": "lan"}},
                        {"instances": {"matchLabels": {"role": "db"}}},
                        {"namespaceSelector": {"matchLabels": {"team": "a"}}},
                    ],
                },
                {"name": "bad", "protocol": "ALL", "action": "Deny", "cidrs": ["fd00::/8"]},
            ],
        },
        render_firewall,
        live=TestFirewallConformance.subject,
    ),
)
