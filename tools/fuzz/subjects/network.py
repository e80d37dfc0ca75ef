"""Network and Firewall, fuzzed."""

from __future__ import annotations

from typing import Final

from libs.common.contracts.compute import InstanceView
from libs.common.contracts.multus import NETWORK_ATTACHMENT_DEFINITION
from libs.common.kinds import Key, Manifest
from libs.common.plan import Apply
from operators.network.api.v1alpha1 import Firewall, Network
from operators.network.conformance_test import TestFirewallConformance, TestNetworkConformance
from operators.network.firewall.compiler import compile_firewall
from operators.network.firewall.reconcile import Observed as AroundFirewall
from operators.network.firewall.reconcile import plan_firewall
from operators.network.network.reconcile import Observed as AroundNetwork
from operators.network.network.reconcile import plan_network
from operators.network.samples import build_instance
from tools.fuzz.subject import FuzzSubject


def render_network(manifest: Manifest) -> list[Manifest]:
    """Make the policies of a network with one instance."""
    network = Network.parse(manifest)
    plain = InstanceView.parse(build_instance("plain", network=network.metadata.name))
    observed = AroundNetwork((plain,), served=frozenset({NETWORK_ATTACHMENT_DEFINITION}))
    return [
        step.manifest
        for batch in plan_network(network, observed)
        for step in batch
        if isinstance(step, Apply) and step.kind != NETWORK_ATTACHMENT_DEFINITION
    ]


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
        Firewall,
        {
            "networkRef": {"name": "lan"},
            "rules": [
                {"name": "ssh", "protocol": "TCP", "ports": [22, "80-90"], "cidrs": ["10.0.0.0/8"]},
                {"name": "bad", "protocol": "ALL", "action": "Deny", "cidrs": ["fd00::/8"]},
            ],
        },
        render_firewall,
        live=TestFirewallConformance.subject,
    ),
)
