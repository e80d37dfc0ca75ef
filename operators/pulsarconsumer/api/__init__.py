"""API of the pulsarconsumer operator, by version."""

from libs.common.crd import CustomResource
from operators.pulsarconsumer.api.v1 import PulsarConsumer

RESOURCES: tuple[type[CustomResource], ...] = (PulsarConsumer,)
"""Every version of every kind of this operator."""

__all__ = ["RESOURCES", "PulsarConsumer"]
