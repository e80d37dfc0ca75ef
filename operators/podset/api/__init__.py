"""The API of the PodSet operator, by version."""

from __future__ import annotations

from libs.common.crd import CustomResource
from operators.podset.api.v1 import PodSet

RESOURCES: tuple[type[CustomResource], ...] = (PodSet,)
"""Every version of every kind of this operator."""

__all__ = ["RESOURCES", "PodSet"]
