"""Discovery of endpoints by Prometheus: Service, EndpointSlices and monitors. Pure.

The pods do not declare the ports, and containers of running pods cannot be changed. The Service
therefore has no selector, and each port has its own EndpointSlice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Kind, Manifest, build_object, key_of
from libs.common.labels import INSTANCE, MANAGED_BY, SERVICE_NAME, SLICE_MANAGED_BY
from libs.common.naming import label_value
from libs.common.plan import Apply, Delete, Step
from operators.jmxexporter.api.monitors import Monitor, MonitorTls, Relabeling, ServiceMonitor
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.naming import ENDPOINT, OPERATOR_ID, service_name, slice_name

SERVICE_MONITOR: Final = Kind("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")
"""Kind of the Prometheus operator; ask whether it is served."""
POD_MONITOR: Final = Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors")
"""Kind of the Prometheus operator; ask whether it is served."""
MONITORS: Final = (SERVICE_MONITOR, POD_MONITOR)
"""Kinds of the Prometheus operator."""
KINDS: Final = (ENDPOINT_SLICE, SERVICE, SERVICE_MONITOR, POD_MONITOR)
"""Kinds of the objects that an exporter may control."""

_METRICS: Final = "metrics"
_SLICE_SIZE: Final = 500
"""Endpoints of one slice; Kubernetes allows 1000."""


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Address of the endpoint of a JVM."""

    port: int
    pod: str
    uid: str
    ip: str


def plan_discovery(
    exporter: PrometheusJmxExporter,
    addresses: Iterable[Address],
    held: Iterable[tuple[Kind, Manifest]],
    owner: Manifest,
    *,
    monitored: Collection[Kind],
) -> list[Step]:
    """Plan creations and updates of the objects of an exporter, and deletions of obsolete ones.

    Args:
        exporter: The exporter.
        addresses: Addresses at which its JVMs serve.
        held: Objects that it controls, each with its kind.
        owner: Controller reference for new objects.
        monitored: Which of `MONITORS` the cluster serves.
    """
    wanted = _build_all(exporter, sorted(addresses), owner, monitored=monitored)
    names = {(kind, key_of(manifest)) for kind, manifest in wanted}
    steps: list[Step] = [Apply(kind, manifest) for kind, manifest in wanted]
    surplus = [(kind, each) for kind, each in held if (kind, key_of(each)) not in names]
    return [*steps, *(Delete.of(kind, each) for kind, each in surplus)]


def _build_all(
    exporter: PrometheusJmxExporter,
    addresses: Sequence[Address],
    owner: Manifest,
    *,
    monitored: Collection[Kind],
) -> list[tuple[Kind, Manifest]]:
    service = exporter.spec.service
    built: list[tuple[Kind, Manifest]] = []
    if service is not None:
        slices = _build_slices(exporter, addresses, owner)
        built += [(ENDPOINT_SLICE, each) for each in slices]
        built.append((SERVICE, build_service(exporter, owner)))
        if service.monitor is not None and SERVICE_MONITOR in monitored:
            built.append((SERVICE_MONITOR, build_monitor(exporter, service.monitor, owner)))
    if exporter.spec.pod_monitor is not None and POD_MONITOR in monitored:
        built.append((POD_MONITOR, build_pod_monitor(exporter, exporter.spec.pod_monitor, owner)))
    return built


def find_unserved(
    exporter: PrometheusJmxExporter, monitored: Collection[Kind]
) -> tuple[str, Kind] | None:
    """Return the field that requests a monitor of a kind that the cluster lacks, and that kind."""
    service = exporter.spec.service
    if service is not None and service.monitor is not None and SERVICE_MONITOR not in monitored:
        return "spec.service.monitor", SERVICE_MONITOR
    if exporter.spec.pod_monitor is not None and POD_MONITOR not in monitored:
        return "spec.podMonitor", POD_MONITOR
    return None


def build_service(exporter: PrometheusJmxExporter, owner: Manifest) -> Manifest:
    """Build the headless Service; it has no selector, since this operator writes its endpoints."""
    manifest = _build_child(SERVICE, exporter, service_name(exporter.metadata.name), owner)
    port = {"name": _METRICS, "port": exporter.spec.port, "protocol": "TCP"}
    manifest["spec"] = {"clusterIP": "None", "type": "ClusterIP", "ports": [port]}
    return manifest


def build_monitor(
    exporter: PrometheusJmxExporter, monitor: ServiceMonitor, owner: Manifest
) -> Manifest:
    """Build the ServiceMonitor of the Service."""
    manifest = _build_monitor(SERVICE_MONITOR, exporter, monitor, owner)
    manifest["spec"] = {
        "selector": {"matchLabels": _build_labels(exporter)},
        "endpoints": [{"port": _METRICS, **_build_scrape(exporter, monitor)}],
    }
    if monitor.job_label:
        manifest["spec"]["jobLabel"] = monitor.job_label
    if monitor.target_labels:
        manifest["spec"]["targetLabels"] = list(monitor.target_labels)
    return manifest


