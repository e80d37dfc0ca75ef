"""How Prometheus finds endpoints by a Service."""

from __future__ import annotations

import re
from typing import Any

import pytest

from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Kind, Manifest
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.discovery import MONITORS, SERVICE_MONITOR, Address, plan_discovery
from operators.jmxexporter.naming import service_name
from operators.jmxexporter.samples import build_exporter

OWNER = {"kind": "PrometheusJmxExporter", "name": "jmx", "uid": "u1", "controller": True}
SHOP = Address(9400, "shop-0", "p0", "10.0.0.7")
NAMESPACE = {"targetLabel": "namespace", "replacement": "default"}
FORGED = {"action": "replace", "targetLabel": "namespace", "replacement": "slipway-system"}


def plan(*addresses: Address, monitored: bool = True, **service: Any) -> list[Manifest]:
    """Return the manifests that are applied for an exporter with a Service."""
    exporter = PrometheusJmxExporter.parse(build_exporter(service=service))
    steps = plan_discovery(exporter, addresses, (), OWNER, monitored=MONITORS if monitored else ())
    return [step.manifest for step in steps]  # type: ignore[union-attr]  # Nothing is deleted.


def of_kind(manifests: list[Manifest], kind: Kind) -> list[Manifest]:
    return [each for each in manifests if each["kind"] == kind.kind]


def test_each_port_has_a_slice_of_its_own() -> None:
    other = Address(9401, "shop-0", "p0", "10.0.0.7")
    second = Address(9400, "shop-1", "p1", "10.0.0.8")

    slices = of_kind(plan(second, other, SHOP), ENDPOINT_SLICE)

    found = {
        each["ports"][0]["port"]: [one["addresses"] for one in each["endpoints"]] for each in slices
    }
    assert found == {9400: [["10.0.0.7"], ["10.0.0.8"]], 9401: [["10.0.0.7"]]}
    assert slices[0]["endpoints"][0]["targetRef"]["uid"] == "p0"


def test_families_of_addresses_are_kept_apart() -> None:
    slices = of_kind(plan(SHOP, Address(9400, "shop-6", "p6", "fd00::6")), ENDPOINT_SLICE)

    assert {each["addressType"] for each in slices} == {"IPv4", "IPv6"}
    assert len({each["metadata"]["name"] for each in slices}) == 2


def test_slice_holds_no_more_than_the_server_takes() -> None:
    many = [
        Address(9400, f"shop-{n:04}", f"p{n}", f"10.0.{n // 250}.{n % 250}") for n in range(1201)
    ]

    slices = of_kind(plan(*many), ENDPOINT_SLICE)

    assert [len(each["endpoints"]) for each in slices] == [500, 500, 201]


def test_slice_names_its_service_and_its_manager() -> None:
    """Kubernetes finds the slices of a Service by one label, and leaves those of others alone."""
    manifests = plan(SHOP)
    (service,), (found,) = of_kind(manifests, SERVICE), of_kind(manifests, ENDPOINT_SLICE)

    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/service-name"] == service["metadata"]["name"]
    assert labels["endpointslice.kubernetes.io/managed-by"] == "jmxexporter"


def test_service_leads_nowhere_but_where_the_slices_say() -> None:
    (service,) = of_kind(plan(SHOP, labels={"team": "shop"}), SERVICE)

    assert service["spec"]["clusterIP"] == "None"
    assert "selector" not in service["spec"]
    assert service["metadata"]["labels"]["team"] == "shop"


def test_monitor_selects_the_service_and_is_left_out_where_nobody_reads_it() -> None:
    monitor: dict[str, Any] = {"labels": {"release": "prometheus"}, "intervalSeconds": 15}
    with_it = plan(SHOP, monitor=monitor)
    (service,), (found,) = of_kind(with_it, SERVICE), of_kind(with_it, SERVICE_MONITOR)

    assert found["metadata"]["labels"]["release"] == "prometheus"
    assert found["spec"]["endpoints"] == [
        {
            "port": "metrics",
            "path": "/metrics",
            "interval": "15s",
            "relabelings": [NAMESPACE],
        }
    ]
    selected = found["spec"]["selector"]["matchLabels"].items()
    assert selected <= service["metadata"]["labels"].items()
    assert of_kind(plan(SHOP, monitor=monitor, monitored=False), SERVICE_MONITOR) == []


def test_names_of_services_are_labels_and_stay_apart() -> None:
    names = [service_name(name) for name in ("1.shop", "1-shop", "x" * 253)]

    assert len(set(names)) == 3
    assert all(len(name) <= 63 and "." not in name and name[0].isalpha() for name in names)


