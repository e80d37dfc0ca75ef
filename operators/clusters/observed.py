"""The observed objects of a KubernetesCluster, as input of plan and status. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from libs.common.kinds import SECRET, Kind, Manifest, uid_of
from libs.common.reading import (
    condition_at,
    is_set_at,
    map_at,
    maps_at,
    text_at,
    text_map_at,
    time_at,
)
from libs.contracts.compute import InstanceView, OperationView
from libs.contracts.ip_claims import IpClaimView
from libs.contracts.network import NetworkView
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster, Pool
from operators.clusters.certificates import Authorities, Pair
from operators.clusters.etcd import Etcd
from operators.clusters.naming import (
    ADDRESS_KEY,
    DRAINING,
    MANAGED,
    POOL_LABEL,
    kubeconfig_name,
    node_name,
    slot_of,
)
from operators.clusters.services import GuestService

_TAINT: Final = ("key", "value", "effect", "timeAdded")
DEFAULT_DRAIN_SECONDS: Final = 300
"""Time for draining a node whose pool was removed from the spec."""


@dataclass(frozen=True, slots=True)
class Node:
    """A view of a Node of the managed cluster.

    Attributes:
        pool: Pool with which it joined; empty for the control plane.
        ready: Whether its condition Ready is True.
        since: Time at which that condition last changed.
        message: Message of that condition, from the kubelet or the node controller.
        draining_since: Time at which the operator began to drain it; None if it is not drained.
        pods_left: Number of pods that must leave it; counted only for nodes that are drained.
        managed: Labels and taints that come from the pool; empty before the operator set any.
        address: InternalIP with which it is registered; empty for none.
        kubelet: Version of its kubelet; empty before the kubelet reported one.
    """

    name: str
    uid: str
    pool: str
    ready: bool
    since: datetime | None
    message: str
    cordoned: bool
    draining_since: datetime | None
    pods_left: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    managed: str = ""
    resource_version: str = ""
    address: str = ""
    kubelet: str = ""

    @classmethod
    def parse(cls, manifest: Manifest, pods_left: int = 0) -> Self:
        """Parse a Node; invalid fields count as absent."""
        condition = condition_at(manifest, "Ready")
        return cls(
            name=text_at(manifest, "metadata", "name"),
            uid=uid_of(manifest),
            pool=text_map_at(manifest, "metadata", "labels").get(POOL_LABEL, ""),
            ready=condition.get("status") == "True",
            since=time_at(condition, "lastTransitionTime"),
            message=text_at(condition, "message"),
            cordoned=is_set_at(manifest, "spec", "unschedulable"),
            draining_since=time_at(map_at(manifest, "metadata", "annotations"), DRAINING),
            pods_left=pods_left,
            labels=text_map_at(manifest, "metadata", "labels"),
            taints=tuple(
                {name: each[name] for name in _TAINT if isinstance(each.get(name), str)}
                for each in maps_at(manifest, "spec", "taints")
                if text_at(each, "key") and text_at(each, "effect")
            ),
            managed=text_map_at(manifest, "metadata", "annotations").get(MANAGED, ""),
            resource_version=text_at(manifest, "metadata", "resourceVersion"),
            kubelet=text_at(manifest, "status", "nodeInfo", "kubeletVersion"),
            address=next(
                (
                    text_at(each, "address")
                    for each in maps_at(manifest, "status", "addresses")
                    if each.get("type") == "InternalIP"
                ),
                "",
            ),
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """The state of the managed cluster, as its own API reports it.

    Attributes:
        message: Why the API did not respond.
        certificate_expires: Expiry of the certificate that the API serves; None if unknown.
        addons: Digest of the content that was applied last, by addon.
        version: Version with which kubeadm joins control plane nodes; empty if unknown.
        proxy_version: Version of kube-proxy; empty for a cluster without it.
        etcd: Members of etcd; they are listed for three and five nodes of the control plane.
        services: Services of type LoadBalancer; None if they were not listed.
        services_problem: Why they could not be listed.
    """

    asked: bool = False
    reachable: bool = False
    message: str = ""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    certificate_expires: datetime | None = None
    addons: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    proxy_version: str = ""
    etcd: Etcd = field(default_factory=Etcd)
    services: tuple[GuestService, ...] | None = None
    services_problem: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """All inputs of plan and status.

    Attributes:
        missing_apis: Kinds of other operators that the cluster does not serve.
        authorities: Certificate authorities of the cluster; None before they are created.
        authorities_problem: Why the authorities are unusable; empty if they are usable or missing.
        objects: Children of the cluster other than Instances and Operations, by kind and name.
        claim: IPClaim of the address; None before it is created.
        operations: Operations of the operator, by name.
        busy: Names of Instances with an Operation that is in progress or waiting.
        workload: State of the managed cluster, as its own API reports it.
        network: The Network of the nodes; None if it does not exist.
        addons: Content of the ConfigMaps of addons, by name of the ConfigMap.
        addon_problems: Why addons could not be applied in this reconcile, by addon.
        service_problem: Why the objects of a Service of the managed cluster could not be written.
    """

    missing_apis: tuple[str, ...] = ()
    authorities: Authorities | None = None
    authorities_problem: str = ""
    objects: Mapping[tuple[Kind, str], Manifest] = field(default_factory=dict)
    claim: IpClaimView | None = None
    instances: Mapping[str, InstanceView] = field(default_factory=dict)
    operations: Mapping[str, OperationView] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    workload: Workload = field(default_factory=Workload)
    network: NetworkView | None = None
    addons: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    addon_problems: Mapping[str, str] = field(default_factory=dict)
    service_problem: str = ""

    @property
    def address(self) -> str:
        """Address of the API; empty before it is allocated."""
        return self.claim.address if self.claim is not None else ""

    def data_of(self, kind: Kind, name: str) -> dict[str, str]:
        """Return the values of a Secret of the cluster, without binary values."""
        return read_data(self.objects.get((kind, name)) or {})

    def members(self, pool: str) -> list[InstanceView]:
        """Return the Instances of a pool, by name."""
        return [
            each
            for _, each in sorted(self.instances.items())
            if each.labels.get(POOL_LABEL) == pool
        ]

    def workers(self) -> list[InstanceView]:
        """Return the Instances of all pools except the control plane, by name."""
        return [
            each
            for _, each in sorted(self.instances.items())
            if each.labels.get(POOL_LABEL) != CONTROL_PLANE
        ]

    def is_ready(self, instance: InstanceView) -> bool:
        """Return whether a node is ready, as far as known.

        While the API of the cluster does not respond, a running machine counts as a ready node: the
        operator itself may be disconnected.
        """
        if not instance.ready or instance.deleting or instance.stopped:
            return False
        if not self.workload.reachable:
            return True
        node = self.workload.nodes.get(instance.key.name)
        return node is not None and node.ready

    def version_of(self, node: str) -> str:
        """Return the version of the kubelet of a node; empty if unknown."""
        held = self.workload.nodes.get(node)
        return held.kubelet if held is not None else ""

    def count_ready(self, instances: Iterable[InstanceView]) -> int:
        """Count the nodes that are known to be ready: 0 while the API does not respond."""
        return sum(map(self.is_ready, instances)) if self.workload.reachable else 0


def read_data(secret: Mapping[str, object]) -> dict[str, str]:
    """Decode the values of a Secret, and omit binary values."""
    found = {}
    for name, value in text_map_at(secret, "data").items():
        try:
            found[name] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return found


def read_pair(data: Mapping[str, str]) -> Pair:
    """Read a certificate and its key from a Secret of type kubernetes.io/tls."""
    return Pair(data.get("tls.crt", ""), data.get("tls.key", ""))


def is_initialized(cluster: KubernetesCluster, observed: Observed) -> bool:
    """Return whether the cluster is initialized: its API responds, or has responded before."""
    conditions = cluster.observed.conditions
    return observed.workload.reachable or any(
        each.type == "Initialized" and each.status == "True" for each in conditions
    )


def is_lost(cluster: KubernetesCluster, observed: Observed) -> bool:
    """Return whether an initialized cluster has no control plane node left that others could join.

    Creating a first node again would initialize an empty cluster with the old name.
    """
    left = any(name in observed.instances for name in control_plane_names(cluster))
    return is_initialized(cluster, observed) and not left


def is_begun(cluster: KubernetesCluster, observed: Observed) -> bool:
    """Return whether anything exists, or has existed, that depends on the certificate authorities.

    If so, new authorities would lock all nodes and users out of the cluster.
    """
    return bool(observed.instances) or is_initialized(cluster, observed)


def find_address(cluster: KubernetesCluster, observed: Observed) -> str:
    """Return the address with which the cluster was created, or is to be created; empty for none.

    Certificates and nodes contain it, so it stays even if a restored IPClaim has another one.
    """
    held = observed.data_of(SECRET, kubeconfig_name(cluster.metadata.name)).get(ADDRESS_KEY, "")
    return (held if is_begun(cluster, observed) else "") or observed.address


def wanted_names(cluster: KubernetesCluster, pool: Pool) -> list[str]:
    """Return the names of the nodes that a pool should have, by slot."""
    return [node_name(cluster.metadata.name, pool.name, slot) for slot in range(pool.count)]


def control_plane_names(cluster: KubernetesCluster) -> list[str]:
    """Return the names of the nodes that the control plane should have, by slot."""
    slots = range(cluster.spec.control_plane.count)
    return [node_name(cluster.metadata.name, CONTROL_PLANE, slot) for slot in slots]


def list_excess(cluster: KubernetesCluster, observed: Observed) -> list[InstanceView]:
    """Return the surplus nodes of pools; never a control plane node, by label or by name."""
    kept = {name for pool in cluster.spec.pools for name in wanted_names(cluster, pool)}
    kept |= set(control_plane_names(cluster))
    return [each for each in observed.workers() if each.key.name not in kept]


def pool_of(cluster: KubernetesCluster, instance: InstanceView) -> Pool | None:
    """Return the pool of a node in the spec; None if the pool was removed."""
    return cluster.spec.pool(instance.labels.get(POOL_LABEL, ""))


def drain_seconds(cluster: KubernetesCluster, instance: InstanceView) -> int:
    """Return the maximum time for draining a node."""
    pool = pool_of(cluster, instance)
    return DEFAULT_DRAIN_SECONDS if pool is None else pool.drain_seconds


def is_node_of(cluster: KubernetesCluster, node: Node) -> bool:
    """Return whether a Node has the name of a node of a pool."""
    return bool(node.pool) and slot_of(cluster.metadata.name, node.pool, node.name) is not None


def names_of(instances: Iterable[InstanceView], limit: int = 3) -> str:
    """Render the names of nodes for a message."""
    names = [each.key.name for each in instances]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
