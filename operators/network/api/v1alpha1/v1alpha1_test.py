"""The kinds of v1alpha1: the model and a real API server refuse the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.crd import CustomResource, ParseError, kind_of
from libs.common.errors import Invalid
from libs.common.kinds import CRD, Key, Manifest, uid_of
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from operators.network.api.v1alpha1 import (
    FIREWALL,
    NETWORK,
    PROVIDER_NETWORK,
    Firewall,
    Network,
    ProviderNetwork,
)
from operators.network.samples import (
    build_attached,
    build_firewall,
    build_network,
    build_provider,
    build_rule,
)

type Case = tuple[Manifest, str]

IP_HOP: Final = {"ip": "10.0.0.9"}


def route(destination: str, **hop: Any) -> Manifest:
    return {"destination": destination, "nextHop": hop}


GOOD: Final[Mapping[str, Manifest]] = {
    "least network": build_network(),
    "dual stack": build_attached(cidrs=["10.0.0.0/16", "fd00::/64"], gateway="fd00::1"),
    "multus": build_attached(mtu=9000, nameservers=["10.0.0.2"]),
    "pool": build_attached(poolRef={"name": "lan"}),
    "binding": build_network(binding="Passt"),
    "least provider": build_provider(),
    "provider": build_provider(untagged="Allowed", vlans=[{"first": 7}], mtu=9000),
    "routes": build_attached(
        routes=[
            route("0.0.0.0/0", **IP_HOP),
            route("10.1.0.0/16", instanceRef={"name": "router"}),
        ]
    ),
    "least firewall": build_firewall(),
    "ports": build_firewall("web", build_rule("a", ports=[22, "8000-8100", "443"])),
    "icmp": build_firewall("web", build_rule("a", protocol="ICMP", cidrs=["fd00::/8"])),
    "peers": build_firewall(
        "web",
        build_rule("a", peers=[{"firewallRef": {"name": "web"}}, {"instances": {}}]),
        build_rule("b", peers=[{"networkRef": {"name": "lan"}}], cidrs=["10.0.0.0/8"]),
        build_rule("c", peers=[{"namespaceSelector": {"matchLabels": {"team": "a"}}}]),
        build_rule("d", action="Deny", peers=[]),
    ),
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
    "gateway elsewhere": (build_attached(gateway="10.1.0.1"), "gateway"),
    "gateway of no address": (build_attached(gateway="gw"), "gateway"),
    "hop elsewhere": (build_attached(routes=[route("0.0.0.0/0", ip="10.1.0.1")]), "routes"),
    "no hop": (build_attached(routes=[route("0.0.0.0/0")]), "exactly one"),
    "two hops": (
        build_attached(routes=[route("0.0.0.0/0", ip="10.0.0.1", blackhole="Drop")]),
        "exactly one",
    ),
    "hop of the other family": (build_attached(routes=[route("::/0", **IP_HOP)]), "family"),
    "vlan on the pod network": (build_network(vlan=3), "Multus"),
    "pool on the pod network": (build_network(poolRef={"name": "lan"}), "Multus"),
    "unknown binding": (build_network(binding="SLIRP"), "binding"),
    "binding of an attachment": (
        build_attached(binding="Bridge"),
        "binding",
    ),
    "provider on the pod network": (build_network(providerNetworkRef={"name": "a"}), "Multus"),
    "vlan too high": (build_attached(vlan=4095), "vlan"),
    "bridge with a slash": (build_provider(bridge="a/b"), "bridge"),
    "vlans backwards": (build_provider(vlans=[{"first": 9, "last": 8}]), "first"),
    "no namespaces": (
        {**build_provider(), "spec": {"bridge": "br0", "vlans": []}},
        "allowedNamespaces",
    ),
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
    "no peer": (build_firewall("w", build_rule("a", peers=[{}])), "exactly one"),
    "two peers": (
        build_firewall(
            "w", build_rule("a", peers=[{"instances": {}, "networkRef": {"name": "lan"}}])
        ),
        "exactly one",
    ),
    "denied peer": (
        build_firewall("w", build_rule("a", action="Deny", peers=[{"instances": {}}])),
        "action Allow",
    ),
    "too many peers": (
        build_firewall(
            "w",
            *(build_rule(f"r{n}", peers=[{"firewallRef": {"name": "a"}}] * 13) for n in range(5)),
        ),
        "at most 64 peers",
    ),
    "unknown protocol": (build_firewall("w", build_rule("a", protocol="GRE")), "protocol"),
    "no protocol": (build_firewall("w", {"name": "a"}), "protocol"),
}
BAD: Final = {**BAD_NETWORKS, **{f"firewall: {k}": v for k, v in BAD_FIREWALLS.items()}}
TWICE: Final = {
    "two routes for one destination": build_attached(
        routes=[route("10.9.0.0/16", **IP_HOP), route("10.9.0.0/16", instanceRef={"name": "a"})]
    ),
    "two rules of one name": build_firewall("w", build_rule("a"), build_rule("a")),
}
"""What only the API server refuses: keys of list-maps are its business."""


NO_EFFECT: Final[Mapping[str, Any]] = {
    "gateway": "10.0.0.1",
    "nameservers": ["10.0.0.2"],
    "routes": [route("10.9.0.0/16", **IP_HOP)],
}
"""Fields that do nothing on backend PodNetwork. The model reads them: objects may have been stored
with them before the API server refused them."""


def model_of(manifest: Manifest) -> type[CustomResource]:
    models = (Network, Firewall, ProviderNetwork)
    return next(model for model in models if kind_of(model).kind == manifest["kind"])


@pytest.mark.parametrize("name", GOOD)
def test_model_reads_what_is_right(name: str) -> None:
    assert model_of(GOOD[name]).parse(GOOD[name]).metadata.name == GOOD[name]["metadata"]["name"]


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
    """Serve the kinds on the real API server; returns a connection and a namespace."""
    await serve(kube_client, Network, Firewall, ProviderNetwork)
    return kube_client, kube_namespace


async def create(server: tuple[Client, str], manifest: Manifest, name: str) -> Manifest:
    client, namespace = server
    kind = kind_of(model_of(manifest))
    metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
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
    # The model accepts it, because routes that are stored keep it.
    useless = build_attached(routes=[route("10.2.0.0/16", blackhole="Drop")])
    with pytest.raises(Invalid, match="blackhole has no effect"):
        await create(server, useless, "useless")


@pytest.mark.apiserver
async def test_server_keeps_what_may_not_change(server: tuple[Client, str]) -> None:
    client, namespace = server
    await create(server, build_network(), "lan")
    await create(server, build_firewall(), "web")
    fabric = await create(server, build_provider(), f"fabric-{namespace}")
    key = Key(namespace, "lan")
    await client.patch(NETWORK, key, [{"op": "add", "path": "/spec/binding", "value": "Bridge"}])

    for kind, name, field, value in (
        (NETWORK, "lan", "cidrs", ["10.9.0.0/16"]),
        (NETWORK, "lan", "backend", "Multus"),
        (NETWORK, "lan", "binding", "Passt"),
        (FIREWALL, "web", "networkRef", {"name": "other"}),
        (PROVIDER_NETWORK, fabric["metadata"]["name"], "bridge", "br1"),
    ):
        operations = [{"op": "replace", "path": f"/spec/{field}", "value": value}]
        with pytest.raises(Invalid, match="immutable"):
            await client.patch(kind, Key(namespace if kind.namespaced else "", name), operations)


@pytest.mark.apiserver
@pytest.mark.parametrize("field", NO_EFFECT)
async def test_server_refuses_what_has_no_effect_on_the_network_of_pods(
    server: tuple[Client, str], field: str
) -> None:
    manifest = build_network(**{field: NO_EFFECT[field]})
    with pytest.raises(Invalid, match=f"{field} has no effect on backend PodNetwork"):
        await create(server, manifest, "lan")

    client, namespace = server
    await create(server, build_network(), "lan")
    operations = [{"op": "add", "path": f"/spec/{field}", "value": NO_EFFECT[field]}]
    with pytest.raises(Invalid, match="has no effect"):
        await client.patch(NETWORK, Key(namespace, "lan"), operations)


@pytest.fixture
async def stored(server: tuple[Client, str]) -> tuple[Client, str]:
    """Store two networks as they were let in before the rules on their spec existed."""
    client, _ = server
    crd = Key("", f"{NETWORK.plural}.{NETWORK.group}")
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"
    held = (await client.get(CRD, crd))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = held["properties"]["spec"]["x-kubernetes-validations"]
    await client.patch(CRD, crd, [{"op": "remove", "path": path}])
    try:
        await attempt(server, build_network(**NO_EFFECT), "old", refused=False)
        await attempt(server, build_network(backend="Multus"), "bridged", refused=False)
    finally:
        await client.patch(CRD, crd, [{"op": "add", "path": path, "value": rules}])
    await attempt(server, build_network(**NO_EFFECT), "new", refused=True)
    return server


async def attempt(
    server: tuple[Client, str], manifest: Manifest, name: str, *, refused: bool
) -> None:
    """Create an object until the server does so, or refuses it, by the rules that it has now."""
    client, namespace = server
    async with asyncio.timeout(30):
        while True:
            try:
                held = await create(server, manifest, name)
            except Invalid:
                if refused:
                    return
            else:
                if not refused:
                    return
                await client.delete(NETWORK, Key(namespace, name), uid=uid_of(held))


@pytest.mark.apiserver
async def test_server_lets_objects_be_edited_that_were_stored_before_it_refused_their_fields(
    stored: tuple[Client, str],
) -> None:
    client, namespace = stored
    old, bridged = Key(namespace, "old"), Key(namespace, "bridged")
    for key in (old, bridged):
        isolation = {"op": "replace", "path": "/spec/isolation", "value": "Network"}
        edited = await client.patch(NETWORK, key, [isolation])
        assert edited["spec"]["isolation"] == "Network"
    assert (await client.get(NETWORK, old))["spec"]["routes"] == NO_EFFECT["routes"]

    changed = {"op": "replace", "path": "/spec/gateway", "value": "10.0.0.9"}
    with pytest.raises(Invalid, match="has no effect"):
        await client.patch(NETWORK, old, [changed])
    for field in NO_EFFECT:
        await client.patch(NETWORK, old, [{"op": "remove", "path": f"/spec/{field}"}])
    with pytest.raises(Invalid, match="needs providerNetworkRef"):
        await create(stored, build_network(backend="Multus"), "another")
    path = "/spec/providerNetworkRef"
    await client.patch(NETWORK, bridged, [{"op": "add", "path": path, "value": {"name": "a"}}])
    with pytest.raises(Invalid, match="immutable"):
        await client.patch(NETWORK, bridged, [{"op": "add", "path": path, "value": {"name": "b"}}])
