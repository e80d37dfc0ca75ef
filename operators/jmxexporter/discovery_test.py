"""How Prometheus finds endpoints by a Service."""

from __future__ import annotations

from typing import Any

from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Kind, Manifest
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.discovery import SERVICE_MONITOR, Address, plan_discovery
from operators.jmxexporter.naming import service_name
from operators.jmxexporter.samples import build_exporter

OWNER = {"kind": "PrometheusJmxExporter", "name": "jmx", "uid": "u1", "controller": True}
SHOP = Address(9400, "shop-0", "p0", "10.0.0.7")


def plan(*addresses: Address, monitored: bool = True, **service: Any) -> list[Manifest]:
    """Return the manifests that are applied for an exporter with a Service."""
    exporter = PrometheusJmxExporter.parse(build_exporter(service=service))
    steps = plan_discovery(exporter, addresses, (), OWNER, monitored=monitored)
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
        {"port": "metrics", "path": "/metrics", "interval": "15s"}
    ]
    selected = found["spec"]["selector"]["matchLabels"].items()
    assert selected <= service["metadata"]["labels"].items()
    assert of_kind(plan(SHOP, monitor=monitor, monitored=False), SERVICE_MONITOR) == []


def test_names_of_services_are_labels_and_stay_apart() -> None:
    names = [service_name(name) for name in ("1.shop", "1-shop", "x" * 253)]

    assert len(set(names)) == 3
    assert all(len(name) <= 63 and "." not in name and name[0].isalpha() for name in names)
