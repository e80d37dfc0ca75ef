"""What the network operator may do."""

from libs.common.kinds import NAMESPACE, NETWORK_POLICY, POD
from libs.common.rbac import PolicyRule, children, own, reads
from libs.contracts.compute import INSTANCE
from libs.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1 import FIREWALL, NETWORK, PROVIDER_NETWORK

_WRITES = ("create", "patch", "delete")

RULES: tuple[PolicyRule, ...] = (
    # What they own does not keep them from going, so no right to block that is needed.
    *own(NETWORK, owner=False),
    *own(FIREWALL, owner=False),
    *children(NETWORK_POLICY, *_WRITES, why="isolate instances, and allow what firewalls permit"),
    *children(
        MULTI_NETWORK_POLICY, *_WRITES, why="do the same for interfaces that Multus attaches"
    ),
    *children(
        NETWORK_ATTACHMENT_DEFINITION, "create", "patch", why="attach machines through Multus"
    ),
    *reads(INSTANCE, why="find the instances of a network or a firewall"),
    *reads(PROVIDER_NETWORK, why="read which bridges and VLANs a network may use"),
    *reads(NAMESPACE, why="match namespaces with the selectors of a ProviderNetwork"),
    *reads(POD, why="find machines that were started before pods carried the label of a network"),
)
"""Rules of the operator itself; the generator adds the rules of the framework."""
