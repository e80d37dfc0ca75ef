"""Names that the operator gives, one function each."""

from __future__ import annotations

from typing import Final

from libs.common.naming import DNS_SUBDOMAIN_LIMIT, build_name
from operators.network.api.v1alpha1.fields import GROUP

OPERATOR: Final = "network"
"""Id of the operator: package, chart, release, value of the managed-by label."""
NETWORK_CONTROLLER: Final = "network"
"""Controller and field manager of Networks and their children."""
FIREWALL_CONTROLLER: Final = "network-firewall"
"""Controller and field manager of Firewalls and their children."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each Network and Firewall: neither goes while anything uses it."""
KEPT_FOR: Final = f"{GROUP}/kept-for"
"""Annotation on a policy that only closes: UID of the Network or Firewall that keeps it."""


def deny_policy_name(network: str) -> str:
    """Name the policy of a Network that keeps every instance closed."""
    return build_name("network", network, "deny", limit=DNS_SUBDOMAIN_LIMIT)


def unlabelled_policy_name(network: str) -> str:
    """Name the policy of a Network that closes machines whose pods lack the label of a network."""
    return build_name("network", network, "unlabelled", limit=DNS_SUBDOMAIN_LIMIT)


def open_policy_name(network: str) -> str:
    """Name the policy of a Network that opens the instances without firewall."""
    return build_name("network", network, "open", limit=DNS_SUBDOMAIN_LIMIT)


def attachment_name(network: str) -> str:
    """Name the NetworkAttachmentDefinition of a Network."""
    return build_name("network", network, limit=DNS_SUBDOMAIN_LIMIT)


def firewall_policy_name(firewall: str) -> str:
    """Name the policy of a Firewall."""
    return build_name("firewall", firewall, limit=DNS_SUBDOMAIN_LIMIT)


def closing_policy_name(firewall: str) -> str:
    """Name the policy of a Firewall that only closes.

    The prefix differs from `firewall_policy_name`, so no name of a Firewall makes the two equal.
    """
    return build_name("closed", "firewall", firewall, limit=DNS_SUBDOMAIN_LIMIT)
