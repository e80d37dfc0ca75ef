"""Kinds of the group network.slipway.dev, in every version."""

from libs.common.crd import CustomResource
from operators.network.api.v1alpha1 import Firewall, Network, ProviderNetwork

RESOURCES: tuple[type[CustomResource], ...] = (Network, Firewall, ProviderNetwork)
"""Resources for which the generator writes CRDs."""
