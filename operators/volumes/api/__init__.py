"""Kinds of the group storage.slipway.dev, in every version."""

from libs.common.crd import CustomResource
from operators.volumes.api.v1alpha1 import DemoVolume

RESOURCES: tuple[type[CustomResource], ...] = (DemoVolume,)
"""Resources for which the generator writes CRDs."""
