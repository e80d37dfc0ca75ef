"""Names of objects, and keys of annotations."""

from __future__ import annotations

from typing import Final

from libs.common.naming import DNS_LABEL_LIMIT, build_name, short_hash
from operators.jmxexporter.api.v1alpha1 import GROUP

OPERATOR_ID: Final = "jmxexporter"
"""Id of the operator: package, chart, release, field manager."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each PrometheusJmxExporter."""
PREFIX: Final = "jmx-inject-"
"""Prefix of the names of injectors."""
OWNER: Final = f"{GROUP}/jmx-exporter"
"""Annotation on a pod: UID of the exporter that set its annotations for Prometheus."""
MARK: Final = "jmx-prometheus-exporter"
"""Annotation that the predecessor of this operator set; dashboards look for `verified`."""
STARTED: Final = f"{GROUP}/jmx-startup"
"""Annotation on a pod whose JVMs start with the exporter: a `Started`, as JSON."""
RESUME: Final = f"{GROUP}/jmx-resume"
"""Annotation on an exporter: a time; JVMs that ended before it no longer stop injections."""
OPT_OUT: Final = f"{GROUP}/jmx-opt-out"
"""Annotation on a pod; with the value `true`, no exporter manages the pod."""
ENDPOINT: Final = f"{GROUP}/jmx-endpoint"
"""Annotation that our PodMonitors read: UID of the exporter, colon, port of the endpoint."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation on a pod that a kubelet runs from a file."""
SCHEME: Final = "prometheus.io/scheme"
SCRAPE: Final = "prometheus.io/scrape"
PORT: Final = "prometheus.io/port"
PATH: Final = "prometheus.io/path"


def injector_name(uid: str, container_id: str, ordinal: int) -> str:
    """Name an injector; its position in the list of ephemeral containers makes it unique."""
    return f"{PREFIX}{short_hash(f'{uid} {container_id} {ordinal}')}"


def service_name(exporter: str) -> str:
    """Return the name of the Service of an exporter: a DNS label that begins with a letter."""
    name = exporter.replace(".", "-")
    # The hash distinguishes exporters a.b and a-b.
    parts = ("jmx", name) if name == exporter else ("jmx", name, short_hash(exporter))
    return build_name(*parts, limit=DNS_LABEL_LIMIT)


def slice_name(service: str, port: int, part: int, *, v6: bool) -> str:
    """Return the name of the EndpointSlice of a port and address family; parts begin at 0."""
    name = f"{service}-{port}-v6" if v6 else f"{service}-{port}"
    return f"{name}-{part}" if part else name