def build_pod_monitor(
    exporter: PrometheusJmxExporter, monitor: Monitor, owner: Manifest
) -> Manifest:
    """Build a PodMonitor, which scrapes the port that the annotation of a pod names.

    A PodMonitor cannot name a port that the pod does not declare. Prometheus has a target for each
    port that is declared, so all of them get the same address and labels, and become one.
    """
    manifest = _build_monitor(POD_MONITOR, exporter, monitor, owner)
    known = f"__meta_kubernetes_pod_annotation_{_escape(ENDPOINT)}"
    address = {
        "sourceLabels": ["__meta_kubernetes_pod_ip", known],
        "targetLabel": "__address__",
        "action": "replace",
    }
    uid = exporter.metadata.uid
    ours: list[Manifest] = [
        {"sourceLabels": [known], "regex": rf"{uid}:\d+", "action": "keep"},
        {**address, "regex": r"([\d.]+);[^:]*:(\d+)", "replacement": "$1:$2"},
        {**address, "regex": r"(.*:.*);[^:]*:(\d+)", "replacement": "[$1]:$2"},
        {"regex": ".*", "replacement": "", "targetLabel": "container"},
        {"regex": ".*", "replacement": _METRICS, "targetLabel": "endpoint"},
    ]
    scrape = _build_scrape(exporter, monitor)
    scrape["relabelings"] = [*ours, *scrape["relabelings"]]
    manifest["spec"] = {"selector": exporter.spec.pod_selector, "podMetricsEndpoints": [scrape]}
    return manifest


def _escape(annotation: str) -> str:
    """Convert the name of an annotation to the form that Prometheus uses in label names."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", annotation)


def _build_monitor(
    kind: Kind, exporter: PrometheusJmxExporter, monitor: Monitor, owner: Manifest
) -> Manifest:
    manifest = _build_child(kind, exporter, service_name(exporter.metadata.name), owner)
    manifest["metadata"]["labels"] = {**monitor.labels, **manifest["metadata"]["labels"]}
    return manifest


def _render(relabelings: Iterable[Relabeling]) -> list[Manifest]:
    """Render relabelings without the empty lists, which the Prometheus operator leaves out."""
    return [
        {name: value for name, value in each.to_manifest().items() if value != []}
        for each in relabelings
    ]


def _build_scrape(exporter: PrometheusJmxExporter, monitor: Monitor) -> Manifest:
    """Build the scrape settings, which both kinds of monitors have in common."""
    spec = exporter.spec
    scrape: Manifest = {
        "path": spec.path,
        "interval": f"{monitor.interval_seconds}s",
    }
    if monitor.scrape_timeout_seconds is not None:
        scrape["scrapeTimeout"] = f"{monitor.scrape_timeout_seconds}s"
    if monitor.honor_labels:
        scrape["honorLabels"] = True
    # Alerts and dashboards trust the namespace, so neither relabelings, labels of the Service nor
    # labels of metrics change it.
    namespace = {"targetLabel": "namespace", "replacement": exporter.metadata.namespace}
    scrape["relabelings"] = [*_render(monitor.relabelings), namespace]
    if monitor.metric_relabelings or monitor.honor_labels:
        scrape["metricRelabelings"] = [*_render(monitor.metric_relabelings), namespace]
    if spec.tls is not None:
        name = spec.tls.server_name or (
            f"{service_name(exporter.metadata.name)}.{exporter.metadata.namespace}.svc"
        )
        tls = monitor.tls or MonitorTls()
        authority = {"name": tls.ca_secret_name or spec.tls.secret_name, "key": "ca.crt"}
        scrape["scheme"] = "https"
        scrape["tlsConfig"] = {"ca": {"secret": authority}, "serverName": name}
        if own := tls.client_certificate_secret_name:
            scrape["tlsConfig"]["cert"] = {"secret": {"name": own, "key": "tls.crt"}}
            scrape["tlsConfig"]["keySecret"] = {"name": own, "key": "tls.key"}
    if spec.basic_auth is not None:
        secret = spec.basic_auth.secret_name
        scrape["basicAuth"] = {
            name: {"name": secret, "key": name} for name in ("username", "password")
        }
    return scrape


def _build_slices(
    exporter: PrometheusJmxExporter, addresses: Sequence[Address], owner: Manifest
) -> Iterable[Manifest]:
    groups: dict[tuple[int, bool], list[Address]] = defaultdict(list)
    for address in addresses:
        if address.ip:
            groups[address.port, ":" in address.ip].append(address)
    for (port, v6), group in groups.items():
        for part, begin in enumerate(range(0, len(group), _SLICE_SIZE)):
            name = slice_name(service_name(exporter.metadata.name), port, part, v6=v6)
            manifest = _build_child(ENDPOINT_SLICE, exporter, name, owner)
            manifest["metadata"]["labels"] |= {
                SERVICE_NAME: service_name(exporter.metadata.name),
                SLICE_MANAGED_BY: OPERATOR_ID,
            }
            manifest["addressType"] = "IPv6" if v6 else "IPv4"
            manifest["endpoints"] = [
                _build_endpoint(exporter, each) for each in group[begin : begin + _SLICE_SIZE]
            ]
            manifest["ports"] = [{"name": _METRICS, "port": port, "protocol": "TCP"}]
            yield manifest


def _build_endpoint(exporter: PrometheusJmxExporter, address: Address) -> Manifest:
    target = {
        "kind": "Pod",
        "namespace": exporter.metadata.namespace,
        "name": address.pod,
        "uid": address.uid,
    }
    return {"addresses": [address.ip], "conditions": {"ready": True}, "targetRef": target}


def _build_child(
    kind: Kind, exporter: PrometheusJmxExporter, name: str, owner: Manifest
) -> Manifest:
    service = exporter.spec.service
    metadata = {
        "labels": {**(service.labels if service else {}), **_build_labels(exporter)},
        "ownerReferences": [owner],
    }
    return build_object(kind, name, exporter.metadata.namespace, metadata=metadata)


def _build_labels(exporter: PrometheusJmxExporter) -> dict[str, str]:
    return {MANAGED_BY: OPERATOR_ID, INSTANCE: label_value(exporter.metadata.name)}
