"""Kinds of the group clusters.slipway.dev, in every version."""

from libs.common.crd import CustomResource
from operators.clusters.api.v1alpha1 import KubernetesCluster

RESOURCES: tuple[type[CustomResource], ...] = (KubernetesCluster,)
"""Resources for which the generator writes CRDs."""
