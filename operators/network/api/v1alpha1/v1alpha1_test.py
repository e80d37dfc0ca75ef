"""Network and Firewall v1alpha1: the model and a real API server refuse the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.crd import CustomResource, ParseError, kind_of
from libs.common.errors import Invalid
from libs.common.kinds import Key, Manifest
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from operators.network.api.v1alpha1 import FIREWALL, NETWORK, Firewall, Network
from operators.network.samples import build_firewall, build_network, build_rule

type Case = tuple[Manifest, str]

IP_HOP: Final = {"ip": "10.0.0.9"}


def route(destination: str, **hop: Any) -> Manifest:
    return {"destination": destination, "nextHop": hop}


GOOD: Final[Mapping[str, Manifest]] = {
    "least network": build_network(),
    "dual stack": build_network(cidrs=["10.0.0.0/16", "fd00::/64"], gateway="fd00::1"),
    "multus": build_network(backend="Multus", bridge="br0", vlan=42, mtu=9000),
    "routes": build_network(
        routes=[
            route("0.0.0.0/0", **IP_HOP),
            route("10.1.0.0/16", instanceRef={"name": "router"}),
            route("10.2.0.0/16", blackhole="Drop"),
        ]
    ),
    "least firewall": build_firewall(),
    "ports": build_firewall("web", build_rule("a", ports=[22, "8000-8100", "443"])),
    "icmp": build_firewall("web", build_rule("a", protocol="ICMP", cidrs=["fd00::/8"])),
    "all": build_firewall("web", build_rule("a", protocol="ALL", action="Deny", priority=0)),
}
BAD_NETWORKS: Final[Mapping[str, Case]] = {
    "bits behind the prefix": (build_network(cidrs=["10.0.0.1/16"]), "cidrs"),
    "no prefix": (build_network(cidrs=["10.0.0.0"]), "cidrs"),
    "mask": (build_network(cidrs=["10.0.0.0/255.255.0.0"]), "cidrs"),
    "prefix with a zero": (build_network(cidrs=["10.0.0.0/08"]), "cidrs"),
    "mapped": (build_network(cidrs=["::ffff:10.0.0.0/112"]), "cidrs"),
    "no block": (build_network(cidrs=[]), "cidrs"),
    "one family twice": (build_network(cidrs=["10.0.0.0/16", "10.1.0.0/16"]), "IPv6"),
    "gateway elsewhere": (build_network(gateway="10.1.0.1"), "gateway"),
    "gateway of no address": (build_network(gateway="gw"), "gateway"),
    "hop elsewhere": (build_network(routes=[route("0.0.0.0/0", ip="10.1.0.1")]), "routes"),
    "no hop": (build_network(routes=[route("0.0.0.0/0")]), "exactly one"),
    "two hops": (
        build_network(routes=[route("0.0.0.0/0", ip="10.0.0.1", blackhole="Drop")]),
        "exactly one",
    ),
    "hop of the other family": (build_network(routes=[route("::/0", **IP_HOP)]), "family"),
    "vlan on the pod network": (build_network(vlan=3), "Multus"),
    "multus without bridge": (build_network(backend="Multus"), "bridge"),
    "vlan too high": (build_network(backend="Multus", bridge="br0", vlan=4095), "vlan"),
    "bridge with a slash": (build_network(backend="Multus", bridge="a/b"), "bridge"),
}
BAD_FIREWALLS: Final[Mapping[str, Case]] = {
    "no network": ({**build_firewall(), "spec": {}}, "networkRef"),
    "port 0": (build_firewall("w", build_rule("a", ports=[0])), "ports"),
    "port too high": (build_firewall("w", build_rule("a", ports=[65536])), "ports"),
    "range backwards": (build_firewall("w", build_rule("a", ports=["10-9"])), "ports"),
    "range from 0": (build_firewall("w", build_rule("a", ports=["0-9"])), "ports"),
    "named port": (build_firewall("w", build_rule("a", ports=["http"])), "ports"),
    "open range": (build_firewall("w", build_rule("a", ports=["80-"])), "ports"),
    "ports of ICMP": (build_firewall("w", build_rule("a", protocol="ICMP", ports=[1])), "ports"),
    "ports of ALL": (build_firewall("w", build_rule("a", protocol="ALL", ports=[1])), "ports"),
    "bits behind the prefix": (build_firewall("w", build_rule("a", cidrs=["1.1.1.1/8"])), "cidrs"),
    "unknown protocol": (build_firewall("w", build_rule("a", protocol="GRE")), "protocol"),
    "no protocol": (build_firewall("w", {"name": "a"}), "protocol"),
}
BAD: Final = {**BAD_NETWORKS, **{f"firewall: {k}": v for k, v in BAD_FIREWALLS.items()}}
TWICE: Final = {
    "two routes for one destination": build_network(
        routes=[route("10.9.0.0/16", **IP_HOP), route("10.9.0.0/16", blackhole="Drop")]
    ),
    "two rules of one name": build_firewall("w", build_rule("a"), build_rule("a")),
}
"""What only the API server refuses: keys of list-maps are its business."""


def model_of(manifest: Manifest) -> type[CustomResource]:
    return Network if manifest["kind"] == "Network" else Firewall


@pytest.mark.parametrize("name", GOOD)
def test_model_reads_what_is_right(name: str) -> None:
    assert model_of(GOOD[name]).parse(GOOD[name]).metadata.namespace == "default"


@pytest.mark.parametrize("name", BAD)
def test_model_refuses_what_is_wrong_and_names_it(name: str) -> None:
    manifest, words = BAD[name]

    with pytest.raises(ParseError, match=words):
        model_of(manifest).parse(manifest)


# What the API server enforces.


@pytest.fixture
async def server(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> tuple[Client, str]:
    """Serve both kinds on the real API server; returns a connection and a namespace."""
    await serve(kube_client, Network, Firewall)
    return kube_client, kube_namespace


async def create(server: tuple[Client, str], manifest: Manifest, name: str) -> Manifest:
    client, namespace = server
    metadata = {"name": name, "namespace": namespace}
    kind = kind_of(model_of(manifest))
    return await client.create(kind, {**manifest, "metadata": metadata})


@pytest.mark.apiserver
async def test_server_takes_what_is_right(server: tuple[Client, str]) -> None:
    for number, manifest in enumerate(GOOD.values()):
        await create(server, manifest, f"good-{number}")


@pytest.mark.apiserver
async def test_server_refuses_what_is_wrong_and_names_it(server: tuple[Client, str]) -> None:
    for name, (manifest, words) in BAD.items():
        with pytest.raises(Invalid) as refusal:
            await create(server, manifest, "bad")
        assert words in str(refusal.value), name
    for manifest in TWICE.values():
        with pytest.raises(Invalid, match="Duplicate"):
            await create(server, manifest, "twice")


@pytest.mark.apiserver
async def test_server_keeps_what_may_not_change(server: tuple[Client, str]) -> None:
    client, namespace = server
    await create(server, build_network(), "lan")
    await create(server, build_firewall(), "web")

    for kind, name, field, value in (
        (NETWORK, "lan", "cidrs", ["10.9.0.0/16"]),
        (NETWORK, "lan", "backend", "Multus"),
        (FIREWALL, "web", "networkRef", {"name": "other"}),
    ):
        operations = [{"op": "replace", "path": f"/spec/{field}", "value": value}]
        with pytest.raises(Invalid, match="immutable"):
            await client.patch(kind, Key(namespace, name), operations)
