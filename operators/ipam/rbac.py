"""What the ipam operator may do."""

from libs.common.kinds import CORE_EVENT, ENDPOINT_SLICE, ENDPOINTS, NAMESPACE, POD, SERVICE
from libs.common.rbac import PolicyRule, children, grant, own, reads
from libs.contracts.cluster_api import CLUSTER, IP_ADDRESS, IP_ADDRESS_CLAIM
from libs.contracts.compute import INSTANCE
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL

RULES: tuple[PolicyRule, ...] = (
    *own(IP_POOL),
    *own(IP_CLAIM),
    *own(IP_ALLOCATION, owner=False),
    *children(IP_ALLOCATION, "create", "delete", why="manage the ledger"),
    *children(SERVICE, "create", "patch", "delete", why="announce addresses"),
    *children(ENDPOINT_SLICE, "create", "patch", "delete", why="route addresses to their targets"),
    grant(CORE_EVENT, "list", why="report why a load balancer refuses an address"),
    *reads(INSTANCE, why="check that the target of an address exists"),
    *reads(VIRTUAL_MACHINE_INSTANCE, why="follow machines as they move"),
    *reads(POD, why="find the addresses of launcher pods"),
    *reads(NAMESPACE, why="find the namespaces that a pool serves"),
)
"""Rules of the operator itself; the generator adds the rules of the framework."""
LOAD_BALANCER_RULES: tuple[PolicyRule, ...] = (
    grant(SERVICE, "patch", subresource="status", why="assign addresses to Services"),
    grant(SERVICE, "update", subresource="finalizers", why="own the IPClaim of a Service"),
    grant(IP_CLAIM, "create", "delete", why="claim addresses for Services"),
)
"""Rules that the chart adds if `settings.loadBalancer` is true."""
COZY_PROXY_RULES: tuple[PolicyRule, ...] = (
    *children(ENDPOINTS, "create", "patch", "delete", why="route whole addresses by cozy-proxy"),
)
"""Rules that the chart adds if `settings.cozyProxy` is true."""
CLUSTER_API_RULES: tuple[PolicyRule, ...] = (
    *own(IP_ADDRESS_CLAIM),
    *children(
        IP_ADDRESS, "create", "patch", "delete", why="assign addresses to Cluster API machines"
    ),
    *reads(CLUSTER, why="check whether a cluster is paused"),
    grant(IP_CLAIM, "create", "delete", why="claim addresses for IPAddressClaims"),
)
"""Rules that the chart adds if `settings.clusterApi` is true."""
