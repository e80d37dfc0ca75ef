"""Annotations of pods by which Prometheus finds endpoints. Pure: no input or output."""

from __future__ import annotations

from libs.common.plan import Patch
from operators.jmxexporter.api.v1alpha1 import Annotations, PrometheusJmxExporter
from operators.jmxexporter.naming import ENDPOINT, MARK, OWNER, PATH, PORT, SCHEME, SCRAPE
from operators.jmxexporter.pods import Pod
from operators.jmxexporter.resources import build_annotation_patch


def plan_annotations(
    exporter: PrometheusJmxExporter, pod: Pod, served: tuple[int, str] | None
) -> Patch | None:
    """Plan the annotations of a pod.

    Args:
        exporter: The exporter.
        pod: The pod.
        served: Port and path of its first endpoint; None if it has none or is being released.

    Returns:
        The patch; None if nothing needs to change.
    """
    uid, held = exporter.metadata.uid, pod.annotations or {}
    owned = held.get(OWNER) == uid
    wanted: dict[str, str | None] = {}
    if served is not None and _is_scraped(exporter) and not is_foreign(pod):
        port, path = served
        wanted = {SCRAPE: "true", PORT: str(port), PATH: path, OWNER: uid, MARK: "verified"}
        if exporter.spec.tls is not None:
            wanted[SCHEME] = "https"
        elif owned:
            wanted[SCHEME] = None
    elif owned:
        wanted = dict.fromkeys((SCRAPE, PORT, PATH, SCHEME, OWNER, MARK))
    if served is not None and exporter.spec.pod_monitor is not None:
        wanted[ENDPOINT] = f"{uid}:{served[0]}"
    elif held.get(ENDPOINT, "").startswith(f"{uid}:"):
        wanted[ENDPOINT] = None
    changes = {name: value for name, value in wanted.items() if value is not None or name in held}
    return build_annotation_patch(pod, changes)


def is_foreign(pod: Pod) -> bool:
    """Return whether a pod has annotations for Prometheus that no exporter has set.

    Those of another exporter come from a backup of the pod, or from an exporter that no longer
    manages it: a pod of two exporters belongs to the older one.
    """
    held = pod.annotations or {}
    return OWNER not in held and any(name in held for name in (SCRAPE, PORT, PATH))


def hides_endpoint(exporter: PrometheusJmxExporter, pod: Pod) -> bool:
    """Return whether annotations of others keep Prometheus from finding the endpoint."""
    return _is_scraped(exporter) and is_foreign(pod)


def _is_scraped(exporter: PrometheusJmxExporter) -> bool:
    return exporter.spec.annotations is Annotations.PROMETHEUS
