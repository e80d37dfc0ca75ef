"""Names that the jmxexporter operator gives."""

from __future__ import annotations

from typing import Final

from libs.common.naming import DNS_LABEL_LIMIT, build_name, short_hash
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
STARTED: Final = f"{GROUP}/jmx-startup"
"""Annotation on a pod whose JVMs begin with the exporter: what they begin with, as JSON."""
OPT_OUT: Final = f"{GROUP}/jmx-opt-out"
"""Annotation by which a pod is left alone, with the value `true`."""
ENDPOINT: Final = f"{GROUP}/jmx-endpoint"
"""Annotation that a PodMonitor of ours reads: UID of the exporter, colon, port of the endpoint."""
SCHEME: Final = "prometheus.io/scheme"
SCRAPE: Final = "prometheus.io/scrape"
PORT: Final = "prometheus.io/port"
PATH: Final = "prometheus.io/path"


def injector_name(uid: str, container_id: str, ordinal: int) -> str:
    """Name an injector: the place in the pod's list of injectors makes it unique indefinitely."""
    return f"{PREFIX}{short_hash(f'{uid} {container_id} {ordinal}')}"


def service_name(exporter: str) -> str:
    """Name the Service of an exporter: a DNS label that begins with a letter."""
    name = exporter.replace(".", "-")
    # What had dots keeps apart from what has dashes in their place.
    parts = ("jmx", name) if name == exporter else ("jmx", name, short_hash(exporter))
    return build_name(*parts, limit=DNS_LABEL_LIMIT)


def slice_name(service: str, port: int, part: int, *, v6: bool) -> str:
    """Name the EndpointSlice of one port and family of addresses; `part` counts from 0."""
    name = f"{service}-{port}-v6" if v6 else f"{service}-{port}"
    return f"{name}-{part}" if part else name
