"""Status of a KubernetesCluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import SECRET, Manifest
from libs.contracts.compute import InstanceView
from operators.clusters.addons import evaluate_addons
from operators.clusters.api.reasons import ConditionType, Reason
from operators.clusters.api.v1alpha1 import (
    CONTROL_PLANE,
    LEFTOVERS_SHOWN,
    Counts,
    KubernetesCluster,
    KubernetesClusterStatus,
    PoolStatus,
)
from operators.clusters.bootstrap import render_endpoint
from operators.clusters.causes import (
    MOST_REBUILDS,
    Cause,
    describe_work,
    find_away,
    is_drained_by_us,
    is_exhausted,
    is_over_budget,
    list_causes,
    list_staying,
)
from operators.clusters.certificates import AUTHORITY_FILES, expiry_of
from operators.clusters.health import evaluate_all, list_broken
from operators.clusters.load_balancing import evaluate_services
from operators.clusters.naming import authorities_name, kubeconfig_name
from operators.clusters.networks import evaluate_network
from operators.clusters.observed import (
    Observed,
    control_plane_names,
    drain_seconds,
    find_address,
    is_begun,
    is_initialized,
    is_lost,
    list_excess,
    names_of,
    wanted_names,
)
from operators.clusters.progress import evaluate_version, list_versions
from operators.clusters.replacement import explain_blocked, explain_lost
from operators.clusters.teardown import Teardown

_WARNING_TIME: Final = timedelta(days=90)
"""A certificate with less time left is reported."""
_NEEDED: Final = (
    ConditionType.NETWORK_READY,
    ConditionType.CONTROL_PLANE_READY,
    ConditionType.ENDPOINT_READY,
    ConditionType.ADDONS_APPLIED,
    ConditionType.NODES_READY,
    ConditionType.API_REACHABLE,
    ConditionType.UP_TO_DATE,
)
"""Conditions that Ready summarizes; causes come before their consequences."""

type Refusal = tuple[Reason, str]
"""Why a step of this reconcile failed: reason and message."""


def build_status(
    cluster: KubernetesCluster,
    observed: Observed,
    refusal: Refusal | None,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status of a cluster that is not being deleted.

    `observed` is the state after the steps of this reconcile, and `refusal` why one of them failed.
    """
    facts = [
        evaluate_network(cluster, observed),
        _evaluate_endpoint(cluster, observed),
        _evaluate_control_plane(cluster, observed, now),
        _evaluate_nodes(cluster, observed),
        _evaluate_reach(observed),
        _evaluate_initialized(cluster, observed),
        _evaluate_remediation(cluster, observed, now),
        evaluate_version(cluster, observed, now),
        evaluate_certificates(observed, now),
    ]
    addons = evaluate_addons(cluster, observed)
    facts += [*_evaluate_spread(cluster, observed), *([] if addons is None else [addons])]
    facts += evaluate_services(cluster, observed)
    conditions = [_evaluate_ready(cluster, observed, refusal, facts), *facts]
    return _build(cluster, observed, conditions, list(current), now)


