"""The policy of a firewall; pure."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.kinds import Manifest
from operators.network.api.v1alpha1 import FIREWALL, Firewall
from operators.network.firewall.compiler import Compiled, Opening, PortRange
from operators.network.firewall.cover import Block
from operators.network.naming import firewall_policy_name
from operators.network.resources import Carrier, Owner, build_policy, select_instances


def build_firewall_policy(
    firewall: Firewall, compiled: Compiled, members: Iterable[str], carrier: Carrier
) -> Manifest:
    """Build the policy of a firewall: one object, so that it changes as a whole.

    Args:
        firewall: Whose policy it is.
        compiled: Its rules.
        members: UIDs of the instances that it is for.
        carrier: Kind of policy.
    """
    return build_policy(
        Owner(FIREWALL, firewall.key, firewall.metadata.uid),
        firewall_policy_name(firewall.metadata.name),
        select_instances(members),
        ingress=[_build_rule(opening, "from") for opening in compiled.ingress],
        egress=[_build_rule(opening, "to") for opening in compiled.egress],
        carrier=carrier,
    )


def _build_rule(opening: Opening, peers: str) -> Manifest:
    rule: Manifest = {}
    if opening.blocks:
        rule[peers] = [{"ipBlock": _build_block(block)} for block in opening.blocks]
    if opening.ports:
        rule["ports"] = [_build_port(ports) for ports in opening.ports]
    return rule


def _build_block(block: Block) -> Manifest:
    built: Manifest = {"cidr": block.cidr}
    return {**built, "except": list(block.excepts)} if block.excepts else built


def _build_port(ports: PortRange) -> Manifest:
    built: Manifest = {"protocol": str(ports.protocol)}
    if ports.ports is None:
        return built
    first, last = ports.ports
    built["port"] = first
    return {**built, "endPort": last} if last != first else built
