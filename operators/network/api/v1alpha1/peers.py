"""FirewallPeer v1alpha1: machines and pods at the other end of a connection."""

from __future__ import annotations

from typing import Final, Self

from pydantic import model_validator

from libs.common.crd import KubernetesModel, LabelSelector, LocalObjectReference, Rule

PEERS_LIMIT: Final = 64
"""Maximum number of peers in all rules of a firewall."""

_ONE_PEER: Final = (
    "a peer needs exactly one of instances, firewallRef, networkRef and namespaceSelector"
)


class FirewallPeer(
    KubernetesModel,
    rules=(
        Rule(
            "[has(self.instances), has(self.firewallRef), has(self.networkRef), "
            "has(self.namespaceSelector)].filter(x, x).size() == 1",
            _ONE_PEER,
        ),
    ),
):
    """FirewallPeer selects machines or pods, whatever their addresses are."""

    instances: LabelSelector | None = None
    """instances selects Instances of this namespace by their labels."""
    firewall_ref: LocalObjectReference | None = None
    """firewallRef names a Firewall of this namespace: the peers are the Instances that name it. It
    may be this Firewall, whose machines then reach each other."""
    network_ref: LocalObjectReference | None = None
    """networkRef names a Network of this namespace: the peers are the Instances that name it."""
    namespace_selector: LabelSelector | None = None
    """namespaceSelector selects namespaces by their labels: the peers are all pods in them."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = (self.instances, self.firewall_ref, self.network_ref, self.namespace_selector)
        if sum(each is not None for each in given) != 1:
            raise ValueError(_ONE_PEER)
        return self