def build_final_status(
    cluster: KubernetesCluster,
    observed: Observed,
    ending: Teardown,
    refusal: Refusal | None,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status of a cluster that is being deleted; see `build_status` for arguments."""
    left = ending.leftovers
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    waiting = f"left: {', '.join(left[:3])}{more}"
    message = waiting if refusal is None else f"{waiting}; {refusal[1]}"
    conditions = [
        Condition.false(ConditionType.READY, Reason.TERMINATING, message),
        Condition.true(ConditionType.TERMINATING, Reason.TERMINATING, message),
        _evaluate_initialized(cluster, observed),
    ]
    return _build(
        cluster, observed, conditions, list(current), now, leftovers=left[:LEFTOVERS_SHOWN]
    )


def _build(
    cluster: KubernetesCluster,
    observed: Observed,
    conditions: Sequence[Condition],
    current: Sequence[Mapping[str, Any]],
    now: datetime,
    leftovers: Sequence[str] = (),
) -> Manifest:
    generation = cluster.metadata.generation
    name = kubeconfig_name(cluster.metadata.name)
    pools = _count_pools(cluster, observed)
    is_known = observed.workload.reachable or not is_initialized(cluster, observed)
    versions = list_versions(observed)
    ready_planes = observed.count_ready(observed.members(CONTROL_PLANE))
    status = KubernetesClusterStatus(
        observed_generation=generation,
        endpoint=render_endpoint(cluster, observed.address) if observed.address else None,
        kubeconfig_secret_name=name if (SECRET, name) in observed.objects else None,
        control_plane=_sum(cluster.spec.control_plane.count, ready_planes, is_known),
        nodes=_sum(
            sum(each.desired for each in pools), sum(each.ready for each in pools), is_known
        ),
        pools=pools,
        version=versions[0].version if versions else None,
        versions=versions,
        leftovers=list(leftovers),
    )
    manifest: Manifest = status.model_dump(by_alias=True, exclude_none=True, mode="json")
    manifest["conditions"] = build_conditions(current, conditions, generation=generation, now=now)
    return manifest


def _sum(desired: int, ready: int, is_known: bool) -> Counts:
    summary = f"{ready if is_known else '?'}/{desired}"
    return Counts(desired=desired, ready=ready, summary=summary)


def _count_pools(cluster: KubernetesCluster, observed: Observed) -> list[PoolStatus]:
    found = [
        PoolStatus(
            name=pool.name,
            desired=pool.count,
            current=len(observed.members(pool.name)),
            ready=observed.count_ready(observed.members(pool.name)),
        )
        for pool in cluster.spec.pools
    ]
    return sorted(found, key=lambda pool: pool.name)


def _evaluate_ready(
    cluster: KubernetesCluster,
    observed: Observed,
    refusal: Refusal | None,
    facts: Sequence[Condition],
) -> Condition:
    type_ = ConditionType.READY
    if observed.missing_apis:
        message = f"install what serves {', '.join(observed.missing_apis)}"
        return Condition.false(type_, Reason.API_MISSING, message)
    secret = authorities_name(cluster.metadata.name)
    if observed.authorities_problem:
        message = f"Secret {secret}: {observed.authorities_problem}; restore it"
        return Condition.false(type_, Reason.PKI_LOST, message)
    if observed.authorities is None and is_begun(cluster, observed):
        message = f"Secret {secret} is missing although the cluster exists; restore it"
        return Condition.false(type_, Reason.PKI_LOST, message)
    if refusal is not None:
        return Condition.false(type_, *refusal)
    by_type = {fact.type: fact for fact in facts}
    endpoint = by_type[ConditionType.ENDPOINT_READY]
    needed = [by_type[each] for each in _NEEDED if each in by_type]
    if endpoint.reason in (Reason.WAITING_FOR_ADDRESS, Reason.ADDRESS_CHANGED):
        needed.insert(1, endpoint)
    missing = next((fact for fact in needed if fact.status != "True"), None)
    if missing is not None:
        return Condition.false(type_, missing.reason, missing.message)
    return Condition.true(type_, Reason.AVAILABLE, "every node is ready")


def _evaluate_endpoint(cluster: KubernetesCluster, observed: Observed) -> Condition:
    type_, claim = ConditionType.ENDPOINT_READY, observed.claim
    if claim is None or not claim.address:
        pool = cluster.spec.control_plane.endpoint.pool_name
        words = claim.message if claim is not None and claim.message else f"from IPPool {pool}"
        message = f"spec.controlPlane.endpoint: waiting for an address: {words}"
        return Condition.false(type_, Reason.WAITING_FOR_ADDRESS, message)
    if (former := find_address(cluster, observed)) != claim.address:
        message = (
            f"the certificates and nodes of the cluster use the address {former} (Secret "
            f"{kubeconfig_name(cluster.metadata.name)}), and IPClaim {claim.key.name} has "
            f"{claim.address}; release {former} if another claim has it, and delete this claim: "
            "the operator then requests the former address"
        )
        return Condition.false(type_, Reason.ADDRESS_CHANGED, message)
    if not claim.bound:
        why = claim.bound_message or "no node of the control plane is ready"
        message = f"{claim.address} is not routed to the control plane: {why}"
        return Condition.false(type_, Reason.WAITING_FOR_CONTROL_PLANE, message)
    message = f"{claim.address} is routed to the control plane"
    return Condition.true(type_, Reason.AVAILABLE, message)


def _evaluate_control_plane(
    cluster: KubernetesCluster, observed: Observed, now: datetime
) -> Condition:
    type_ = ConditionType.CONTROL_PLANE_READY
    if is_lost(cluster, observed):
        message = "every machine of the control plane is lost, including the data of the cluster"
        return Condition.false(type_, Reason.CONTROL_PLANE_LOST, message)
    names = control_plane_names(cluster)
    if not is_initialized(cluster, observed):
        return _evaluate_bootstrap(cluster, observed, now)
    if problem := explain_lost(cluster, observed):
        return Condition.false(type_, Reason.NODES_MISSING, problem)
    return _evaluate_members(type_, names, observed)


def _evaluate_spread(cluster: KubernetesCluster, observed: Observed) -> list[Condition]:
    """Build the condition for the hosts of the control plane; empty for a single node."""
    type_, count = ConditionType.CONTROL_PLANE_SPREAD, cluster.spec.control_plane.count
    if count == 1:
        return []
    hosts: dict[str, list[InstanceView]] = {}
    for each in observed.members(CONTROL_PLANE):
        if each.node:
            hosts.setdefault(each.node, []).append(each)
    for host, members in sorted(hosts.items()):
        if len(members) > (count - 1) // 2:
            message = (
                f"{names_of(members)} run on host {host}, with which etcd would lose its majority; "
                "if another host has room, move one of them with an Operation of type Migrate or "
                "Reboot"
            )
            return [Condition.false(type_, Reason.SHARED_HOST, message)]
    return [Condition.true(type_, Reason.AVAILABLE, "etcd keeps its majority without any one host")]


def _evaluate_bootstrap(cluster: KubernetesCluster, observed: Observed, now: datetime) -> Condition:
    type_ = ConditionType.CONTROL_PLANE_READY
    name = control_plane_names(cluster)[0]
    first = observed.instances.get(name)
    if first is None or not first.ready or first.ready_since is None:
        words = "it is being created" if first is None else first.message or "it is starting"
        message = f"the first node {name}: {words}"
        return Condition.false(type_, Reason.WAITING_FOR_CONTROL_PLANE, message)
    limit = cluster.spec.health.node_startup_seconds
    if (now - first.ready_since).total_seconds() < limit:
        message = f"the machine {name} runs; waiting for kubeadm to start the API of the cluster"
        return Condition.false(type_, Reason.WAITING_FOR_CONTROL_PLANE, message)
    message = (
        f"the machine {name} has been running for more than {limit} s "
        "(spec.health.nodeStartupSeconds) and the API has never responded: "
        f"{observed.workload.message}; see `journalctl --unit slipway-bootstrap` in the guest"
    )
    return Condition.false(type_, Reason.BOOTSTRAP_TIMED_OUT, message)


def _evaluate_nodes(cluster: KubernetesCluster, observed: Observed) -> Condition:
    type_ = ConditionType.NODES_READY
    names = [name for pool in cluster.spec.pools for name in wanted_names(cluster, pool)]
    if names and not is_initialized(cluster, observed):
        waits = "1 node waits" if len(names) == 1 else f"{len(names)} nodes wait"
        message = f"{waits} for the control plane"
        return Condition.false(type_, Reason.WAITING_FOR_CONTROL_PLANE, message)
    if leaving := list_excess(cluster, observed):
        message = f"being removed: {names_of(leaving)}"
        return Condition.false(type_, Reason.DRAINING, message)
    return _evaluate_members(type_, names, observed)


def _evaluate_members(type_: str, names: Sequence[str], observed: Observed) -> Condition:
    missing = [name for name in names if name not in observed.instances]
    if missing:
        message = f"{len(missing)} of {len(names)} nodes are being created: {missing[0]}"
        return Condition.false(type_, Reason.NODES_MISSING, message)
    waiting = [observed.instances[name] for name in names]
    waiting = [each for each in waiting if not observed.is_ready(each)]
    if waiting:
        why = _explain(observed, waiting[0])
        message = f"not ready: {names_of(waiting)}{f' ({why})' if why else ''}"
        return Condition.false(type_, Reason.NODES_NOT_READY, message)
    if names and not observed.workload.reachable:
        message = "their machines run; the API of the cluster reports no reason"
        return Condition.unknown(type_, Reason.INSTANCES_RUNNING, message)
    return Condition.true(type_, Reason.AVAILABLE, f"{len(names)} of {len(names)} nodes are ready")


def _explain(observed: Observed, instance: InstanceView) -> str:
    if not instance.ready:
        return instance.message
    node = observed.workload.nodes.get(instance.key.name)
    return "has not joined yet" if node is None else node.message


def _evaluate_reach(observed: Observed) -> Condition:
    type_, workload = ConditionType.API_REACHABLE, observed.workload
    if not workload.asked:
        message = "the control plane does not exist yet"
        return Condition.unknown(type_, Reason.NOT_ASKED, message)
    if not workload.reachable:
        return Condition.false(type_, Reason.UNREACHABLE, workload.message)
    return Condition.true(type_, Reason.REACHABLE, "the API of the cluster responds")


def _evaluate_initialized(cluster: KubernetesCluster, observed: Observed) -> Condition:
    type_ = ConditionType.INITIALIZED
    if is_initialized(cluster, observed):
        return Condition.true(type_, Reason.REACHABLE, "the API of the cluster has responded")
    message = "the API of the cluster has not responded yet"
    return Condition.false(type_, Reason.WAITING_FOR_CONTROL_PLANE, message)


def _explain_move(cluster: KubernetesCluster, observed: Observed, cause: Cause) -> Condition:
    """Build the condition Remediating for a node whose host is being drained."""
    type_, held = ConditionType.REMEDIATING, observed.operations.get(cause.operation)
    host = f"host {cause.instance.node} of {cause.node} is being drained"
    if held is not None and held.finished:
        message = (
            f"{host}, and the machine could not leave it: {held.message}; delete Operation "
            f"{held.key.name} to try again"
        )
        return Condition.false(type_, Reason.EVACUATING, message)
    words = "the machine moves to another host"
    if cause.is_plane and (problem := explain_blocked(cluster, observed, cause)):
        words = f"it waits, so that etcd keeps its majority: {problem}"
    elif not observed.workload.reachable:
        words = "it waits, since the API of the cluster does not respond; to move the machine "
        words += "without draining its node, create an Operation of type Reboot for it"
    elif is_drained_by_us(observed, cause.instance):
        words = f"the node is drained first, for {drain_seconds(cluster, cause.instance)} s at most"
    return Condition.true(type_, Reason.EVACUATING, f"{host}; {words}")


def _evaluate_remediation(
    cluster: KubernetesCluster, observed: Observed, now: datetime
) -> Condition:
    type_ = ConditionType.REMEDIATING
    node_health = evaluate_all(cluster, observed, now)
    causes = list_causes(cluster, observed, now)
    repairs = [each for each in causes if each.reason is not Reason.UPGRADING]
    upgrades = {each.operation for each in causes if each not in repairs}
    for operation in observed.operations.values():
        if not operation.finished and operation.key.name not in upgrades:
            is_rebuild = operation.type == "Rebuild"
            reason = Reason.REBUILDING if is_rebuild else Reason.EVACUATING
            return Condition.true(type_, reason, describe_work(operation))
    moves = [each for each in repairs if each.is_move]
    if moves:
        return _explain_move(cluster, observed, moves[0])
    broken = list_broken(list_staying(cluster, observed), node_health)
    if not observed.workload.reachable:
        message = "the health of nodes is unknown while the API of the cluster does not respond"
        return Condition.unknown(type_, Reason.UNREACHABLE, message)
    if is_over_budget(cluster, broken):
        limit = cluster.spec.health.max_unhealthy
        message = (
            f"{len(broken)} nodes are broken and spec.health.maxUnhealthy is {limit}, so none is "
            f"rebuilt: {names_of(broken)}"
        )
        return Condition.false(type_, Reason.BUDGET_EXCEEDED, message)
    for cause in repairs:
        held = observed.operations.get(cause.operation)
        name = cause.instance.key.name
        if held is not None and held.finished and not cause.token:
            message = f"{name} is broken and could not be rebuilt: {held.message}"
            return Condition.false(type_, Reason.REBUILD_FAILED, message)
        if is_exhausted(cause):
            message = (
                f"{name} was rebuilt {MOST_REBUILDS} times and was never ready; correct the image "
                "or the Network, and request another rebuild with a new token in spec.recycle"
            )
            return Condition.false(type_, Reason.REBUILD_FAILED, message)
        if cause.is_plane and (problem := explain_blocked(cluster, observed, cause)):
            message = f"{name} cannot be replaced: {problem}"
            return Condition.false(type_, Reason.CONTROL_PLANE_BROKEN, message)
        away = find_away(cluster, observed, node_health)
        if away is not None:
            message = f"{name} waits until {away.key.name} is back: "
            message += node_health[away.key.name].message
            return Condition.true(type_, cause.reason, message)
        return Condition.true(
            type_, cause.reason, f"{name} is being drained and will then be rebuilt"
        )
    planes = list_broken(observed.members(CONTROL_PLANE), node_health)
    if planes:
        message = f"{names_of(planes)}: {node_health[planes[0].key.name].message}"
        return Condition.false(type_, Reason.CONTROL_PLANE_BROKEN, message)
    return Condition.false(type_, Reason.HEALTHY, "no node is broken")


def evaluate_certificates(observed: Observed, now: datetime) -> Condition:
    """Build the condition CertificatesExpiring."""
    type_ = ConditionType.CERTIFICATES_EXPIRING
    for name, expires in _list_authorities(observed):
        if expires - now < _WARNING_TIME:
            message = (
                f"certificate authority {name} expires on {expires:%Y-%m-%d}; the operator does "
                "not replace authorities: move to a new cluster before that date"
            )
            return Condition.true(type_, Reason.EXPIRING, message)
    served = observed.workload.certificate_expires
    if served is None:
        message = "the API of the cluster has not shown its certificate yet"
        return Condition.unknown(type_, Reason.NOT_CHECKED, message)
    if served - now < _WARNING_TIME:
        message = (
            f"a certificate that the API serves expires on {served:%Y-%m-%d}; check "
            "slipway-renew.timer on the nodes of the control plane, or run `kubeadm certs renew "
            "all` there and restart the static pods"
        )
        return Condition.true(type_, Reason.EXPIRING, message)
    return Condition.false(type_, Reason.VALID, "no certificate expires within 90 days")


def _list_authorities(observed: Observed) -> list[tuple[str, datetime]]:
    if observed.authorities is None:
        return []
    files = observed.authorities.files
    return [(name, expiry_of(files[f"{name}.crt"])) for name in AUTHORITY_FILES]
