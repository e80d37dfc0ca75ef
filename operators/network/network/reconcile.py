"""Planning and status of a Network. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import NETWORK_POLICY, Key, Kind, Manifest, key_of, uid_of
from libs.common.labels import APPLIED_HASH
from libs.common.ownership import controller_uid
from libs.common.plan import Delete, Patch, Step
from libs.common.reading import text_at, text_map_at
from libs.contracts.compute import InstanceView
from libs.contracts.multus import (
    MULTI_NETWORK_POLICY,
    NETWORK_ATTACHMENT_DEFINITION,
)
from operators.network.api.v1alpha1 import Network, ProviderNetwork
from operators.network.api.v1alpha1.network import (
    Backend,
    Isolation,
    NetworkCondition,
    NetworkReason,
    RouteStatus,
)
from operators.network.children import (
    Child,
    drop_empty,
    plan_children,
    render_users,
    show_users,
)
from operators.network.firewall.addresses import NOWHERE, AddressSet
from operators.network.firewall.compiler import compile_open_egress
from operators.network.firewall.peers import PeerCandidates, resolve_peers
from operators.network.firewall.resources import build_rules
from operators.network.naming import KEPT_FOR, attachment_name
from operators.network.network.provider import Objection, find_objection
from operators.network.network.resources import (
    build_attachment,
    build_deny_policy,
    build_open_policy,
    build_unlabelled_policy,
    find_mtu,
)
from operators.network.network.routes import find_obstacle, is_resolved, resolve_routes
from operators.network.network.vlans import (
    find_owner,
    hash_namespace,
    is_exclusive,
    parse_owners,
    plan_owner,
)
from operators.network.resources import (
    DEFAULT_DNS,
    FAMILIES,
    ClusterDns,
    PolicyTarget,
    opens_anything,
)

_NO_CONFIG: Final = "{}"

type Refusal = tuple[NetworkReason, str]
"""Why a step failed: the reason, and the message of the API server."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The current state of one Network and its dependencies.

    Attributes:
        firewalls: Names of the firewalls that name the network.
        objects: Objects of the kinds of children, by kind and key, whoever owns them.
        owned: Objects that the network controls.
        served: Optional kinds that the cluster serves.
        unlabelled: UIDs of the instances of the namespace with a pod that lacks the label of a
            network.
        provider: The ProviderNetwork in the spec; None if it does not exist or is not set.
        bridge: All ProviderNetworks with the bridge of the network.
        first: The Network that gets the VLAN if it has no owner.
        protected: Addresses to which no instance may send packets.
        dns: The pods of the DNS service of the cluster.
    """

    instances: tuple[InstanceView, ...] = ()
    firewalls: tuple[str, ...] = ()
    objects: Mapping[tuple[Kind, Key], Manifest] | None = None
    owned: tuple[tuple[Kind, Manifest], ...] = ()
    served: frozenset[Kind] = frozenset()
    unlabelled: frozenset[str] = frozenset()
    provider: ProviderNetwork | None = None
    bridge: tuple[Manifest, ...] = ()
    first: Key | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    protected: AddressSet = NOWHERE
    families: frozenset[int] = FAMILIES
    dns: ClusterDns = DEFAULT_DNS

    def find(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object by name, whoever owns it."""
        return (self.objects or {}).get((kind, key))


def find_policy_target(network: Network, observed: Observed) -> PolicyTarget | None:
    """Return the kind of policy to write; None if no kind applies to the interfaces."""
    if network.spec.backend is Backend.POD_NETWORK:
        return PolicyTarget(families=observed.families, dns=observed.dns)
    if MULTI_NETWORK_POLICY in observed.served:
        return PolicyTarget.of_attachment(network.key)
    return None


def list_users(network: Network, observed: Observed) -> list[str]:
    """Return the users of the network: firewalls, and then instances."""
    members = (f"Instance {each.key.name}" for each in _members(network, observed))
    return [*(f"Firewall {name}" for name in observed.firewalls), *members]


def build_children(network: Network, observed: Observed) -> list[Child]:
    """Build the children: policies that isolate come first, policies that allow come last."""
    manifests: list[tuple[Kind, Manifest]] = []
    policy_target = find_policy_target(network, observed)
    members = _members(network, observed)
    unlabelled = [each.uid for each in members if each.uid in observed.unlabelled]
    if policy_target is not None and unlabelled:
        # Written before the next policy, whose selector covered these machines in an earlier
        # version: applying its new selector first would leave them open for a moment.
        policy = build_unlabelled_policy(network, unlabelled, policy_target)
        manifests.append((policy_target.kind, policy))
    if policy_target is not None:
        manifests.append((policy_target.kind, build_deny_policy(network, policy_target)))
    provider = _find_provider(network, observed)
    if provider is not None and NETWORK_ATTACHMENT_DEFINITION in observed.served:
        manifests.append((NETWORK_ATTACHMENT_DEFINITION, build_attachment(network, provider)))
    bare = [each.uid for each in members if not each.firewall]
    if policy_target is not None and bare:
        allow_rules = compile_open_egress(observed.protected)
        peers = {peer for allow_rule in allow_rules for peer in allow_rule.peers}
        selections = resolve_peers(sorted(peers), PeerCandidates())
        egress = build_rules(allow_rules, "to", policy_target, selections)
        policy = build_open_policy(network, bare, unlabelled, policy_target, egress)
        manifests.append((policy_target.kind, policy))
    return [
        Child(kind, manifest, observed.find(kind, _key(manifest))) for kind, manifest in manifests
    ]


