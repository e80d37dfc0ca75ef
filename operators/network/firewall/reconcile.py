"""What a Firewall needs next, and what it shows of itself; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from libs.common.conditions import Condition, build_conditions
from libs.common.contracts.compute import InstanceView
from libs.common.contracts.multus import MULTI_NETWORK_POLICY
from libs.common.contracts.network import NetworkView
from libs.common.kinds import Key, Kind, Manifest, uid_of
from libs.common.plan import Step
from operators.network.api.v1alpha1 import Firewall
from operators.network.api.v1alpha1.firewall import (
    MEMBERS_LIMIT,
    FirewallCondition,
    FirewallReason,
)
from operators.network.api.v1alpha1.network import Backend
from operators.network.children import (
    Child,
    drop_empty,
    plan_children,
    render_users,
    show_users,
)
from operators.network.firewall.compiler import Compiled, Shortfall
from operators.network.firewall.resources import build_firewall_policy
from operators.network.resources import Carrier, list_selected

type Refusal = tuple[FirewallReason, str]
"""Why a step failed: the reason, and the words of the API server."""

_SECONDARY: Final = (
    f"the network is attached by Multus and the cluster does not serve "
    f"{MULTI_NETWORK_POLICY.resource}: no rule can be in force, and no machine starts"
)


@dataclass(frozen=True, slots=True)
class Observed:
    """Show what there is around one Firewall.

    Attributes:
        network: The network of the firewall; None when it does not exist.
        members: Instances that name the firewall.
        objects: Policies by kind and key, whosever they are.
        owned: Policies that the firewall controls.
        served: Optional kinds that the cluster serves.
        open_elsewhere: UIDs of instances that a policy of another owner opens still.
        others: Other networks that members are on, by name; one that does not exist is left out.
    """

    network: NetworkView | None = None
    members: tuple[InstanceView, ...] = ()
    objects: Mapping[tuple[Kind, Key], Manifest] = field(default_factory=dict)
    owned: tuple[tuple[Kind, Manifest], ...] = ()
    served: frozenset[Kind] = frozenset()
    open_elsewhere: frozenset[str] = frozenset()
    others: Mapping[str, NetworkView] = field(default_factory=dict)


def find_carrier(observed: Observed) -> Carrier | None:
    """Return what the policy is written as; None where nothing reaches the interfaces."""
    network = observed.network
    if network is None or network.backend != Backend.MULTUS:
        return Carrier()
    if MULTI_NETWORK_POLICY in observed.served:
        return Carrier.of_attachment(network.key)
    return None


def is_reached(firewall: Firewall, observed: Observed, member: InstanceView) -> bool:
    """Tell whether the policy reaches the interface of an instance, whatever its network.

    A NetworkPolicy reaches all that is on the network of pods, and a MultiNetworkPolicy the one
    network that it is for.
    """
    if member.network == firewall.spec.network_ref.name:
        return True
    other = observed.others.get(member.network)
    on_pods = not member.network or (other is not None and other.backend != Backend.MULTUS)
    return on_pods and find_carrier(observed) == Carrier()


def choose_members(observed: Observed) -> list[InstanceView]:
    """Choose the instances that the policy names: who is in it stays, the others by name."""
    held = {uid for _, policy in observed.owned for uid in list_selected(policy)}
    ranked = sorted(observed.members, key=lambda each: (each.uid not in held, each.key))
    return sorted(ranked[:MEMBERS_LIMIT], key=lambda each: each.key)


def build_child(firewall: Firewall, compiled: Compiled, observed: Observed) -> Child | None:
    """Build the policy; None where there is nothing to write it as."""
    carrier = find_carrier(observed)
    if carrier is None:
        return None
    uids = [member.uid for member in choose_members(observed)]
    manifest = build_firewall_policy(firewall, compiled, uids, carrier)
    key = Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
    return Child(carrier.kind, manifest, observed.objects.get((carrier.kind, key)))


def plan_firewall(firewall: Firewall, compiled: Compiled, observed: Observed) -> list[list[Step]]:
    """Plan the steps that bring the policy in line."""
    child = build_child(firewall, compiled, observed)
    wanted = None if child is None else (child.kind, child.key)
    surplus = [
        (kind, manifest)
        for kind, manifest in observed.owned
        if (kind, Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])) != wanted
    ]
    return plan_children([] if child is None else [child], surplus)


def build_status(
    firewall: Firewall,
    compiled: Compiled,
    observed: Observed,
    refusal: Refusal | None,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status.

    Args:
        firewall: What is asked for.
        compiled: Its rules as the backend can say them.
        observed: What there is, after the steps of this pass.
        refusal: Why a step of this pass failed.
        current: Conditions as the object shows them.
        now: Time of the transitions that happen here.
    """
    child = build_child(firewall, compiled, observed)
    shortfalls = _list_shortfalls(compiled, child)
    covered = _list_covered(firewall, observed, child)
    users = [f"Instance {member.key.name}" for member in observed.members]
    conditions = [
        _judge_ready(firewall, observed, child, covered, shortfalls, refusal),
        _judge_enforced(shortfalls),
        *_judge_terminating(firewall, users),
    ]
    generation = firewall.metadata.generation
    status: Manifest = {
        "conditions": build_conditions(current, conditions, generation=generation, now=now),
        "observedGeneration": generation,
        "backend": "" if child is None else child.kind.kind,
        "appliedHash": "" if child is None else _hash(child),
        "instances": [{"name": each.key.name, "uid": each.uid} for each in covered],
        "unenforceable": [
            {"rule": each.rule, "reason": str(each.reason), "message": each.message}
            for each in shortfalls
        ],
        **show_users(users),
    }
    if child is not None and child.is_ours:
        status["policyRef"] = {"name": child.key.name, "uid": uid_of(child.live or {})}
    return drop_empty(status)


