"""How Prometheus finds endpoints beside annotations: Service, EndpointSlices, ServiceMonitor; pure.

The ports are not declared in the pods, and containers of running pods cannot be changed. So the
Service has no selector, and each port has an EndpointSlice of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Kind, Manifest, build_object, key_of
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import label_value
from libs.common.plan import Apply, Delete, Step
from operators.jmxexporter.api.v1alpha1 import AgentKind, PrometheusJmxExporter
from operators.jmxexporter.naming import OPERATOR, service_name, slice_name

SERVICE_MONITOR: Final = Kind("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")
"""Kind of the Prometheus operator; ask whether it is served."""
KINDS: Final = (ENDPOINT_SLICE, SERVICE, SERVICE_MONITOR)
"""Kinds of which an exporter may have objects."""

_SERVICE_OF: Final = "kubernetes.io/service-name"
_SLICE_MANAGER: Final = "endpointslice.kubernetes.io/managed-by"
_METRICS: Final = "metrics"
_SLICE_SIZE: Final = 500
"""Endpoints of one slice; Kubernetes allows 1000."""


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Say where one JVM serves.

    Attributes:
        port: Port of the pod.
        pod: Name of the pod.
        uid: Its UID.
        ip: Its address.
    """

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
    monitored: bool,
) -> list[Step]:
    """Plan what an exporter publishes, and take away what it does not any more.

    Args:
        exporter: What is asked for.
        addresses: Where its JVMs serve.
        held: Objects that it has, each with its kind.
        owner: Controller reference for new ones.
        monitored: Whether the cluster has ServiceMonitors.
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
    monitored: bool,
) -> list[tuple[Kind, Manifest]]:
    service = exporter.spec.service
    if service is None:
        return []
    slices = _build_slices(exporter, addresses, owner)
    built = [(ENDPOINT_SLICE, each) for each in slices]
    built.append((SERVICE, build_service(exporter, owner)))
    if service.monitor is not None and monitored:
        built.append((SERVICE_MONITOR, build_monitor(exporter, owner)))
    return built


def build_service(exporter: PrometheusJmxExporter, owner: Manifest) -> Manifest:
    """Build the headless Service, whose endpoints nobody but this operator fills in."""
    manifest = _build_child(SERVICE, exporter, service_name(exporter.metadata.name), owner)
    port = {"name": _METRICS, "port": exporter.spec.port, "protocol": "TCP"}
    manifest["spec"] = {"clusterIP": "None", "type": "ClusterIP", "ports": [port]}
    return manifest


def build_monitor(exporter: PrometheusJmxExporter, owner: Manifest) -> Manifest:
    """Build the ServiceMonitor of the Service.

    Raises:
        ValueError: The spec asks for none.
    """
    service = exporter.spec.service
    if service is None or service.monitor is None:
        raise ValueError(f"{exporter.metadata.name}: spec.service.monitor is not set")
    name = service_name(exporter.metadata.name)
    manifest = _build_child(SERVICE_MONITOR, exporter, name, owner)
    manifest["metadata"]["labels"] = {
        **service.monitor.labels,
        **manifest["metadata"]["labels"],
    }
    upstream = exporter.spec.agent is AgentKind.UPSTREAM
    endpoint = {
        "port": _METRICS,
        "path": "/metrics" if upstream else exporter.spec.path,
        "interval": f"{service.monitor.interval_seconds}s",
    }
    manifest["spec"] = {
        "selector": {"matchLabels": _build_labels(exporter)},
        "endpoints": [endpoint],
    }
    return manifest


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
                _SERVICE_OF: service_name(exporter.metadata.name),
                _SLICE_MANAGER: OPERATOR,
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
    return {MANAGED_BY: OPERATOR, INSTANCE: label_value(exporter.metadata.name)}
