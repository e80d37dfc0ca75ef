"""Upgrade of a cluster to the version in its spec. Pure.

The order follows the version skew policy of Kubernetes: no kubelet may be newer than any API
server.

1. the version with which kubeadm joins control plane nodes;
2. the nodes of the control plane, one at a time (`replacement`, `nodes`);
3. kube-proxy;
4. the nodes of the pools, one at a time.

The current step is derived from the versions that the nodes report, so it survives a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.observed import Observed, control_plane_names
from operators.clusters.versions import Version, is_older


@dataclass(frozen=True, slots=True)
class SetVersion:
    """A step that sets the version with which kubeadm joins control plane nodes.

    Attributes:
        old: Version that must be set before; otherwise another client has changed it.
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
    """A step that sets the version of kube-proxy."""

    version: str
    kind: ClassVar[str] = "SetProxyVersion"
    node: ClassVar[str] = ""

    def __str__(self) -> str:
        """Render for logs."""
        return f"set the version of kube-proxy to {self.version}"


type VersionStep = SetVersion | SetProxyVersion
"""A change of a version that does not concern a node."""


def plan_versions(cluster: KubernetesCluster, observed: Observed) -> tuple[VersionStep, ...]:
    """Plan the changes of versions in the managed cluster."""
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
    """Return whether a control plane node that joins now would get an older version."""
    return is_older(observed.workload.version, cluster.spec.version)


def is_behind(cluster: KubernetesCluster, observed: Observed) -> bool:
    """Return whether the control plane has an older version than the spec.

    While this is the case, nodes of pools are neither created nor rebuilt, because the kubelet in
    the image of the spec is newer than the API server.
    """
    # Nodes without a known machine count as well, because the cache of machines can be outdated.
    return is_config_behind(cluster, observed) or any(
        is_older(observed.version_of(name), cluster.spec.version)
        for name in control_plane_names(cluster)
    )


def list_planes(cluster: KubernetesCluster, observed: Observed) -> list[str]:
    """Return the control plane nodes whose machines exist, by slot."""
    return [name for name in control_plane_names(cluster) if name in observed.instances]


def is_old(cluster: KubernetesCluster, observed: Observed, node: str) -> bool:
    """Return whether a node is known to have an older version than the spec."""
    return is_older(observed.version_of(node), cluster.spec.version)


def count_versions(observed: Observed) -> dict[str, list[str]]:
    """Return the names of the nodes by version, oldest version first.

    Nodes without a machine and invalid versions are omitted.
    """
    found: dict[str, list[str]] = {}
    for name in sorted(observed.instances):
        version = observed.version_of(name)
        if Version.parse(version) is not None:
            found.setdefault(version, []).append(name)
    return dict(sorted(found.items(), key=lambda item: (Version.parse(item[0]), item[0])))
