"""What a real API server accepts of the kinds of ipam, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.client import Client
from libs.common.errors import AlreadyExists, Invalid
from libs.common.kinds import Key, Kind, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def client(kube_apiserver: ControlPlane, kube_client: Client) -> Client:
    """Serve the kinds of ipam on the real API server."""
    await serve(kube_client, *RESOURCES)
    return kube_client


async def apply(client: Client, kind: Kind, spec: Any, name: str = "x", namespace: str = "") -> Any:
    manifest = build_object(kind, name, namespace, spec=spec)
    return await client.apply(kind, manifest, field_manager="kubectl")


# Pools.

POOL = {"family": "IPv4", "addresses": ["203.0.113.0/26"]}


@pytest.mark.parametrize(
    "spec",
    [
        POOL,
        {"family": "IPv4", "addresses": ["203.0.113.7", "203.0.113.10-203.0.113.20"]},
        {"family": "IPv4", "addresses": ["9.255.0.9-10.0.0.1"]},
        {"family": "IPv6", "addresses": ["2001:db8::/32", "2001:db9::-2001:db9::ff"]},
        {**POOL, "excluded": ["203.0.113.8/30"], "gateway": "203.0.113.1", "strategy": "Random"},
        {**POOL, "allowedNamespaces": {"matchLabels": {"tier": "web"}}, "allocation": "Draining"},
        {**POOL, "quotaPerNamespace": 3, "maxPriority": -10},
        {"family": "IPv4", "addresses": [f"10.{i}.0.0-10.{i}.255.255" for i in range(64)]},
    ],
    ids=lambda spec: str(spec)[:70],
)
async def test_good_pool_is_accepted(client: Client, spec: Any) -> None:
    manifest = {**build_object(IP_POOL, "", spec=spec), "metadata": {"generateName": "good-"}}
    await client.create(IP_POOL, manifest)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"family": "IPv4"}, "spec.addresses: Required"),
        ({"addresses": ["203.0.113.7"]}, "spec.family: Required"),
        ({"family": "IPv4", "addresses": []}, "at least 1"),
        ({"family": "IPv4", "addresses": ["pool"]}, "an address, a CIDR or a range"),
        ({"family": "IPv4", "addresses": ["203.0.113.0/33"]}, "an address, a CIDR or a range"),
        ({"family": "IPv4", "addresses": ["203.0.113.20-203.0.113.10"]}, "after its last"),
        ({"family": "IPv4", "addresses": ["10.0.0.1-9.0.0.1"]}, "after its last"),
        ({"family": "IPv4", "addresses": ["203.0.113.5/26"]}, "its network address"),
        ({"family": "IPv6", "addresses": ["2001:db8::1/64"]}, "its network address"),
        ({**POOL, "excluded": ["203.0.113.5/26"]}, "its network address"),
        ({**POOL, "quotaPerNamespace": 0}, "greater than or equal to 1"),
        ({**POOL, "maxPriority": 1001}, "less than or equal to 1000"),
        ({"family": "IPv4", "addresses": ["203.0.113.9-2001:db8::1"]}, "an address, a CIDR"),
        ({"family": "IPv4", "addresses": ["2001:db8::/64"]}, "must all be of spec.family"),
        ({"family": "IPv6", "addresses": ["203.0.113.7"]}, "must all be of spec.family"),
        ({**POOL, "excluded": ["2001:db8::1"]}, "excluded must all be of spec.family"),
        ({**POOL, "gateway": "2001:db8::1"}, "gateway must be of spec.family"),
        ({**POOL, "gateway": "nowhere"}, "shortest form"),
        ({**POOL, "strategy": "Best"}, "supported values"),
        ({**POOL, "realm": "Public-Net"}, "should match"),
        ({**POOL, "reuseGraceSeconds": -1}, "greater than or equal to 0"),
    ],
    ids=str,
)
async def test_bad_pool_is_refused_with_the_field(client: Client, spec: Any, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        await apply(client, IP_POOL, spec, "bad")

    assert words in refusal.value.message


@pytest.mark.parametrize("change", [{"realm": "inner"}, {"family": "IPv6", "addresses": ["::1"]}])
async def test_realm_and_family_of_a_pool_are_fixed(client: Client, change: Any) -> None:
    await apply(client, IP_POOL, POOL, "fixed")

    with pytest.raises(Invalid, match="immutable"):
        await apply(client, IP_POOL, {**POOL, **change}, "fixed")


# The ledger.


def entry(address: str, realm: str = "public") -> Manifest:
    return {
        "realm": realm,
        "address": address,
        "poolRef": {"name": "p", "uid": "u"},
        "claimRef": {"namespace": "default", "name": "c", "uid": "cu"},
    }


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("public-ip4-203-0-113-7", entry("203.0.113.7")),
        ("inner-ip4-203-0-113-7", entry("203.0.113.7", "inner")),
        ("public-ip6-2001-db8--1-x", entry("2001:db8::1")),
        ("public-ip6----x", entry("::")),
    ],
)
async def test_entry_that_is_named_by_its_address_is_accepted(
    client: Client, name: str, spec: Any
) -> None:
    await apply(client, IP_ALLOCATION, spec, name)


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("public-ip4-203-0-113-8", entry("203.0.113.7"), "made of spec.realm"),
        ("other", entry("203.0.113.7"), "made of spec.realm"),
        ("public-ip4-203-0-113-7", entry("203.0.113.7", "inner"), "made of spec.realm"),
        ("public-ip6-2001-db8-0-0-0-0-0-1-x", entry("2001:db8:0:0:0:0:0:1"), "shortest form"),
        ("public-ip6-2001-DB8--1-x", entry("2001:DB8::1"), "shortest form"),
        ("public-ip6---ffff-1-2-3-4-x", entry("::ffff:1.2.3.4"), "shortest form"),
        ("public-ip4-203-0-113-007", entry("203.0.113.007"), "shortest form"),
    ],
)
async def test_second_name_for_an_address_does_not_exist(
    client: Client, name: str, spec: Any, words: str
) -> None:
    """One address has one text, and one text one name: a second entry is always a conflict."""
    with pytest.raises(Invalid) as refusal:
        await client.create(IP_ALLOCATION, build_object(IP_ALLOCATION, name, spec=spec))

    assert words in refusal.value.message


async def test_entry_cannot_be_changed_or_made_twice(client: Client) -> None:
    name, spec = "public-ip4-203-0-113-9", entry("203.0.113.9")
    await client.create(IP_ALLOCATION, build_object(IP_ALLOCATION, name, spec=spec))

    with pytest.raises(AlreadyExists):
        await client.create(IP_ALLOCATION, build_object(IP_ALLOCATION, name, spec=spec))
    spec["claimRef"]["uid"] = "other"
    with pytest.raises(Invalid, match="is immutable"):
        await apply(client, IP_ALLOCATION, spec, name)


# Claims.

CLAIM: Manifest = {"poolRef": {"name": "p"}}
WEB = {"kind": "Instance", "name": "web"}


@pytest.mark.parametrize(
    "spec",
    [
        CLAIM,
        {**CLAIM, "target": WEB},
        {**CLAIM, "target": {"kind": "Address", "address": "10.0.0.7"}, "priority": -1000},
        {**CLAIM, "ports": [{"name": "web", "port": 80, "targetPort": 8080}]},
        {**CLAIM, "secondary": {"poolRef": {"name": "six"}, "address": "2001:db8::7"}},
        {**CLAIM, "address": "203.0.113.7", "sticky": "Never"},
        {**CLAIM, "target": WEB, "traffic": "All"},
    ],
    ids=str,
)
async def test_good_claim_is_accepted(client: Client, kube_namespace: str, spec: Any) -> None:
    await apply(client, IP_CLAIM, spec, namespace=kube_namespace)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "spec.poolRef: Required"),
        ({**CLAIM, "address": "any"}, "shortest form"),
        ({**CLAIM, "target": {"kind": "Instance"}}, "a name for any other kind"),
        ({**CLAIM, "target": {"kind": "Address", "name": "a"}}, "an address for kind Address"),
        ({**CLAIM, "target": {"kind": "Pod", "name": "a"}}, "supported values"),
        ({**CLAIM, "priority": 1001}, "less than or equal to 1000"),
        ({**CLAIM, "ports": [{"name": "a", "port": 0}]}, "greater than or equal to 1"),
        ({**CLAIM, "secondary": {"poolRef": {"name": "p"}}}, "another pool"),
        ({**CLAIM, "traffic": "All", "ports": [{"name": "a", "port": 1}]}, "ports must be empty"),
        (
            {**CLAIM, "traffic": "All", "target": {"kind": "Service", "name": "a"}},
            "not be a Service",
        ),
        ({**CLAIM, "traffic": "All", "secondary": {"poolRef": {"name": "six"}}}, "secondary must"),
    ],
    ids=str,
)
async def test_bad_claim_is_refused_with_the_field(
    client: Client, kube_namespace: str, spec: Any, words: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await apply(client, IP_CLAIM, spec, namespace=kube_namespace)

    assert words in refusal.value.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CLAIM, {"poolRef": {"name": "q"}}),
        (CLAIM, {**CLAIM, "address": "203.0.113.7"}),
        ({**CLAIM, "address": "203.0.113.7"}, CLAIM),
    ],
    ids=str,
)
async def test_what_a_claim_asked_for_is_fixed(
    client: Client, kube_namespace: str, before: Any, after: Any
) -> None:
    await apply(client, IP_CLAIM, before, namespace=kube_namespace)

    with pytest.raises(Invalid, match=r"immutable|cannot be set or removed"):
        await apply(client, IP_CLAIM, after, namespace=kube_namespace)


async def test_target_may_change_and_go(client: Client, kube_namespace: str) -> None:
    for target in (WEB, {"kind": "Service", "name": "web"}, None):
        spec = {**CLAIM, **({"target": target} if target else {})}
        await apply(client, IP_CLAIM, spec, namespace=kube_namespace)


async def test_second_pool_is_fixed_once_the_claim_has_its_address(
    client: Client, kube_namespace: str
) -> None:
    for name in ("six", "other"):
        spec = {**CLAIM, "secondary": {"poolRef": {"name": name}}}
        await apply(client, IP_CLAIM, spec, namespace=kube_namespace)
    await tell(client, kube_namespace, {"secondaryAddress": "2001:db8::7"})

    for changed in (CLAIM, {**CLAIM, "secondary": {"poolRef": {"name": "six"}}}):
        with pytest.raises(Invalid, match=r"immutable once .* is set"):
            await apply(client, IP_CLAIM, changed, namespace=kube_namespace)


async def test_address_of_a_claim_is_final(client: Client, kube_namespace: str) -> None:
    """Whatever a late writer believes, a claim keeps the address in its status."""
    await apply(client, IP_CLAIM, CLAIM, namespace=kube_namespace)
    await tell(client, kube_namespace, {"observedGeneration": 1})
    await tell(client, kube_namespace, {"address": "203.0.113.7"})

    with pytest.raises(Invalid, match="address is immutable"):
        await tell(client, kube_namespace, {"address": "203.0.113.8"})
    with pytest.raises(Invalid, match="cannot be removed"):
        await tell(client, kube_namespace, {"observedGeneration": 2})
    live = await client.get(IP_CLAIM, Key(kube_namespace, "x"))
    assert live["status"]["address"] == "203.0.113.7"


async def tell(client: Client, namespace: str, status: Any) -> None:
    manifest = build_object(IP_CLAIM, "x", namespace, spec=CLAIM) | {"status": status}
    del manifest["spec"]
    await client.apply(IP_CLAIM, manifest, field_manager="ipam-claim-status", subresource="status")