def build(**spec: Any) -> dict[str, Manifest]:
    """Return what is applied for an exporter, by kind."""
    manifest = build_exporter(**spec)
    manifest["metadata"]["uid"] = "u1"
    exporter = PrometheusJmxExporter.parse(manifest)
    steps = plan_discovery(exporter, [SHOP], (), OWNER, monitored=MONITORS)
    return {step.kind.kind: step.manifest for step in steps}  # type: ignore[union-attr]


def test_monitor_has_the_options_of_the_prometheus_operator() -> None:
    drop = {"action": "drop", "regex": "jvm_.*", "sourceLabels": ["__name__"]}
    monitor = {
        "intervalSeconds": 60,
        "scrapeTimeoutSeconds": 20,
        "honorLabels": True,
        "jobLabel": "team",
        "targetLabels": ["team"],
        "relabelings": [{"targetLabel": "zone", "replacement": "a"}],
        "metricRelabelings": [drop],
    }

    spec = build(service={"monitor": monitor})["ServiceMonitor"]["spec"]

    assert (spec["jobLabel"], spec["targetLabels"]) == ("team", ["team"])
    assert spec["endpoints"] == [
        {
            "port": "metrics",
            "path": "/metrics",
            "interval": "60s",
            "scrapeTimeout": "20s",
            "honorLabels": True,
            "relabelings": [
                {"action": "replace", "targetLabel": "zone", "replacement": "a"},
                NAMESPACE,
            ],
            "metricRelabelings": [drop, NAMESPACE],
        }
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"honorLabels": True},
        {"relabelings": [FORGED], "metricRelabelings": [FORGED]},
        {"relabelings": [{"action": "labeldrop", "regex": "namespace"}]},
    ],
    ids=str,
)
def test_metrics_keep_the_namespace_of_the_exporter(fields: dict[str, Any]) -> None:
    """Otherwise a tenant could answer for the metrics and alerts of others."""
    found = build(service={"monitor": {"targetLabels": ["namespace"], **fields}}, podMonitor=fields)

    (service,) = found["ServiceMonitor"]["spec"]["endpoints"]
    (pod,) = found["PodMonitor"]["spec"]["podMetricsEndpoints"]
    for endpoint in (service, pod):
        assert endpoint["relabelings"][-1] == NAMESPACE
        trusts_metrics = "honorLabels" in fields or "metricRelabelings" in fields
        assert (endpoint.get("metricRelabelings") or [{}])[-1] == (
            NAMESPACE if trusts_metrics else {}
        )


def test_monitors_follow_tls_and_login() -> None:
    found = build(
        service={"monitor": {"tls": {"clientCertificateSecretName": "own"}}},
        podMonitor={"tls": {"clientCertificateSecretName": "own"}},
        tls={"secretName": "cert"},
        basicAuth={"secretName": "login"},
    )

    (service,) = found["ServiceMonitor"]["spec"]["endpoints"]
    (pod,) = found["PodMonitor"]["spec"]["podMetricsEndpoints"]
    for endpoint in (service, pod):
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"] == {
            "ca": {"secret": {"name": "cert", "key": "ca.crt"}},
            "serverName": "jmx-jmx.default.svc",
            "cert": {"secret": {"name": "own", "key": "tls.crt"}},
            "keySecret": {"name": "own", "key": "tls.key"},
        }
        assert endpoint["basicAuth"]["password"] == {"name": "login", "key": "password"}


@pytest.mark.parametrize(
    ("ip", "annotation", "address"),
    [
        ("10.0.0.7", "u1:9400", "10.0.0.7:9400"),
        ("fd00::7", "u1:9401", "[fd00::7]:9401"),
        ("10.0.0.7", "u2:9400", None),
        ("10.0.0.7", "", None),
    ],
)
def test_pod_monitor_finds_the_port_of_our_annotation(
    ip: str, annotation: str, address: str | None
) -> None:
    """The rules are carried out here as Prometheus does."""
    manifest = build(podMonitor={"labels": {"release": "prometheus"}})["PodMonitor"]
    labels = {
        "__meta_kubernetes_pod_ip": ip,
        "__meta_kubernetes_pod_annotation_banzaicloud_com_jmx_endpoint": annotation,
        "container": "app",
    }

    (endpoint,) = manifest["spec"]["podMetricsEndpoints"]
    for rule in endpoint["relabelings"]:
        value = ";".join(labels.get(name, "") for name in rule.get("sourceLabels", ()))
        match = re.fullmatch(rule.get("regex", "(.*)"), value)
        if rule.get("action") == "keep":
            if match is None:
                assert address is None
                return
        elif match is not None:
            template = re.sub(r"\$(\d)", r"\\\1", rule["replacement"])
            labels[rule["targetLabel"]] = match.expand(template)

    assert labels["__address__"] == address
    assert labels["container"] == ""
    assert manifest["metadata"]["labels"]["release"] == "prometheus"
