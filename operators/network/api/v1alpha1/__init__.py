"""Version v1alpha1 of Network, Firewall and ProviderNetwork."""

from operators.network.api.v1alpha1.firewall import FIREWALL, Firewall
from operators.network.api.v1alpha1.network import NETWORK, Network
from operators.network.api.v1alpha1.provider import PROVIDER_NETWORK, ProviderNetwork

__all__ = ["FIREWALL", "NETWORK", "PROVIDER_NETWORK", "Firewall", "Network", "ProviderNetwork"]