def plan_network(network: Network, observed: Observed) -> list[list[Step]]:
    """Plan the steps that bring the children in line."""
    children = build_children(network, observed)
    kept = {(child.kind, child.key) for child in children}
    surplus = [
        (kind, manifest)
        for kind, manifest in observed.owned
        if (kind, _key(manifest)) not in kept and kind in (NETWORK_POLICY, MULTI_NETWORK_POLICY)
    ]
    return plan_children(children, surplus)


def plan_release(network: Network, observed: Observed) -> list[list[Step]]:
    """Plan the deletion of children of an unused Network that have no owner reference."""
    deny = [child for child in build_children(network, observed) if KEPT_FOR in _marks(child)]
    return [[Delete.of(child.kind, child.live)] for child in deny if child.live and child.is_ours]


def plan_empty_attachment(network: Network, observed: Observed) -> list[Step]:
    """Plan that no further pod is attached to an unused Network.

    Its attachment stays, without an owner, if the Network is deleted with `--cascade=orphan`.
    """
    key = Key(network.metadata.namespace, attachment_name(network.metadata.name))
    live = observed.find(NETWORK_ATTACHMENT_DEFINITION, key)
    if live is None or text_at(live, "spec", "config") == _NO_CONFIG:
        return []
    marks = text_map_at(live, "metadata", "annotations")
    if APPLIED_HASH not in marks or controller_uid(live) not in ("", network.metadata.uid):
        return []
    operation = {"op": "add", "path": "/spec/config", "value": _NO_CONFIG}
    return [Patch(NETWORK_ATTACHMENT_DEFINITION, key, uid_of(live), [operation])]


