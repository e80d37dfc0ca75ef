"""Names, labels and annotations of the objects that the operator creates.

A node has a slot and the name `<cluster>-<pool>-<slot>`. Its Instance, its guest, its Node and its
initial settings share this name, so the create of the Instance is the lock for the slot.
"""

from __future__ import annotations

from typing import Final

from libs.common.kinds import Key
from libs.common.naming import build_name, short_hash
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, GROUP

OPERATOR_ID: Final = "clusters"
"""Id of the operator: package, chart, release, field manager, value of the managed-by label."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each KubernetesCluster."""
CLUSTER_LABEL: Final = f"{GROUP}/cluster"
"""Label on all objects of a cluster: name of the cluster."""
POOL_LABEL: Final = f"{GROUP}/pool"
"""Label on Instances and Nodes: name of the pool."""
RECYCLED: Final = f"{GROUP}/recycled"
"""Annotation on an Instance: last token of `spec.recycle` that was carried out."""
REBUILDS: Final = f"{GROUP}/rebuilds"
"""Annotation on an Instance: number of rebuilds since its node was healthy, and the last one."""
ADDRESS_KEY: Final = "address"
"""Key in the Secret with the kubeconfig: address with which the cluster was created."""
ADDON_LABEL: Final = f"{GROUP}/addon"
"""Label on ConfigMaps that clusters may use as addons. Its value is `true`."""
DRAINING: Final = f"{GROUP}/draining-since"
"""Annotation on a Node of a cluster: time at which the operator began to drain it. A cordoned Node
without the annotation was cordoned by somebody else and stays cordoned."""

MANAGED: Final = f"{GROUP}/managed"
"""Annotation on a Node of a cluster: keys of the labels and taints that come from its pool."""

GUEST_SERVICE: Final = f"{GROUP}/service"
"""Annotation on the IPClaim, Service and EndpointSlice of an address: namespace and name of the
Service of type LoadBalancer in the managed cluster."""
PUBLISHED: Final = f"{GROUP}/AddressReady"
"""Condition on such a Service: whether its address routes traffic to it, and why not."""


def node_name(cluster: str, pool: str, slot: int) -> str:
    """Return the name of the node in a slot of a pool: of Instance, host and Node."""
    return f"{cluster}-{pool}-{slot}"


def slot_of(cluster: str, pool: str, name: str) -> int | None:
    """Return the slot in the name of a node of a pool, or None for any other name."""
    prefix, number = f"{cluster}-{pool}-", name.rpartition("-")[2]
    return int(number) if name == f"{prefix}{number}" and number.isdecimal() else None


def user_data_name(node: str) -> str:
    """Return the name of the Secret with the initial settings of a node."""
    return build_name(node, "user-data")


def authorities_name(cluster: str) -> str:
    """Return the name of the Secret with the certificate authorities of a cluster."""
    return f"{cluster}-authorities"


def kubeconfig_name(cluster: str) -> str:
    """Return the name of the Secret with the kubeconfig, which is the same as in Cluster API."""
    return f"{cluster}-kubeconfig"


def join_name(cluster: str) -> str:
    """Return the name of the Secret with the credentials with which nodes join."""
    return f"{cluster}-join"


def endpoint_name(cluster: str) -> str:
    """Return the name of the Service of the API, its EndpointSlice and its IPClaim."""
    return f"{cluster}-api"


def exposure_name(cluster: str, service: Key) -> str:
    """Return the name of the objects of the address of a Service in the managed cluster.

    It is the same for a Service that is created again, such as from a backup.
    """
    return build_name(cluster, "lb", short_hash(service.namespace, service.name))


def endpoint_host(cluster: Key) -> str:
    """Return the DNS name of the Service of the API in the management cluster."""
    return f"{endpoint_name(cluster.name)}.{cluster.namespace}.svc"


def firewall_name(cluster: str, *, control_plane: bool) -> str:
    """Return the name of the Firewall of the control plane or of all other nodes."""
    return f"{cluster}-{CONTROL_PLANE}" if control_plane else f"{cluster}-nodes"


def rebuild_name(node: str, cause: str) -> str:
    """Return the name of the Operation that rebuilds a node for a cause.

    Examples of causes are a token and a broken disk. Each cause has one name, so that a node is
    rebuilt only once for it, even if several processes decide it.
    """
    return build_name(node, "rebuild", short_hash(node, cause))
