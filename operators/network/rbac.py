"""What the network operator may do."""

from libs.common.contracts.compute import INSTANCE
from libs.common.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
from libs.common.kinds import NAMESPACE, NETWORK_POLICY, POD
from libs.common.rbac import PolicyRule, children, own, reads
from operators.network.api.v1alpha1 import FIREWALL, NETWORK, PROVIDER_NETWORK

_WRITES = ("create", "patch", "delete")

RULES: tuple[PolicyRule, ...] = (
    # What they own does not keep them from going, so no right to block that is needed.
    *own(NETWORK, owner=False),
    *own(FIREWALL, owner=False),
    *children(NETWORK_POLICY, *_WRITES, why="close instances, and open what firewalls allow"),
    *children(MULTI_NETWORK_POLICY, *_WRITES, why="do the same on interfaces that Multus attaches"),
    *children(
        NETWORK_ATTACHMENT_DEFINITION, "create", "patch", why="let machines be attached by Multus"
    ),
    *reads(INSTANCE, why="tell which instances a network or a firewall is for"),
    *reads(PROVIDER_NETWORK, why="know which bridges and VLANs a network may use"),
    *reads(NAMESPACE, why="tell which namespaces a ProviderNetwork allows, by their labels"),
    *reads(POD, why="find machines that were started before pods carried the label of a network"),
)
"""Rules of the operator itself; those of the framework are added by the generator."""
