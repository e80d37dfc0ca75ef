"""Planning: computes the next actions for a KubernetesCluster. Pure: no I/O, no clock.

A plan depends only on the observed state, so after a crash between two steps the next plan
continues from the new state. New keys and certificates, which are random, come from an `Issuer`.

Some steps are executed in the managed cluster: nodes are cordoned, drained and removed there. Their
progress is recorded on the Nodes themselves, so that it survives a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from libs.common.actions import Action
from libs.common.kinds import ENDPOINT_SLICE, SECRET, SERVICE, Kind, Manifest, describe
from libs.common.plan import Apply, Create, Delete, Step
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE, InstanceView
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL
from operators.clusters.addons import AddonStep, plan_addons
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster, Pool
from operators.clusters.bootstrap import (
    Membership,
    Role,
    build_kubeconfig_data,
    render_user_data,
)
from operators.clusters.certificates import Authorities, Pair, is_valid
from operators.clusters.load_balancing import list_exposures, plan_services
from operators.clusters.naming import (
    endpoint_name,
    join_name,
    kubeconfig_name,
    slot_of,
    user_data_name,
)
from operators.clusters.networks import is_blocked, keeps_addresses
from operators.clusters.nodes import ClusterStep, plan_nodes
from operators.clusters.observed import (
    Observed,
    control_plane_names,
    find_address,
    is_begun,
    is_initialized,
    is_lost,
    read_pair,
    wanted_names,
)
from operators.clusters.replacement import is_vacant
from operators.clusters.resources import (
    Exposure,
    build_authorities,
    build_claim,
    build_endpoint_slice,
    build_firewall,
    build_instance,
    build_join_secret,
    build_kubeconfig_secret,
    build_service,
    build_user_data,
)
from operators.clusters.upgrade import is_behind

RENEW_KUBECONFIG: Final = timedelta(days=90)
"""A kubeconfig with less time left is renewed."""
RENEW_JOIN: Final = timedelta(hours=12)
"""Credentials for joining with less time left are renewed."""
_FOLLOW: Final = 0.05
"""Seconds until the next reconcile after the authorities were created."""


class Issuer(Protocol):
    """Creates keys and certificates, which are different each time."""

    def authorities(self, cluster: str) -> Authorities:
        """Create the authorities of a new cluster."""

    def administrator(self, authorities: Authorities) -> Pair:
        """Create the credentials of an administrator."""

    def member(self, authorities: Authorities) -> Pair:
        """Create the credentials with which nodes join."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions for a cluster.

    Attributes:
        stages: Stages of writes, executed one after the other; concurrent within a stage.
        node_steps: Steps in the managed cluster, executed after the stages.
        addon_steps: Addons to apply in the managed cluster, after the stages.
        services: Writes for Services of the managed cluster; a refused one stops nothing else.
        seconds: Seconds until the next reconcile; None to wait for an event.
    """

    stages: tuple[tuple[Action, ...], ...] = ()
    node_steps: tuple[ClusterStep, ...] = ()
    seconds: float | None = None
    addon_steps: tuple[AddonStep, ...] = ()
    services: tuple[Action, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """All writes, in their order."""
        return tuple(action for stage in self.stages for action in stage)

    @property
    def batches(self) -> list[list[Step]]:
        """The writes in the form of `Context.execute`."""
        return [[action.step for action in stage] for stage in self.stages if stage]


def plan_cluster(
    cluster: KubernetesCluster, observed: Observed, issuer: Issuer, now: datetime
) -> Plan:
    """Plan the actions that bring a cluster closer to its spec."""
    if observed.missing_apis or is_blocked(cluster, observed):
        return Plan()
    authorities = observed.authorities
    if authorities is None and not (observed.authorities_problem or is_begun(cluster, observed)):
        return _plan_authorities(cluster, issuer)
    access, services = _plan_access(cluster, observed), plan_services(cluster, observed)
    if authorities is None:
        # New authorities would lock all nodes and users out of an existing cluster. Only its
        # addresses follow the machines, because somebody else may get the address of one.
        held = tuple(each for each in access if _is_held(observed, each))
        return Plan((held,), services=services.actions)
    if not observed.address:
        return Plan((access,))
    credentials, member = _plan_credentials(cluster, observed, authorities, issuer, now)
    data, machines = _plan_machines(cluster, observed, member)
    nodes = plan_nodes(cluster, observed, now)
    return Plan(
        (access, credentials, data, machines, nodes.actions, _plan_tidying(cluster, observed)),
        (*nodes.steps, *services.steps),
        nodes.seconds,
        plan_addons(cluster, observed),
        services.actions,
    )


def list_endpoints(cluster: KubernetesCluster, observed: Observed) -> list[InstanceView]:
    """Return the control plane nodes to which the address of the API routes traffic.

    These are the ready nodes. If none is ready, these are the nodes that have joined, so that one
    can become ready; otherwise the first node, which will initialize the cluster.
    """
    members = [each for each in observed.members(CONTROL_PLANE) if each.private_ip]
    running = [each for each in members if each.ready and not each.deleting]
    if observed.workload.reachable:
        nodes = observed.workload.nodes
        joined = [each for each in running if each.key.name in nodes]
        ready = [each for each in joined if nodes[each.key.name].ready]
        # A node that is being drained will soon lose its etcd member, and then its API server stops
        # working.
        staying = [each for each in ready if nodes[each.key.name].draining_since is None]
        return staying or ready or joined or running[:1]
    if is_initialized(cluster, observed):
        # Keep the nodes that have responded before: a node that never joined would refuse
        # connections.
        return [each for each in running if _is_led_to(cluster, observed, each)] or running
    return running[:1]


def _is_led_to(cluster: KubernetesCluster, observed: Observed, instance: InstanceView) -> bool:
    held = observed.objects.get((ENDPOINT_SLICE, endpoint_name(cluster.metadata.name))) or {}
    return any(
        instance.private_ip in (each.get("addresses") or ()) for each in held.get("endpoints") or ()
    )


def _plan_authorities(cluster: KubernetesCluster, issuer: Issuer) -> Plan:
    secret = build_authorities(cluster, issuer.authorities(cluster.metadata.name).files)
    step = Create(SECRET, secret)
    note = f"Created the certificate authorities of the cluster, {describe(SECRET, step.key)}"
    # All other children depend on the authorities. The event of our own write does not trigger a
    # reconcile, so the next one is requested.
    return Plan(((Action(step, Reason.CREATED, note),),), seconds=_FOLLOW)


def _plan_access(cluster: KubernetesCluster, observed: Observed) -> tuple[Action, ...]:
    api = Exposure.of_api(cluster)
    wanted: list[tuple[Kind, Manifest]] = [(SERVICE, build_service(cluster, api))]
    held = observed.objects.get((ENDPOINT_SLICE, api.name))
    addresses = [each.private_ip for each in list_endpoints(cluster, observed)]
    if addresses or held:
        slice_ = build_endpoint_slice(cluster, api, addresses, held or {})
        wanted.append((ENDPOINT_SLICE, slice_))
    # The address of a claim is immutable, so only a new claim requests the former one.
    claim = observed.objects.get((IP_CLAIM, api.name))
    address = (
        find_address(cluster, observed) if claim is None else text_at(claim, "spec", "address")
    )
    wanted.append((IP_CLAIM, build_claim(cluster, api, address)))
    services = list_exposures(cluster, observed)
    wanted += [
        (FIREWALL, build_firewall(cluster, [api], control_plane=True)),
        (FIREWALL, build_firewall(cluster, services, control_plane=False)),
    ]
    return tuple(_apply(observed, kind, manifest) for kind, manifest in wanted)


def _plan_credentials(
    cluster: KubernetesCluster,
    observed: Observed,
    authorities: Authorities,
    issuer: Issuer,
    now: datetime,
) -> tuple[tuple[Action, ...], Membership]:
    name = cluster.metadata.name
    actions = []
    join = read_pair(observed.data_of(SECRET, join_name(name)))
    if not is_valid(join, authorities.ca, now + RENEW_JOIN):
        join = issuer.member(authorities)
        secret = build_join_secret(cluster, join.certificate, join.key)
        actions.append(Action(Apply(SECRET, secret), Reason.RENEWED))
    member = Membership(
        cluster,
        find_address(cluster, observed),
        authorities,
        join,
        keeps_addresses(observed.network),
    )
    held = observed.data_of(SECRET, kubeconfig_name(name))
    admin = read_pair(held)
    valid = is_valid(admin, authorities.ca, now + RENEW_KUBECONFIG)
    if not valid or held != build_kubeconfig_data(member, admin):
        admin = admin if valid else issuer.administrator(authorities)
        data = build_kubeconfig_data(member, admin)
        step = Apply(SECRET, build_kubeconfig_secret(cluster, data))
        note = f"Created the kubeconfig of the cluster, {describe(SECRET, step.key)}"
        actions.append(Action(step, Reason.RENEWED if held else Reason.CREATED, note))
    return tuple(actions), member


def _plan_machines(
    cluster: KubernetesCluster, observed: Observed, member: Membership
) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """Plan the creation of nodes, and the initial configuration of guests."""
    data, machines = [], []
    for name, role, pool in _list_wanted(cluster, observed):
        manifest = build_user_data(cluster, name, _render_user_data(member, role, pool, name))
        data.append(_apply(observed, SECRET, manifest, quiet=True))
        if name not in observed.instances:
            step = Create(INSTANCE, build_instance(cluster, name, pool))
            machines.append(Action(step, Reason.CREATED, f"Created node {name}"))
    return tuple(data), tuple(machines)


def _render_user_data(member: Membership, role: Role, pool: Pool | None, node: str) -> str:
    name = CONTROL_PLANE if pool is None else pool.name
    slot = slot_of(member.cluster.metadata.name, name, node)
    return render_user_data(member, role, pool, slot or 0)


def _list_wanted(
    cluster: KubernetesCluster, observed: Observed
) -> Iterable[tuple[str, Role, Pool | None]]:
    begun = is_initialized(cluster, observed)
    if is_lost(cluster, observed):
        return
    names = control_plane_names(cluster)
    if not begun:
        yield names[0], Role.INIT, None
        return
    there = [name for name in names if name in observed.instances]
    missing = [name for name in names if name not in observed.instances]
    # Control plane nodes join one at a time, because an etcd member that has not caught up reduces
    # the fault tolerance of the majority.
    steady = observed.workload.reachable and all(
        observed.is_ready(observed.instances[name]) for name in there
    )
    vacant = [name for name in missing[:1] if steady and is_vacant(cluster, observed, name)]
    for name in there + vacant:
        yield name, Role.JOIN_CONTROL_PLANE, None
    # During an upgrade, the kubelet in the image of the spec is newer than API servers that are not
    # upgraded yet, so new nodes must wait. If the API does not respond, its version is unknown and
    # no node could join.
    may_join = observed.workload.reachable and not is_behind(cluster, observed)
    for pool in cluster.spec.pools:
        for name in wanted_names(cluster, pool):
            if name in observed.instances or may_join:
                yield name, Role.JOIN, pool


def _plan_tidying(cluster: KubernetesCluster, observed: Observed) -> tuple[Action, ...]:
    """Plan the deletion of Secrets with initial settings of nodes that no longer exist."""
    names = [*control_plane_names(cluster), *observed.instances]
    names += [name for pool in cluster.spec.pools for name in wanted_names(cluster, pool)]
    kept = {user_data_name(name) for name in names}
    return tuple(
        Action(Delete.of(SECRET, held), Reason.DELETING_NODE)
        for (kind, name), held in sorted(observed.objects.items(), key=lambda item: item[0][1])
        if kind == SECRET and name not in kept and (held.get("data") or {}).get("userdata")
    )


def _apply(observed: Observed, kind: Kind, manifest: Manifest, *, quiet: bool = False) -> Action:
    action = Action(Apply(kind, manifest), Reason.APPLIED)
    is_told = quiet or _is_held(observed, action)
    return action if is_told else replace(action, note=f"Created {describe(kind, action.step.key)}")


def _is_held(observed: Observed, action: Action) -> bool:
    return (action.step.kind, action.step.key.name) in observed.objects