def build_status(
    network: Network,
    observed: Observed,
    refusal: Refusal | None,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status.

    `observed` is the state after the steps of this reconcile, and `refusal` why one of them failed.
    """
    children = build_children(network, observed)
    routes = resolve_routes(network, {each.key.name: each for each in observed.instances})
    facts = [
        _evaluate_isolated(network, observed, children, refusal),
        *_evaluate_attachable(network, observed, children, refusal),
        *_evaluate_routes(network, routes),
    ]
    users = list_users(network, observed)
    ready = _evaluate_ready(network, facts, children, refusal)
    terminating = _evaluate_terminating(network, users)
    generation = network.metadata.generation
    status: Manifest = {
        "conditions": build_conditions(
            current, [ready, *facts, *terminating], generation=generation, now=now
        ),
        "observedGeneration": generation,
        "policyRefs": [
            _refer(child)
            for child in sorted(children, key=lambda each: each.key)
            if child.is_ours and child.kind != NETWORK_ATTACHMENT_DEFINITION
        ],
        "routes": [route.to_manifest() for route in routes],
        "mtu": find_mtu(network, observed.provider),
        **show_users(users),
    }
    for child in children:
        if child.kind == NETWORK_ATTACHMENT_DEFINITION and child.is_ours:
            status["nadRef"] = _refer(child)
    return drop_empty(status)


def _evaluate_isolated(
    network: Network, observed: Observed, children: Sequence[Child], refusal: Refusal | None
) -> Condition:
    type_ = NetworkCondition.ISOLATED
    if find_policy_target(network, observed) is None:
        if network.spec.isolation is Isolation.NONE:
            return Condition.true(type_, NetworkReason.NOT_ASKED, "spec.isolation is None")
        message = (
            f"the cluster does not serve {MULTI_NETWORK_POLICY.resource}, so attached "
            "interfaces are not isolated; install it, or set spec.isolation to None"
        )
        return Condition.false(type_, NetworkReason.MULTI_POLICY_MISSING, message)
    closing = [child for child in children if _closes(child)]
    for child in closing:
        if not child.is_up_to_date:
            return _lack(type_, child, refusal)
    message = f"{closing[-1]} isolates every instance of the network"
    return Condition.true(type_, NetworkReason.IN_PLACE, message)


def _evaluate_attachable(
    network: Network, observed: Observed, children: Sequence[Child], refusal: Refusal | None
) -> list[Condition]:
    type_ = NetworkCondition.ATTACHABLE
    if network.spec.backend is not Backend.MULTUS:
        return []
    objection = _find_objection(network, observed)
    if objection is not None:
        return [Condition.false(type_, *objection)]
    for child in children:
        if child.kind == NETWORK_ATTACHMENT_DEFINITION:
            if child.is_up_to_date:
                return [Condition.true(type_, NetworkReason.IN_PLACE, str(child))]
            return [_lack(type_, child, refusal)]
    message = f"the cluster does not serve {NETWORK_ATTACHMENT_DEFINITION.resource}; install Multus"
    return [Condition.false(type_, NetworkReason.MULTUS_MISSING, message)]


def _evaluate_routes(network: Network, routes: Sequence[RouteStatus]) -> list[Condition]:
    type_ = NetworkCondition.ROUTES_RESOLVED
    if not routes:
        return []
    obstacle = find_obstacle(network)
    if obstacle:
        return [Condition.false(type_, NetworkReason.ROUTES_NOT_APPLIED, obstacle)]
    if is_resolved(routes):
        message = f"guests receive {len(routes)} routes at their next start"
        return [Condition.true(type_, NetworkReason.RESOLVED, message)]
    lacking = [each for each in routes if each.reason is not NetworkReason.RESOLVED]
    words = "; ".join(f"{each.destination}: {each.message}" for each in lacking[:3])
    return [Condition.false(type_, NetworkReason.UNRESOLVED, words)]


def _evaluate_ready(
    network: Network,
    facts: Sequence[Condition],
    children: Sequence[Child],
    refusal: Refusal | None,
) -> Condition:
    type_ = NetworkCondition.READY
    if network.metadata.is_deleting:
        return Condition.false(type_, NetworkReason.IN_USE, "the Network is being deleted")
    for fact in facts:
        if fact.status != "True":
            return Condition.false(type_, fact.reason, fact.message)
    for child in children:
        if not child.is_up_to_date:
            return _lack(type_, child, refusal)
    return Condition.true(
        type_, NetworkReason.IN_PLACE, "all policies and attachments are in place"
    )


def _evaluate_terminating(network: Network, users: Sequence[str]) -> list[Condition]:
    if not network.metadata.is_deleting:
        return []
    message = f"In use by {render_users(users)}; it is deleted when nothing references it"
    return [Condition.true(NetworkCondition.TERMINATING, NetworkReason.IN_USE, message)]


def _lack(type_: NetworkCondition, child: Child, refusal: Refusal | None) -> Condition:
    reason, message = refusal or (NetworkReason.POLICY_MISSING, f"{child} does not exist yet")
    return Condition.false(type_, reason, message)


def _find_objection(network: Network, observed: Observed) -> Objection | None:
    taken = _has_other_owner(network, observed)
    return find_objection(network, observed.provider, observed.namespace_labels, taken=taken)


def _has_other_owner(network: Network, observed: Observed) -> bool:
    """Return whether another namespace has the VLAN, or gets it because its Network is older."""
    if network.spec.vlan is None:
        return False
    owner = find_owner(network, observed.bridge)
    if owner:
        return owner != hash_namespace(network.metadata.namespace)
    exclusive = any(map(is_exclusive, observed.bridge))
    return exclusive and observed.first not in (None, network.key)


def plan_vlan(network: Network, observed: Observed) -> list[Step]:
    """Plan to take the VLAN of a Network for its namespace; empty if that is not needed."""
    provider, vlan = observed.provider, network.spec.vlan
    if provider is None or vlan is None or _find_provider(network, observed) is None:
        return []
    own = next(each for each in observed.bridge if key_of(each) == provider.key)
    if not is_exclusive(own) or str(vlan) in parse_owners(own):
        return []
    return [plan_owner(own, vlan, network.metadata.namespace)]


def _find_provider(network: Network, observed: Observed) -> ProviderNetwork | None:
    """Return the ProviderNetwork of a network that may attach machines, or None."""
    if network.spec.backend is not Backend.MULTUS or _find_objection(network, observed):
        return None
    return observed.provider


def _members(network: Network, observed: Observed) -> list[InstanceView]:
    name = network.metadata.name
    return [instance for instance in observed.instances if instance.network == name]


def _closes(child: Child) -> bool:
    return child.kind != NETWORK_ATTACHMENT_DEFINITION and not opens_anything(child.wanted)


def _marks(child: Child) -> Mapping[str, str]:
    annotations: Mapping[str, str] = child.wanted["metadata"].get("annotations") or {}
    return annotations


def _key(manifest: Manifest) -> Key:
    return Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def _refer(child: Child) -> Manifest:
    return {"name": child.key.name, "uid": uid_of(child.live or {})}
