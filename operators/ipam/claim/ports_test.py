"""Ports of a Service whose pods do not all listen on the same ones."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import ENDPOINT_SLICE, Manifest
from operators.ipam.api.v1alpha1.claims import IPClaim
from operators.ipam.claim.binding import Binding, RoutedEndpoint
from operators.ipam.claim.observe import read_ports
from operators.ipam.claim.resources import (
    PortMap,
    Publication,
    build_children,
    parse_binding,
)
from operators.ipam.samples import build_claim

OLD, NEW = RoutedEndpoint("10.0.0.1"), RoutedEndpoint("10.0.0.2")
HTTP = [{"name": "http", "port": 80, "targetPort": "web"}]


def show(ports: list[dict[str, Any]]) -> Manifest:
    return {"ports": ports}


def serve(*ports: dict[str, Any]) -> Manifest:
    return {"spec": {"ports": list(ports)}}


def publish(
    ports: tuple[PortMap, ...], ports_at: dict[RoutedEndpoint, tuple[PortMap, ...]]
) -> list[Manifest]:
    claim = build_claim(target={"kind": "Service", "name": "shop"})
    claim["metadata"] |= {"uid": "u", "generation": 1}
    binding = Binding(target="Service/shop", places=(OLD, NEW), epoch=3)
    shown = Publication(("203.0.113.0",), binding, ports, ports_at=ports_at)
    children = build_children(IPClaim.parse(claim), shown)
    return [manifest for kind, manifest in children if kind == ENDPOINT_SLICE]


def list_routes(slices: list[Manifest]) -> dict[str, list[int]]:
    """Return the ports to which each endpoint gets traffic."""
    return {
        address: [port["port"] for port in each["ports"]]
        for each in slices
        for endpoint in each["endpoints"]
        for address in endpoint["addresses"]
    }


def test_each_endpoint_gets_traffic_on_its_own_port() -> None:
    """Pods of two versions give the port `web` two numbers; one number cannot serve both."""
    old, new = PortMap("http", "TCP", 80, 8080), PortMap("http", "TCP", 80, 9090)
    slices = publish((old,), {OLD: (old,), NEW: (new,)})

    assert list_routes(slices) == {"10.0.0.1": [8080], "10.0.0.2": [9090]}
    names = [each["metadata"]["name"] for each in slices]
    assert names[-1] == "web-ip-v4" and len(set(names)) == 2
    assert {each["metadata"]["labels"]["kubernetes.io/service-name"] for each in slices} == {
        "web-ip"
    }
    assert parse_binding(slices).places == (OLD, NEW)
    assert parse_binding(slices).epoch == 3


def test_places_with_the_same_ports_share_a_slice() -> None:
    port = PortMap("http", "TCP", 80, 8080)
    (only,) = publish((port,), {OLD: (port,), NEW: (port,)})

    assert only["metadata"]["name"] == "web-ip-v4"
    assert len(only["endpoints"]) == 2


@pytest.mark.parametrize(
    ("slices", "goal"),
    [
        pytest.param([show([{"name": "http", "port": 9090}])], [9090], id="as the slice says"),
        pytest.param(
            [show([{"name": "http", "port": 8080}]), show([{"name": "http", "port": 9090}])],
            [8080],
            id="the first of two",
        ),
        pytest.param([show([{"name": "other", "port": 9090}])], [], id="pods without the port"),
        pytest.param([], [80], id="no slice, and a port by name"),
    ],
)
def test_port_of_a_service_is_read_from_its_slices(slices: list[Manifest], goal: list[int]) -> None:
    assert [each.target_port for each in read_ports(serve(*HTTP), slices)] == goal
