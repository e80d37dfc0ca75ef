"""Version v1alpha1 of Network and Firewall."""

from operators.network.api.v1alpha1.firewall import FIREWALL, Firewall
from operators.network.api.v1alpha1.network import NETWORK, Network

__all__ = ["FIREWALL", "NETWORK", "Firewall", "Network"]
