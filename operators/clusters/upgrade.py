"""How a cluster gets to the version of its spec; pure.

The order follows the version skew policy of Kubernetes, by which no kubelet may be newer than an
API server:

1. the version that kubeadm joins nodes of the control plane with;
2. the nodes of the control plane, one at a time (`replacement`, `nodes`);
3. kube-proxy;
4. the nodes of the pools, one at a time.

Each step is found again from the versions that the nodes report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.observed import Observed, control_plane_names
from operators.clusters.versions import Version, is_older


@dataclass(frozen=True, slots=True)
class SetVersion:
    """A step that sets the version with which kubeadm joins control plane nodes.

    Attributes:
        old: Version that it replaces.
        version: New version.
    """

    old: str
    version: str
    kind: ClassVar[str] = "SetVersion"
    node: ClassVar[str] = ""

    def __str__(self) -> str:
        """Render for logs."""
        return f"set the version of kubeadm to {self.version}"


@dataclass(frozen=True, slots=True)
class SetProxyVersion:
    """A step that sets the version of kube-proxy.

    Attributes:
        version: New version.
    """

    version: str
    kind: ClassVar[str] = "SetProxyVersion"
    node: ClassVar[str] = ""

    def __str__(self) -> str:
        """Render for logs."""
        return f"set the version of kube-proxy to {self.version}"


type VersionStep = SetVersion | SetProxyVersion
"""A change of a version that does not concern a node."""


def plan_versions(cluster: KubernetesCluster, observed: Observed) -> tuple[VersionStep, ...]:
    """Decide which versions are set in the cluster that was made."""
    target, workload = cluster.spec.version, observed.workload
    if not workload.reachable:
        return ()
    if is_older(workload.version, target):
        return (SetVersion(workload.version, target),)
    planes = [Version.parse(observed.version_of(name)) for name in list_planes(cluster, observed)]
    is_known = all(each is not None for each in planes)
    if is_older(workload.proxy_version, target) and is_known and not is_behind(cluster, observed):
        return (SetProxyVersion(target),)
    return ()


def is_config_behind(cluster: KubernetesCluster, observed: Observed) -> bool:
    """Return whether a node of the control plane that joins now would get an older version."""
    return is_older(observed.workload.version, cluster.spec.version)


def is_behind(cluster: KubernetesCluster, observed: Observed) -> bool:
    """Return whether the control plane has an older version than the spec.

    Until it has not, nodes of pools are neither created nor rebuilt: the image of the spec has a
    newer kubelet than the API server.
    """
    # Nodes count even if their machines are unknown: the cache of machines can be the older one.
    return is_config_behind(cluster, observed) or any(
        is_older(observed.version_of(name), cluster.spec.version)
        for name in control_plane_names(cluster)
    )


def list_planes(cluster: KubernetesCluster, observed: Observed) -> list[str]:
    """List the nodes of the control plane whose machines exist, by slot."""
    return [name for name in control_plane_names(cluster) if name in observed.instances]


def is_old(cluster: KubernetesCluster, observed: Observed, node: str) -> bool:
    """Return whether a node is known to have an older version than the spec."""
    return is_older(observed.version_of(node), cluster.spec.version)


def list_old(cluster: KubernetesCluster, observed: Observed, names: Iterable[str]) -> list[str]:
    """Return the given nodes that have an older version than the spec."""
    return [name for name in names if is_old(cluster, observed, name)]


def count_versions(observed: Observed) -> dict[str, list[str]]:
    """Return the names of the nodes by version, oldest version first.

    Nodes without a machine and versions that cannot be read are left out.
    """
    found: dict[str, list[str]] = {}
    for name in sorted(observed.instances):
        version = observed.version_of(name)
        if Version.parse(version) is not None:
            found.setdefault(version, []).append(name)
    return dict(sorted(found.items(), key=lambda item: (Version.parse(item[0]), item[0])))
