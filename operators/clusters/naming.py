"""Names that the operator gives, one function each, and the labels and marks that it sets.

A node has a slot: `<cluster>-<pool>-<number>`. Its Instance, its guest, its Node and its first
settings are all named so, and anyone who creates the Instance first has made the node.
"""

from __future__ import annotations

from typing import Final

from libs.common.kinds import Key
from libs.common.naming import build_name, short_hash
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, GROUP

OPERATOR: Final = "clusters"
"""Id of the operator: package, chart, release, field manager, value of the managed-by label."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each KubernetesCluster."""
CLUSTER_LABEL: Final = f"{GROUP}/cluster"
"""Label on everything that is made for a cluster: its name."""
POOL_LABEL: Final = f"{GROUP}/pool"
"""Label on Instances and Nodes: name of the pool."""
RECYCLED: Final = f"{GROUP}/recycled"
"""Annotation on an Instance: token of `spec.recycle` that was carried out last."""
ADDON_LABEL: Final = f"{GROUP}/addon"
"""Label on ConfigMaps that clusters may use as addons. Its value is `true`."""
DRAINING: Final = f"{GROUP}/draining-since"
"""Annotation on a Node of a cluster: when the operator began to drain it. A Node that is cordoned
without it was cordoned by somebody else, and stays so."""

MANAGED: Final = f"{GROUP}/managed"
"""Annotation on a Node of a cluster: keys of the labels and taints that came from its pool."""


def node_name(cluster: str, pool: str, slot: int) -> str:
    """Name the node in a slot of a pool: Instance, host and Node."""
    return f"{cluster}-{pool}-{slot}"


def slot_of(cluster: str, pool: str, name: str) -> int | None:
    """Return the slot of a node of a pool, or None for the name of anything else."""
    prefix, number = f"{cluster}-{pool}-", name.rpartition("-")[2]
    return int(number) if name == f"{prefix}{number}" and number.isdecimal() else None


def user_data_name(node: str) -> str:
    """Name the Secret with the first settings of a node."""
    return build_name(node, "user-data")


def authorities_name(cluster: str) -> str:
    """Name the Secret with the certificate authorities of a cluster."""
    return f"{cluster}-authorities"


def kubeconfig_name(cluster: str) -> str:
    """Name the Secret with the kubeconfig; Cluster API names its own so as well."""
    return f"{cluster}-kubeconfig"


def join_name(cluster: str) -> str:
    """Name the Secret with the credentials by which nodes join."""
    return f"{cluster}-join"


def endpoint_name(cluster: str) -> str:
    """Name the Service of the API, its EndpointSlice and its IPClaim."""
    return f"{cluster}-api"


def endpoint_host(cluster: Key) -> str:
    """Return the name of the Service of the API in the DNS of the cluster that it runs in."""
    return f"{endpoint_name(cluster.name)}.{cluster.namespace}.svc"


def firewall_name(cluster: str, *, control_plane: bool) -> str:
    """Return the name of the Firewall of the control plane or of all other nodes."""
    return f"{cluster}-{CONTROL_PLANE}" if control_plane else f"{cluster}-nodes"


def rebuild_name(node: str, cause: str) -> str:
    """Name the Operation that rebuilds a node for a cause, such as a token or a broken disk.

    One cause gives one name, so that a node is rebuilt once for it, no matter who decides it how
    often.
    """
    return build_name(node, "rebuild", short_hash(node, cause))