def _list_shortfalls(compiled: Compiled, child: Child | None) -> list[Shortfall]:
    if child is None:
        return [Shortfall("networkRef", FirewallReason.SECONDARY_INTERFACE, _SECONDARY)]
    return list(compiled.shortfalls)


def _list_covered(
    firewall: Firewall, observed: Observed, child: Child | None
) -> list[InstanceView]:
    """List the instances for which nothing but the rules holds: their machines may start."""
    if child is None or not child.stands or child.live is None:
        return []
    held = set(list_selected(child.live)) - observed.open_elsewhere
    return [
        member
        for member in choose_members(observed)
        if member.uid in held and is_reached(firewall, observed, member)
    ]


def _judge_ready(
    firewall: Firewall,
    observed: Observed,
    child: Child | None,
    covered: Sequence[InstanceView],
    shortfalls: Sequence[Shortfall],
    refusal: Refusal | None,
) -> Condition:
    def lack(reason: FirewallReason, message: str) -> Condition:
        return Condition.false(FirewallCondition.READY, reason, message)

    if firewall.metadata.is_deleting:
        return lack(FirewallReason.IN_USE, "the Firewall is being deleted")
    if child is None:
        return lack(FirewallReason.SECONDARY_INTERFACE, _SECONDARY)
    if not child.stands:
        return lack(*(refusal or (FirewallReason.POLICY_MISSING, f"{child} is not there yet")))
    if len(observed.members) > MEMBERS_LIMIT:
        message = (
            f"{len(observed.members)} instances name the firewall, {MEMBERS_LIMIT} can; "
            "make another firewall for the rest"
        )
        return lack(FirewallReason.TOO_MANY_INSTANCES, message)
    beyond = [
        each.key.name for each in observed.members if not is_reached(firewall, observed, each)
    ]
    if beyond:
        message = f"the policy does not reach the network of {render_users(beyond)}"
        return lack(FirewallReason.OTHER_NETWORK, message)
    open_yet = [each.key.name for each in observed.members if each not in covered]
    if open_yet:
        message = f"another policy still opens {render_users(open_yet)}"
        return lack(FirewallReason.OPEN_ELSEWHERE, message)
    if observed.network is None:
        message = f"Network {firewall.spec.network_ref.name}, the spec.networkRef, does not exist"
        return lack(FirewallReason.NETWORK_NOT_FOUND, message)
    reason = FirewallReason.UNENFORCEABLE if shortfalls else FirewallReason.IN_FORCE
    message = f"{child} stands for {len(covered)} instances"
    return Condition.true(FirewallCondition.READY, reason, message)


def _judge_enforced(shortfalls: Sequence[Shortfall]) -> Condition:
    type_ = FirewallCondition.ENFORCED
    if not shortfalls:
        return Condition.true(type_, FirewallReason.EXPRESSIBLE)
    names = render_users(dict.fromkeys(each.rule for each in shortfalls))
    message = f"not, or not wholly, in force: {names}; status.unenforceable says why"
    return Condition.false(type_, FirewallReason.UNENFORCEABLE, message)


def _judge_terminating(firewall: Firewall, users: Sequence[str]) -> list[Condition]:
    if not firewall.metadata.is_deleting:
        return []
    message = f"In use by {render_users(users)}; it goes when no instance names it"
    return [Condition.true(FirewallCondition.TERMINATING, FirewallReason.IN_USE, message)]


def _hash(child: Child) -> str:
    spec = child.wanted["spec"]
    rules = repr((child.kind.kind, spec["ingress"], spec["egress"]))
    return hashlib.sha256(rules.encode()).hexdigest()[:16]
