"""Names that the jmxexporter operator gives."""

from __future__ import annotations

from typing import Final

from libs.common.naming import short_hash
from operators.jmxexporter.api.v1alpha1 import GROUP

OPERATOR: Final = "jmxexporter"
"""Id of the operator: package, chart, release, field manager."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each PrometheusJmxExporter."""
PREFIX: Final = "jmx-inject-"
"""What the names of our ephemeral containers begin with."""
OWNER: Final = f"{GROUP}/jmx-exporter"
"""Annotation on a pod whose annotations for Prometheus are ours: UID of the exporter."""
MARK: Final = "jmx-prometheus-exporter"
"""Annotation that the predecessor put on pods; `verified` is what dashboards look for."""
SCRAPE: Final = "prometheus.io/scrape"
PORT: Final = "prometheus.io/port"
PATH: Final = "prometheus.io/path"


def injector_name(uid: str, container_id: str, ordinal: int) -> str:
    """Name an injector: the place in the pod's list of injectors makes it unique for ever."""
    return f"{PREFIX}{short_hash(f'{uid} {container_id} {ordinal}')}"
