"""Kinds of the group compute.slipway.dev, in every version."""

from libs.common.crd import CustomResource
from operators.compute.api.instance import Instance
from operators.compute.api.operation import Operation
from operators.compute.api.size import InstanceSize

RESOURCES: tuple[type[CustomResource], ...] = (Instance, InstanceSize, Operation)
"""Resources for which the generator writes CRDs."""
