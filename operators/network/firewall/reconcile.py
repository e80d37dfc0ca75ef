"""Planning and status of a Firewall. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import NETWORK_POLICY, Key, Kind, Manifest, key_of, uid_of
from libs.common.plan import Delete, Step
from libs.contracts.compute import InstanceView
from libs.contracts.multus import MULTI_NETWORK_POLICY
from libs.contracts.network import NetworkView
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
from operators.network.firewall.compiler import CompiledFirewall, Shortfall
from operators.network.firewall.peers import UIDS_LIMIT, Peer, PeerCandidates
from operators.network.firewall.resources import (
    build_closing_policy,
    build_firewall_policy,
    select_peers,
)
from operators.network.resources import (
    DEFAULT_DNS,
    FAMILIES,
    ClusterDns,
    PolicyTarget,
    list_selected,
)

type Refusal = tuple[FirewallReason, str]
"""Why a step failed: the reason, and the message of the API server."""

_MANY_PEERS: Final = (
    f"its peers are more instances than a policy can list ({UIDS_LIMIT}); they stay blocked"
)
_SECONDARY: Final = (
    f"the network is attached by Multus and the cluster does not serve "
    f"{MULTI_NETWORK_POLICY.resource}: no rule can be enforced, and no machine starts"
)


@dataclass(frozen=True, slots=True)
class Observed:
    """The current state of one Firewall and its dependencies.

    Attributes:
        network: The network of the firewall; None if it does not exist.
        members: Instances that name the firewall.
        objects: Policies by kind and key, whoever owns them.
        owned: Policies that the firewall controls.
        served: Optional kinds that the cluster serves.
        open_elsewhere: UIDs of instances to which a policy of another owner still allows traffic.
        movers: Instances that named this firewall before and name another one now.
        closed_elsewhere: UIDs of movers that the closing policy of their new firewall selects.
        others: Existing other networks of members, by name.
        around: Instances that the peers of rules can select.
        enforces_attached: Whether the cluster is known to enforce MultiNetworkPolicies.
        dns: The pods of the DNS service of the cluster.
    """

    network: NetworkView | None = None
    members: tuple[InstanceView, ...] = ()
    objects: Mapping[tuple[Kind, Key], Manifest] = field(default_factory=dict)
    owned: tuple[tuple[Kind, Manifest], ...] = ()
    served: frozenset[Kind] = frozenset()
    open_elsewhere: frozenset[str] = frozenset()
    movers: tuple[InstanceView, ...] = ()
    closed_elsewhere: frozenset[str] = frozenset()
    others: Mapping[str, NetworkView] = field(default_factory=dict)
    around: PeerCandidates = field(default_factory=PeerCandidates)
    enforces_attached: bool = False
    families: frozenset[int] = FAMILIES
    dns: ClusterDns = DEFAULT_DNS


def find_policy_target(observed: Observed) -> PolicyTarget | None:
    """Return the kind of policy to write; None if no kind applies to the interfaces."""
    network = observed.network
    if network is None or network.backend != Backend.MULTUS:
        return PolicyTarget(families=observed.families, dns=observed.dns)
    if MULTI_NETWORK_POLICY in observed.served:
        return PolicyTarget.of_attachment(network.key)
    return None


def is_reached(firewall: Firewall, observed: Observed, member: InstanceView) -> bool:
    """Return whether the policy applies to the interface of an instance, on any network.

    A NetworkPolicy applies to all interfaces on the pod network, and a MultiNetworkPolicy to the
    networks in its annotation.
    """
    if member.network == firewall.spec.network_ref.name:
        return True
    other = observed.others.get(member.network)
    on_pods = not member.network or (other is not None and other.backend != Backend.MULTUS)
    policy_target = find_policy_target(observed)
    return on_pods and policy_target is not None and policy_target.kind == NETWORK_POLICY


def choose_members(observed: Observed) -> list[InstanceView]:
    """Choose the instances that the policy names, up to the limit.

    Instances that the policy already names come first, so that they do not lose it; the others
    follow by name.
    """
    held = {uid for _, policy in observed.owned for uid in list_selected(policy)}
    ranked = sorted(observed.members, key=lambda each: (each.uid not in held, each.key))
    return sorted(ranked[:MEMBERS_LIMIT], key=lambda each: each.key)


def list_movers(observed: Observed) -> list[InstanceView]:
    """Return the instances that only this firewall isolates, although they name another one.

    If no policy selects an instance without Network, all traffic to it is allowed. So when an
    instance changes its firewall, the old firewall isolates it until the new one selects it.
    """
    return [each for each in observed.movers if each.uid not in observed.closed_elsewhere]


def build_closing_child(firewall: Firewall, observed: Observed) -> Child:
    """Build the policy that isolates instances without Network; it may select no instance."""
    bare = [each for each in observed.members if not each.network]
    uids = [each.uid for each in (*bare, *list_movers(observed))]
    manifest = build_closing_policy(firewall, uids)
    live = observed.objects.get((NETWORK_POLICY, key_of(manifest)))
    return Child(NETWORK_POLICY, manifest, live)


def build_child(firewall: Firewall, compiled: CompiledFirewall, observed: Observed) -> Child | None:
    """Build the policy that allows traffic; None if no kind of policy applies."""
    policy_target = find_policy_target(observed)
    if policy_target is None:
        return None
    uids = [member.uid for member in choose_members(observed)]
    manifest = build_firewall_policy(firewall, compiled, uids, policy_target, observed.around)
    key = Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
    return Child(policy_target.kind, manifest, observed.objects.get((policy_target.kind, key)))


def plan_firewall(
    firewall: Firewall, compiled: CompiledFirewall, observed: Observed
) -> list[list[Step]]:
    """Plan the steps that bring the policies in line.

    The policy that isolates comes first, so that no instance accepts traffic that its firewall
    denies, not even for a moment.
    """
    child = build_child(firewall, compiled, observed)
    closing = build_closing_child(firewall, observed)
    closes = bool(list_selected(closing.wanted))
    wanted = None if child is None else (child.kind, child.key)
    surplus = [
        (kind, manifest)
        for kind, manifest in observed.owned
        if (kind, Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])) != wanted
    ]
    wanted_children = [*([closing] if closes else []), *([child] if child is not None else [])]
    if not closes and closing.is_ours and closing.live is not None:
        surplus.append((closing.kind, closing.live))
    return plan_children(wanted_children, surplus)


def plan_release(firewall: Firewall, observed: Observed) -> list[list[Step]]:
    """Plan the deletion of children of an unused Firewall that have no owner reference."""
    closing = build_closing_child(firewall, observed)
    if closing.live is None or not closing.is_ours:
        return []
    return [[Delete.of(closing.kind, closing.live)]]


def build_status(
    firewall: Firewall,
    compiled: CompiledFirewall,
    observed: Observed,
    refusal: Refusal | None,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status.

    `observed` is the state after the steps of this reconcile, and `refusal` why one of them failed.
    """
    child = build_child(firewall, compiled, observed)
    closing = build_closing_child(firewall, observed)
    shortfalls = _list_shortfalls(firewall, compiled, observed, child)
    covered = _list_covered(firewall, observed, child, closing)
    users = list_users(observed)
    conditions = [
        _evaluate_ready(firewall, observed, child, closing, covered, shortfalls, refusal),
        _evaluate_enforced(observed, child, shortfalls),
        *_evaluate_terminating(firewall, users),
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


def _list_shortfalls(
    firewall: Firewall, compiled: CompiledFirewall, observed: Observed, child: Child | None
) -> list[Shortfall]:
    if child is None:
        return [Shortfall("networkRef", FirewallReason.SECONDARY_INTERFACE, _SECONDARY)]
    left_out = select_peers(compiled, observed.around).too_many
    closed = [
        Shortfall(rule.name, FirewallReason.TOO_LARGE, _MANY_PEERS)
        for rule in firewall.spec.rules
        if not left_out.isdisjoint(map(Peer.of, rule.peers))
    ]
    return [*compiled.shortfalls, *closed]


def list_users(observed: Observed) -> list[str]:
    """Return the users of the firewall: members, and movers that no other firewall isolates yet."""
    return [f"Instance {each.key.name}" for each in (*observed.members, *list_movers(observed))]


def _list_covered(
    firewall: Firewall, observed: Observed, child: Child | None, closing: Child
) -> list[InstanceView]:
    """Return the instances to which exactly the rules apply, so that their machines may start."""
    if child is None or not child.is_up_to_date or child.live is None:
        return []
    held = set(list_selected(child.live)) - observed.open_elsewhere
    closed = set(list_selected(closing.live or {})) if closing.is_up_to_date else set()
    return [
        member
        for member in choose_members(observed)
        if member.uid in held
        and is_reached(firewall, observed, member)
        and (member.network or member.uid in closed)
    ]


def _evaluate_ready(
    firewall: Firewall,
    observed: Observed,
    child: Child | None,
    closing: Child,
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
    needed = [closing, child] if list_selected(closing.wanted) else [child]
    for policy in needed:
        if not policy.is_up_to_date:
            message = f"{policy} does not exist yet"
            return lack(*(refusal or (FirewallReason.POLICY_MISSING, message)))
    if len(observed.members) > MEMBERS_LIMIT:
        message = (
            f"{len(observed.members)} instances reference the firewall, at most {MEMBERS_LIMIT}"
            " can; create another Firewall for the rest"
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
        message = f"another policy still allows traffic of {render_users(open_yet)}"
        return lack(FirewallReason.OPEN_ELSEWHERE, message)
    if observed.network is None:
        message = f"spec.networkRef: Network {firewall.spec.network_ref.name} does not exist"
        return lack(FirewallReason.NETWORK_NOT_FOUND, message)
    reason = FirewallReason.UNENFORCEABLE if shortfalls else FirewallReason.IN_FORCE
    message = f"{child} applies to {len(covered)} instances"
    return Condition.true(FirewallCondition.READY, reason, message)


def _evaluate_enforced(
    observed: Observed, child: Child | None, shortfalls: Sequence[Shortfall]
) -> Condition:
    type_ = FirewallCondition.ENFORCED
    attached = child is not None and child.kind == MULTI_NETWORK_POLICY
    if not shortfalls and attached and not observed.enforces_attached:
        message = (
            f"the operator cannot detect whether the cluster enforces {child}; see the setting "
            "multiNetworkPolicy"
        )
        return Condition.unknown(type_, FirewallReason.IMPLEMENTATION_UNKNOWN, message)
    if not shortfalls:
        return Condition.true(type_, FirewallReason.EXPRESSIBLE)
    names = render_users(dict.fromkeys(each.rule for each in shortfalls))
    message = f"not enforced, or only in part: {names}; status.unenforceable says why"
    return Condition.false(type_, FirewallReason.UNENFORCEABLE, message)


def _evaluate_terminating(firewall: Firewall, users: Sequence[str]) -> list[Condition]:
    if not firewall.metadata.is_deleting:
        return []
    message = f"In use by {render_users(users)}; it is deleted when no instance references it"
    return [Condition.true(FirewallCondition.TERMINATING, FirewallReason.IN_USE, message)]


def _hash(child: Child) -> str:
    spec = child.wanted["spec"]
    rules = repr((child.kind.kind, spec["ingress"], spec["egress"]))
    return hashlib.sha256(rules.encode()).hexdigest()[:16]
