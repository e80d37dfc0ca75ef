"""Replacement of a control plane node and of its etcd member. Pure.

The etcd member is removed before the node gets a new disk or is recreated: kubeadm adds a new
member when the node joins, and etcd must never have more members than nodes. After a crash between
two steps, the list of members shows which steps are left.
"""

from __future__ import annotations

from dataclasses import replace

from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.causes import REPLACEABLE, Cause
from operators.clusters.etcd import Etcd, Member, RemoveMember, explain_incomplete, explain_unsafe
from operators.clusters.observed import Observed, control_plane_names, is_initialized, is_lost
from operators.clusters.upgrade import is_config_behind, list_planes


def explain_blocked(cluster: KubernetesCluster, observed: Observed, cause: Cause) -> str:
    """Return why a control plane node cannot be replaced or moved now; empty if it can.

    All other nodes must exist, be ready and be healthy members of etcd, because one node is missing
    during the replacement. A control plane of one node has no others, so nothing has to wait.
    """
    if cause.is_move and cluster.spec.control_plane.count < REPLACEABLE:
        return ""
    if cause.reason is Reason.UPGRADING and not observed.workload.version:
        return "ConfigMap kube-system/kubeadm-config cannot be read, or names no version"
    if is_config_behind(cluster, observed):
        return "ConfigMap kube-system/kubeadm-config gets the version of the spec first"
    planes = list_planes(cluster, observed)
    missing = [each for each in control_plane_names(cluster) if each not in planes]
    if missing:
        return f"{missing[0]} is created first"
    others = [each for each in planes if each != cause.node]
    for name in others:
        if not observed.is_ready(observed.instances[name]):
            return f"{name} is not ready"
    etcd = observed.workload.etcd
    member = find_member(observed, cause.node)
    rest = etcd if member is None else _without(etcd, member)
    if problem := explain_incomplete(rest, others):
        return problem
    return "" if member is None else explain_unsafe(etcd, member)


def find_member(observed: Observed, node: str) -> Member | None:
    """Return the member of etcd on a node of the control plane."""
    held, instance = observed.workload.nodes.get(node), observed.instances.get(node)
    address = held.address if held is not None else ""
    if instance is not None:
        address = instance.private_ip
    elif held is None:
        # A lost machine that has never started etcd: only its member belongs to no machine.
        known = {each.private_ip for each in observed.instances.values()}
        unnamed = [each for each in observed.workload.etcd.members if not each.name]
        strays = [each.address for each in unnamed if each.address not in known]
        address = strays[0] if strays and "" not in known else ""
    return observed.workload.etcd.find(node, address)


def plan_member(observed: Observed, node: str) -> RemoveMember | None:
    """Return the step that removes the etcd member of a node before its replacement, or None."""
    member = find_member(observed, node)
    has_machine = node in observed.instances
    return None if member is None else RemoveMember(member, node, has_machine)


def list_lost(cluster: KubernetesCluster, observed: Observed) -> list[str]:
    """Return the control plane nodes that had joined and whose machines no longer exist."""
    begun = is_initialized(cluster, observed) and not is_lost(cluster, observed)
    if not begun or cluster.spec.control_plane.count < REPLACEABLE:
        return []
    return [
        name
        for name in control_plane_names(cluster)
        if name not in observed.instances
        and (name in observed.workload.nodes or find_member(observed, name) is not None)
    ]


def explain_lost(cluster: KubernetesCluster, observed: Observed) -> str:
    """Return why a lost control plane node is not recreated yet; empty if no node is lost."""
    for name in list_lost(cluster, observed):
        etcd = observed.workload.etcd
        if not etcd.is_known:
            problem = etcd.problem or "the API of the cluster does not respond"
            return f"{name} is lost, and the members of etcd cannot be listed: {problem}"
        member = find_member(observed, name)
        if member is None:
            return f"{name} is lost; its Node is removed and it is created again"
        problem = explain_unsafe(etcd, member)
        return problem or f"{name} is lost; its member of etcd is removed first"
    return ""


def is_vacant(cluster: KubernetesCluster, observed: Observed, node: str) -> bool:
    """Return whether a control plane node may be created: no Node or etcd member of it is left."""
    return node not in list_lost(cluster, observed) and not is_config_behind(cluster, observed)


def _without(etcd: Etcd, member: Member) -> Etcd:
    return replace(etcd, members=tuple(each for each in etcd.members if each.id != member.id))
