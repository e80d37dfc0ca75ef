"""Checks whether the Network of a cluster gives guests addresses that nodes can use. Pure.

Nodes reach each other by the addresses of their guests. With the binding Masquerade, every guest
has the address 10.0.2.2, so nodes and members of etcd could not reach each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Final

from libs.common.conditions import Condition
from libs.contracts.network import NetworkView
from operators.clusters.api.reasons import ConditionType, Reason
from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.observed import Observed, is_begun

_POD_BINDINGS: Final = frozenset({"Bridge", "Passt"})
"""Bindings with which a guest has the address of its pod."""


def keeps_addresses(network: NetworkView | None) -> bool:
    """Return whether guests of a Network keep their addresses when their machines restart.

    The address of a pod changes at each restart; an address of an IPPool does not.
    """
    return network is not None and network.allocates_addresses


def is_blocked(cluster: KubernetesCluster, observed: Observed) -> bool:
    """Return whether nothing must be created because the Network is unsuitable.

    An initialized cluster is kept running even if its Network changes.
    """
    return not is_begun(cluster, observed) and _find_problem(cluster, observed) is not None


def evaluate_network(cluster: KubernetesCluster, observed: Observed) -> Condition:
    """Build the condition NetworkReady."""
    type_ = ConditionType.NETWORK_READY
    problem = _find_problem(cluster, observed)
    if problem is not None:
        return Condition.false(type_, *problem)
    if overlap := next(_list_overlaps(cluster, observed), None):
        return Condition.false(type_, Reason.ADDRESS_OVERLAP, overlap)
    if wrong := next(_list_wrong_addresses(observed), None):
        return Condition.false(type_, Reason.ADDRESS_MISMATCH, wrong)
    name = cluster.spec.network_ref.name
    kind = "of their own" if keeps_addresses(observed.network) else "of their pods"
    message = f"Network {name} gives guests addresses {kind}"
    return Condition.true(type_, Reason.AVAILABLE, message)


def _find_problem(cluster: KubernetesCluster, observed: Observed) -> tuple[Reason, str] | None:
    network, name = observed.network, cluster.spec.network_ref.name
    if network is None:
        message = f"spec.networkRef: Network {name} does not exist; create it"
        return Reason.NETWORK_MISSING, message
    if keeps_addresses(network):
        return _find_overlap(cluster, network)
    if network.is_attached:
        message = (
            f"Network {name} gives guests no addresses; use a Network with poolRef, which names "
            "an IPPool"
        )
        return Reason.NETWORK_UNSUITABLE, message
    if network.binding not in _POD_BINDINGS:
        message = (
            f"Network {name} has the binding {network.binding}, so all guests have the same "
            "address; use a Network with binding Passt or Bridge, or with backend Multus and "
            "poolRef"
        )
        return Reason.NETWORK_UNSUITABLE, message
    if cluster.spec.control_plane.count > 1:
        message = (
            f"Network {name} gives guests the addresses of their pods, which change at each "
            "restart; spec.controlPlane.count above 1 needs a Network with backend Multus and "
            "poolRef, since members of etcd know each other by address"
        )
        return Reason.NETWORK_UNSUITABLE, message
    return None


def _list_blocks(cluster: KubernetesCluster) -> tuple[tuple[str, str], ...]:
    """Return the blocks that only exist inside the cluster, each with its field."""
    return (("podCidr", cluster.spec.pod_cidr), ("serviceCidr", cluster.spec.service_cidr))


def _find_overlap(cluster: KubernetesCluster, network: NetworkView) -> tuple[Reason, str] | None:
    """Return a block of the cluster that overlaps with its Network; it prevents all creates."""
    for field, block in _list_blocks(cluster):
        for cidr in network.cidrs:
            ours, theirs = ip_network(block, strict=False), ip_network(cidr, strict=False)
            if ours.version == theirs.version and ours.overlaps(theirs):
                message = (
                    f"spec.{field} {block} overlaps with {cidr} of Network {network.key.name}, so "
                    f"nodes could not reach each other; create the cluster with another {field}"
                )
                return Reason.ADDRESS_OVERLAP, message
    return None


def _list_overlaps(cluster: KubernetesCluster, observed: Observed) -> Iterator[str]:
    """Yield a message for each machine whose address is in a block of the cluster.

    For a Network with addresses of pods, only the addresses of machines show an overlap. It is
    likely, because the default of podCidr is the pod network of many clusters.
    """
    for name, instance in sorted(observed.instances.items()):
        if not instance.private_ip:
            continue
        for field, block in _list_blocks(cluster):
            if ip_address(instance.private_ip) in ip_network(block, strict=False):
                yield (
                    f"machine {name} has the address {instance.private_ip}, which is in "
                    f"spec.{field} {block}, so nodes cannot reach each other; create another "
                    f"cluster with another {field}"
                )


def _list_wrong_addresses(observed: Observed) -> Iterator[str]:
    """Yield a message for each node that is registered with another address than its machine."""
    for name, instance in sorted(observed.instances.items()):
        node = observed.workload.nodes.get(name)
        if node is None or not node.address or not instance.private_ip:
            continue
        if node.ready and node.address != instance.private_ip:
            yield (
                f"node {name} is registered with the address {node.address} and its machine has "
                f"{instance.private_ip}; other nodes cannot reach it"
            )
