"""What the ipam operator may do."""

from libs.common.contracts.compute import INSTANCE
from libs.common.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from libs.common.kinds import ENDPOINT_SLICE, NAMESPACE, POD, SERVICE
from libs.common.rbac import PolicyRule, children, own, reads
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL

RULES: tuple[PolicyRule, ...] = (
    *own(IP_POOL, owner=False),
    *own(IP_CLAIM),
    *own(IP_ALLOCATION, owner=False),
    *children(IP_ALLOCATION, "create", "delete", why="keep the ledger"),
    *children(SERVICE, "create", "patch", "delete", why="make addresses known"),
    *children(ENDPOINT_SLICE, "create", "patch", "delete", why="lead addresses to their targets"),
    *reads(INSTANCE, why="tell whether the target of an address exists"),
    *reads(VIRTUAL_MACHINE_INSTANCE, why="follow machines as they move"),
    *reads(POD, why="tell where launcher pods are reached"),
    *reads(NAMESPACE, why="tell which namespaces a pool serves"),
)
"""Rules of the operator itself; those of the framework are added by the generator."""
