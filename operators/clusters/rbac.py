"""What the clusters operator may do."""

from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, SECRET, SERVICE
from libs.common.rbac import PolicyRule, children, own, reads
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER

_WRITES = ("create", "patch", "delete")

RULES: tuple[PolicyRule, ...] = (
    *own(KUBERNETES_CLUSTER),
    *children(INSTANCE, *_WRITES, why="create and delete the machines of nodes"),
    *children(OPERATION, "create", "delete", why="rebuild nodes"),
    *children(IP_CLAIM, *_WRITES, why="claim the address of the API server"),
    *children(FIREWALL, *_WRITES, why="protect nodes"),
    *reads(NETWORK, why="check that guests have addresses of their own"),
    *reads(CONFIG_MAP, why="read the manifests of addons"),
    *children(
        SERVICE, *_WRITES, why="route traffic to the API server, including from within this cluster"
    ),
    *children(ENDPOINT_SLICE, *_WRITES, why="list the nodes that serve the API"),
    *children(
        SECRET,
        *_WRITES,
        why="store certificate authorities, kubeconfigs and the user data of nodes",
    ),
)
"""Rules of the operator itself; the generator adds the rules of the framework."""
