"""How a node of the control plane is replaced, and what becomes of its member of etcd; pure.

The member is removed before the node gets a new disk or is created again: kubeadm adds a new member
when the node joins, and etcd never has more members than nodes. A crash between two steps is seen
in the list of members.
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
    """Explain why a node of the control plane cannot be replaced now; empty if it can.

    All other nodes must exist and be ready and healthy members of etcd, because one more is away
    for as long as the replacement takes.
    """
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
    address = instance.private_ip if instance is not None else held.address if held else ""
    return observed.workload.etcd.find(node, address)


def plan_member(observed: Observed, node: str) -> RemoveMember | None:
    """Decide whether a node has a member that must be removed before the node is replaced."""
    member = find_member(observed, node)
    has_machine = node in observed.instances
    return None if member is None else RemoveMember(member, node, has_machine)


def list_lost(cluster: KubernetesCluster, observed: Observed) -> list[str]:
    """List the nodes of the control plane that had joined and whose machines do not exist."""
    begun = is_initialized(cluster, observed) and not is_lost(cluster, observed)
    if not begun or cluster.spec.control_plane.count < REPLACEABLE:
        return []
    return [
        name
        for name in control_plane_names(cluster)
        if name not in observed.instances
        and (name in observed.workload.nodes or observed.workload.etcd.find(name, "") is not None)
    ]


def explain_lost(cluster: KubernetesCluster, observed: Observed) -> str:
    """Explain why a lost node of the control plane is not created again yet; empty for none."""
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
    """Return whether a control plane node may be created: nothing of a former one is left."""
    return node not in list_lost(cluster, observed) and not is_config_behind(cluster, observed)


def _without(etcd: Etcd, member: Member) -> Etcd:
    return replace(etcd, members=tuple(each for each in etcd.members if each.id != member.id))
