"""Names of the objects that the operator creates."""

from __future__ import annotations

from typing import Final

from libs.common.naming import DNS_SUBDOMAIN_LIMIT, build_name
from operators.network.api.v1alpha1.fields import GROUP

OPERATOR_ID: Final = "network"
"""Id of the operator: package, chart, release, value of the managed-by label."""
NETWORK_CONTROLLER: Final = "network"
"""Name of the controller of Networks, which is the field manager of its writes."""
FIREWALL_CONTROLLER: Final = "network-firewall"
"""Name of the controller of Firewalls, which is the field manager of its writes."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each Network and Firewall, which keeps the object while anything uses it."""
KEPT_FOR: Final = f"{GROUP}/kept-for"
"""Annotation on a policy that only denies traffic: UID of its Network or Firewall."""


VLANS: Final = f"{GROUP}/vlans"
"""Annotation on a ProviderNetwork: which namespace has which VLAN."""


def deny_policy_name(network: str) -> str:
    """Return the name of the policy of a Network that isolates every instance."""
    return build_name("network", network, "deny", limit=DNS_SUBDOMAIN_LIMIT)


def unlabelled_policy_name(network: str) -> str:
    """Return the name of the policy of a Network that isolates machines without its label."""
    return build_name("network", network, "unlabelled", limit=DNS_SUBDOMAIN_LIMIT)


def open_policy_name(network: str) -> str:
    """Return the name of the policy of a Network that allows traffic without a firewall."""
    return build_name("network", network, "open", limit=DNS_SUBDOMAIN_LIMIT)


def attachment_name(network: str) -> str:
    """Return the name of the NetworkAttachmentDefinition of a Network."""
    return build_name("network", network, limit=DNS_SUBDOMAIN_LIMIT)


def firewall_policy_name(firewall: str) -> str:
    """Return the name of the policy of a Firewall."""
    return build_name("firewall", firewall, limit=DNS_SUBDOMAIN_LIMIT)


def closing_policy_name(firewall: str) -> str:
    """Return the name of the policy of a Firewall that only isolates.

    The prefix differs from `firewall_policy_name`, so the names never collide.
    """
    return build_name("closed", "firewall", firewall, limit=DNS_SUBDOMAIN_LIMIT)
