"""The policy of a firewall; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from libs.common.kinds import Manifest
from operators.network.api.v1alpha1 import FIREWALL, Firewall
from operators.network.firewall.compiler import Compiled, Opening, PortRange
from operators.network.firewall.cover import Block
from operators.network.firewall.peers import Selections, Surroundings, resolve_peers
from operators.network.naming import closing_policy_name, firewall_policy_name
from operators.network.resources import Carrier, Owner, build_policy, select_instances

_NOBODY_AROUND: Final = Surroundings()
_NO_PEERS: Final = Selections()


def build_firewall_policy(
    firewall: Firewall,
    compiled: Compiled,
    members: Iterable[str],
    carrier: Carrier,
    around: Surroundings = _NOBODY_AROUND,
) -> Manifest:
    """Build the policy of a firewall: one object, so that it changes as a whole.

    Args:
        firewall: Whose policy it is.
        compiled: Its rules.
        members: UIDs of the covered instances.
        carrier: Kind of policy.
        around: Instances that the peers of rules may be.
    """
    selections = select_peers(compiled, around)
    return build_policy(
        Owner(FIREWALL, firewall.key, firewall.metadata.uid),
        firewall_policy_name(firewall.metadata.name),
        select_instances(members),
        ingress=build_rules(compiled.ingress, "from", carrier, selections),
        egress=build_rules(compiled.egress, "to", carrier, selections),
        carrier=carrier,
    )


def build_closing_policy(firewall: Firewall, uids: Iterable[str]) -> Manifest:
    """Build the policy of a firewall that closes instances without Network, and opens nothing.

    It is always a NetworkPolicy, since such instances are on the pod network.

    Args:
        firewall: Whose policy it is.
        uids: UIDs of the instances.
    """
    return build_policy(
        Owner(FIREWALL, firewall.key, firewall.metadata.uid),
        closing_policy_name(firewall.metadata.name),
        select_instances(uids),
        carrier=Carrier(),
        outlasts=True,
    )


def select_peers(compiled: Compiled, around: Surroundings) -> Selections:
    """Resolve the peers of a compiled firewall."""
    openings = (*compiled.ingress, *compiled.egress)
    peers = dict.fromkeys(peer for opening in openings for peer in opening.peers)
    return resolve_peers(peers, around)


def build_rules(
    openings: Iterable[Opening],
    field: str,
    carrier: Carrier,
    selections: Selections = _NO_PEERS,
) -> list[Manifest]:
    """Build the rules of one direction of a policy.

    Args:
        openings: What may pass.
        field: Field of the other end: `from` or `to`.
        carrier: Kind of policy, and the families of its blocks.
        selections: What stands for the peers of the openings.
    """
    kept = (_narrow(opening, carrier) for opening in openings)
    return [_build_rule(opening, field, selections) for opening in kept if opening is not None]


def _narrow(opening: Opening, carrier: Carrier) -> Opening | None:
    """Leave out the blocks of families that the network does not have.

    None stands for an opening that has no other block: one without blocks would open everything.
    """
    blocks = tuple(each for each in opening.blocks if each.family in carrier.families)
    return None if opening.blocks and not blocks else replace(opening, blocks=blocks)


def _build_rule(opening: Opening, field: str, selections: Selections) -> Manifest:
    rule: Manifest = {}
    if opening.peers:
        rule[field] = [part for peer in opening.peers for part in selections.peers[peer]]
    elif opening.blocks:
        rule[field] = [{"ipBlock": _build_block(block)} for block in opening.blocks]
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
