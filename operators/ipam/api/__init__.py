"""Kinds of the group ipam.slipway.dev, in every version."""

from libs.common.crd import CustomResource
from operators.ipam.api.v1alpha1.allocations import IPAllocation
from operators.ipam.api.v1alpha1.claims import IPClaim
from operators.ipam.api.v1alpha1.pools import IPPool

RESOURCES: tuple[type[CustomResource], ...] = (IPPool, IPClaim, IPAllocation)
"""Resources for which the generator writes CRDs."""
