"""The API of the jmxexporter operator, by version."""

from __future__ import annotations

from libs.common.crd import CustomResource
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter

RESOURCES: tuple[type[CustomResource], ...] = (PrometheusJmxExporter,)
"""Every version of every kind of this operator."""

__all__ = ["RESOURCES", "PrometheusJmxExporter"]
