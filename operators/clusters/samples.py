"""Objects for the tests of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from libs.common.kinds import NODE, Manifest, build_object
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView
from libs.contracts.network import NETWORK, NetworkView
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.certificates import Authorities, Pair, make_authorities
from operators.clusters.controller import CertificateIssuer
from operators.clusters.naming import CLUSTER_LABEL, DRAINING, MANAGED, POOL_LABEL

UID: Final = "33333333-3333-4333-8333-333333333333"
"""UID of the cluster that `build_cluster` builds."""
VERSION: Final = "v1.34.2"
"""Version of the cluster that `build_cluster` builds."""
NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""Time of the tests."""
ADDRESS: Final = "203.0.113.7"
"""Address of the cluster."""


def build_network(name: str = "lan", /, **spec: Any) -> Manifest:
    """Build a Network whose guests have their own addresses."""
    pool = {"cidrs": ["10.0.0.0/16"], "backend": "Multus", "providerNetworkRef": {"name": "office"}}
    asked = spec or {**pool, "poolRef": {"name": "private"}}
    return build_object(NETWORK, name, "default", spec=asked)


def view_network(**spec: Any) -> NetworkView:
    """Build the view of a Network; arguments as `build_network`."""
    return NetworkView.parse(build_network(**spec))


def build_cluster(
    name: str = "edge", /, *, count: int = 1, workers: int = 1, **spec: Any
) -> Manifest:
    """Build a cluster with a control plane and a pool `web`, as the API server would return it."""
    return build_object(
        KUBERNETES_CLUSTER,
        name,
        "default",
        metadata={"uid": UID, "generation": 1},
        spec={
            "version": VERSION,
            "image": {"registry": "docker://registry.example.com/kubernetes-node:v1.34.2"},
            "networkRef": {"name": "lan"},
            "controlPlane": {
                "count": count,
                "size": "medium",
                "endpoint": {"poolName": "public"},
            },
            "pools": [{"name": "web", "count": workers, "size": "large"}],
            **spec,
        },
    )


def parse_cluster(name: str = "edge", /, **spec: Any) -> KubernetesCluster:
    """Build a parsed cluster."""
    return KubernetesCluster.parse(build_cluster(name, **spec))


@cache
def authorities() -> Authorities:
    """Create authorities once for all tests, because creating keys is slow."""
    return make_authorities("edge", NOW)


@cache
def credentials() -> tuple[Pair, Pair]:
    """Create credentials of an administrator and of members once for all tests."""
    issuer = CertificateIssuer(NOW)
    return issuer.administrator(authorities()), issuer.member(authorities())


class SameIssuer:
    """An issuer that returns the same keys and certificates each time, and counts its calls."""

    def __init__(self) -> None:
        """Begin."""
        self.asked: list[str] = []

    def authorities(self, cluster: str) -> Authorities:
        """Return the authorities."""
        self.asked.append("authorities")
        return authorities()

    def administrator(self, _: Authorities) -> Pair:
        """Return the credentials of an administrator."""
        self.asked.append("administrator")
        return credentials()[0]

    def member(self, _: Authorities) -> Pair:
        """Return the credentials with which nodes join."""
        self.asked.append("member")
        return credentials()[1]


def build_instance(
    name: str,
    pool: str = "web",
    *,
    ready: bool = True,
    since: datetime = NOW - timedelta(hours=1),
    evicting: bool = False,
    migratable: bool = False,
    strategy: str = "External",
    **metadata: Any,
) -> Manifest:
    """Build the Instance of a node with the status that compute would set."""
    moment = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    number = int(name.rpartition("-")[2]) + (100 if pool != CONTROL_PLANE else 1)
    return build_object(
        INSTANCE,
        name,
        "default",
        metadata={
            "uid": f"{name}-uid",
            "creationTimestamp": moment,
            "resourceVersion": "1",
            "labels": {CLUSTER_LABEL: "edge", POOL_LABEL: pool},
            **metadata,
        },
        spec={"size": "large", "evictionStrategy": strategy},
        status={
            "vmiUID": f"{name}-vmi",
            "nodeName": "host-1",
            "privateIP": f"10.0.0.{number}",
            "rootDisk": {"name": f"{name}-root"},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "False",
                    "reason": "Running",
                    "message": "",
                    "lastTransitionTime": moment,
                },
                {"type": "Evicting", "status": str(evicting)},
                {"type": "Migratable", "status": str(migratable)},
            ],
        },
    )


def view_instance(name: str, pool: str = "web", **options: Any) -> InstanceView:
    """Build the view of the Instance of a node."""
    return InstanceView.parse(build_instance(name, pool, **options))


def build_operation(name: str, instance: str, phase: str = "") -> Manifest:
    """Build an Operation on a node."""
    return build_object(
        OPERATION,
        name,
        "default",
        metadata={"uid": f"{name}-uid"},
        spec={"type": "Rebuild", "targetRef": {"name": instance}},
        status={"phase": phase} if phase else {},
    )


def build_node(
    name: str,
    *,
    ready: bool = True,
    since: datetime = NOW - timedelta(minutes=30),
    draining: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    version: str = VERSION,
) -> Manifest:
    """Build a Node as the API of a managed cluster would return it."""
    moment = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    notes = {MANAGED: '{"labels":["clusters.slipway.dev/pool"],"taints":[]}'}
    if draining:
        notes[DRAINING] = draining.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return build_object(
        NODE,
        name,
        metadata={
            "uid": f"{name}-node",
            "labels": dict(labels if labels is not None else {POOL_LABEL: "web"}),
            "annotations": notes,
        },
        spec={"unschedulable": True} if draining else {},
        status={
            "conditions": [{**condition, "lastTransitionTime": moment}],
            "nodeInfo": {"kubeletVersion": version},
        },
    )
