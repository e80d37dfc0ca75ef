"""Manifests of the policies of a firewall. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from libs.common.kinds import Manifest
from operators.network.api.v1alpha1 import FIREWALL, Firewall
from operators.network.firewall.compiler import AllowRule, CompiledFirewall, PortRange
from operators.network.firewall.cover import Block
from operators.network.firewall.peers import (
    CLUSTER_DNS,
    PeerCandidates,
    ResolvedPeers,
    resolve_peers,
)
from operators.network.naming import closing_policy_name, firewall_policy_name
from operators.network.resources import (
    ClusterDns,
    Owner,
    PolicyTarget,
    build_policy,
    select_instances,
)

_NOBODY_AROUND: Final = PeerCandidates()
_NO_PEERS: Final = ResolvedPeers()


def build_firewall_policy(
    firewall: Firewall,
    compiled: CompiledFirewall,
    members: Iterable[str],
    policy_target: PolicyTarget,
    around: PeerCandidates = _NOBODY_AROUND,
) -> Manifest:
    """Build the policy of a firewall: one object, so that all rules change atomically."""
    selections = select_peers(compiled, around)
    return build_policy(
        Owner(FIREWALL, firewall.key, firewall.metadata.uid),
        firewall_policy_name(firewall.metadata.name),
        select_instances(members),
        ingress=build_rules(compiled.ingress, "from", policy_target, selections),
        egress=build_rules(compiled.egress, "to", policy_target, selections),
        policy_target=policy_target,
    )


def build_closing_policy(firewall: Firewall, uids: Iterable[str]) -> Manifest:
    """Build the policy of a firewall that isolates instances without Network, and allows nothing.

    It is always a NetworkPolicy, because such instances are on the pod network.
    """
    return build_policy(
        Owner(FIREWALL, firewall.key, firewall.metadata.uid),
        closing_policy_name(firewall.metadata.name),
        select_instances(uids),
        policy_target=PolicyTarget(),
        outlasts=True,
    )


def select_peers(compiled: CompiledFirewall, around: PeerCandidates) -> ResolvedPeers:
    """Resolve the peers of a compiled firewall."""
    allow_rules = (*compiled.ingress, *compiled.egress)
    peers = dict.fromkeys(peer for allow_rule in allow_rules for peer in allow_rule.peers)
    return resolve_peers(peers, around)


def build_rules(
    allow_rules: Iterable[AllowRule],
    field: str,
    policy_target: PolicyTarget,
    selections: ResolvedPeers = _NO_PEERS,
) -> list[Manifest]:
    """Build the rules of one direction of a policy.

    Args:
        allow_rules: The compiled rules.
        field: Field of the other end: `from` or `to`.
        policy_target: Kind of policy, and the families of its blocks.
        selections: Resolved peers of the rules.
    """
    kept = (_narrow(allow_rule, policy_target) for allow_rule in allow_rules)
    return [
        (
            _build_dns_rule(each, field, policy_target.dns)
            if CLUSTER_DNS in each.peers
            else _build_rule(each, field, selections)
        )
        for each in kept
        if each is not None
    ]


def _narrow(allow_rule: AllowRule, policy_target: PolicyTarget) -> AllowRule | None:
    """Remove the blocks of families that the network does not have.

    Return None for a rule without other blocks: a rule without any block would allow everything.
    """
    blocks = tuple(each for each in allow_rule.blocks if each.family in policy_target.families)
    return None if allow_rule.blocks and not blocks else replace(allow_rule, blocks=blocks)


def _build_dns_rule(allow_rule: AllowRule, field: str, dns: ClusterDns) -> Manifest:
    """Build the rule for the DNS service: its port, and the port on which its pods listen."""
    numbers = dict.fromkeys((53, dns.port))
    protocols = dict.fromkeys(each.protocol for each in allow_rule.ports)
    ports = [{"protocol": str(each), "port": number} for each in protocols for number in numbers]
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": dns.namespace}}
    return {field: [{"namespaceSelector": namespace}], "ports": ports}


def _build_rule(allow_rule: AllowRule, field: str, selections: ResolvedPeers) -> Manifest:
    rule: Manifest = {}
    if allow_rule.peers:
        rule[field] = [part for peer in allow_rule.peers for part in selections.peers[peer]]
    elif allow_rule.blocks:
        rule[field] = [{"ipBlock": _build_block(block)} for block in allow_rule.blocks]
    if allow_rule.ports:
        rule["ports"] = [_build_port(ports) for ports in allow_rule.ports]
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
