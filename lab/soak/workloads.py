"""Workloads that operators process while parts of a node fail: create, change, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from libs.common.crd import kind_of
from libs.common.kinds import Kind, Manifest, build_object
from libs.contracts.compute import INSTANCE, INSTANCE_SIZE
from libs.contracts.ip_claims import IP_CLAIM, IP_POOL
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from operators.podset.api import PodSet
from operators.volumes.api.v1alpha1 import DEMO_VOLUME

_SHARED: Final = "soak-nodes"
"""Name of the shared objects of an operator; a pool is visible in the whole cluster."""

_POOL: Final = (IP_POOL, {"family": "IPv4", "addresses": ["198.51.100.0/26"]})
_NETWORK: Final = (NETWORK, {"cidrs": ["10.10.0.0/16"], "gateway": "10.10.0.1", "binding": "Passt"})
_SIZE: Final = (INSTANCE_SIZE, {"cpus": 1, "memory": "1Gi", "disk": "1Gi"})
_IMAGE: Final = {"registry": "docker://registry.example.com/node:v1.34.2"}


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload of one operator on a bare kind cluster.

    Attributes:
        operator: Its id.
        kind: Kind of the objects.
        spec: What each asks for at first.
        change: Merge patch of the spec that is made later.
        initial_objects: Objects that there have to be before, each with its kind.
    """

    operator: str
    kind: Kind
    spec: Manifest
    change: Manifest
    initial_objects: tuple[tuple[Kind, Manifest], ...] = ()


def build_initial_objects(work: Workload, namespace: str) -> list[tuple[Kind, Manifest]]:
    """Build what there has to be before the work."""
    return [
        (kind, build_object(kind, _SHARED, namespace, spec=spec))
        for kind, spec in work.initial_objects
    ]


WORKS: Final = (
    Workload(
        "podset",
        kind_of(PodSet),
        {"replicas": 2},
        {"replicas": 3},
    ),
    Workload(
        "volumes",
        DEMO_VOLUME,
        {"size": 1, "storageClassName": "standard"},
        {"deletionPolicy": "Delete"},
    ),
    Workload(
        "ipam",
        IP_CLAIM,
        {"poolRef": {"name": _SHARED}},
        {"priority": 10},
        (_POOL,),
    ),
    Workload(
        "compute",
        INSTANCE,
        {"size": _SHARED, "image": _IMAGE},
        {"power": "Stopped"},
        (_SIZE,),
    ),
    Workload(
        "clusters",
        KUBERNETES_CLUSTER,
        {
            "version": "v1.34.2",
            "image": _IMAGE,
            "networkRef": {"name": _SHARED},
            "controlPlane": {"size": _SHARED, "endpoint": {"poolName": _SHARED}},
            "pools": [{"name": "web", "count": 1, "size": _SHARED}],
        },
        {"pools": [{"name": "web", "count": 2, "size": _SHARED}]},
        (_SIZE, _POOL, _NETWORK),
    ),
    Workload(
        "network",
        FIREWALL,
        {
            "networkRef": {"name": _SHARED},
            "rules": [{"name": "web", "protocol": "TCP", "ports": [80]}],
        },
        {"rules": [{"name": "web", "protocol": "TCP", "ports": [80, 443]}]},
        (_NETWORK,),
    ),
)
"""Operators on a kind cluster; the last two need a KubeVirt there, or the simulator of one."""
