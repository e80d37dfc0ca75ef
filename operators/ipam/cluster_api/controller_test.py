"""IPAddressClaims of Cluster API get addresses of IPPools, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.contracts.cluster_api import CLUSTER, IP_ADDRESS, IP_ADDRESS_CLAIM, PAUSED
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import ledger, reassign, writes

NODE: Final = Key("default", "node")
FINALIZER, PROTECTION = "ipam.slipway.dev/finalizer", "ipam.cluster.x-k8s.io/protect-address"


def build_capi_pool(**spec: Any) -> Manifest:
    return build_pool(**{"prefix": 24, "gateway": "203.0.113.254", **spec})


def build_request(name: str = "node", *, cluster: str = "", **pool: str) -> Manifest:
    reference = {"apiGroup": "ipam.slipway.dev", "kind": "IPPool", "name": "public", **pool}
    spec: Manifest = {"poolRef": reference, **({"clusterName": cluster} if cluster else {})}
    return build_object(IP_ADDRESS_CLAIM, name, "default", spec=spec)


def register(api: FakeApi) -> None:
    """Serve the kinds of Cluster API, with the schemas of the fake, which have no fields."""
    api.register(build_loose_crd(IP_ADDRESS_CLAIM, None, ("status",)))
    api.register(build_loose_crd(IP_ADDRESS, None, ()))
    api.register(build_loose_crd(CLUSTER, None, ("status",)))


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator for the kinds of Cluster API, which the cluster serves."""
    register(api)
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), cluster_api=True
    ) as harness:
        yield harness


def ready(api: FakeApi, key: Key = NODE) -> tuple[str, str, str]:
    found = find_condition(api.get(IP_ADDRESS_CLAIM, key), "Ready") or {}
    return tuple(str(found.get(name, "")) for name in ("status", "reason", "message"))  # type: ignore[return-value]


def address(api: FakeApi, name: str = "node") -> str:
    held = api.find(IP_ADDRESS, Key("default", name))
    return "" if held is None else str(held["spec"]["address"])


async def test_claim_gets_the_address_that_the_contract_describes(
    api: FakeApi, harness: OperatorHarness
) -> None:
    pool = api.create(build_capi_pool())
    claim = api.create(build_request())
    await harness.converged()

    held = api.get(IP_ADDRESS, NODE)
    assert held["spec"] == {
        "claimRef": {"name": "node"},
        "poolRef": {"apiGroup": "ipam.slipway.dev", "kind": "IPPool", "name": "public"},
        "address": "203.0.113.0",
        "prefix": 24,
        "gateway": "203.0.113.254",
    }
    first, second = held["metadata"]["ownerReferences"]
    assert (first["kind"], first["uid"]) == ("IPAddressClaim", claim["metadata"]["uid"])
    assert (first["controller"], first["blockOwnerDeletion"]) == (True, True)
    assert (second["kind"], second["uid"]) == ("IPPool", pool["metadata"]["uid"])
    assert (second["controller"], second["blockOwnerDeletion"]) == (False, True)
    assert held["metadata"]["finalizers"] == [PROTECTION]
    shown = api.get(IP_ADDRESS_CLAIM, NODE)
    assert shown["status"]["addressRef"] == {"name": "node"}
    assert ready(api)[:2] == ("True", "Ready")
    assert shown["metadata"]["finalizers"] == [FINALIZER]
    assert ledger(api) == {"203.0.113.0": "node-capi"}
    mark = api.mark()
    await harness.restart()
    await harness.converged()
    assert writes(api, mark) == []


async def test_address_that_another_claim_has_is_not_ready(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_capi_pool())
    api.create(build_request())
    await harness.converged()
    await harness.stop()
    reassign(api, "public-ip4-203-0-113-0", "other")
    await harness.restart()
    await harness.converged()

    status, reason, message = ready(api)
    assert (status, reason) == ("False", "AllocationFailed")
    assert "203.0.113.0" in message


@pytest.mark.parametrize(
    "pool", [{"apiGroup": "ipam.cluster.x-k8s.io"}, {"kind": "InClusterIPPool"}]
)
async def test_claim_of_another_provider_is_left_alone(
    api: FakeApi, harness: OperatorHarness, pool: dict[str, str]
) -> None:
    api.create(build_capi_pool())
    api.create(build_request(**pool))
    await harness.converged()
    assert api.objects(IP_CLAIM) == []
    claim = api.get(IP_ADDRESS_CLAIM, NODE)
    assert (claim["metadata"].get("finalizers"), claim.get("status")) == (None, None)


async def test_deletion_gives_the_address_back_and_lets_everything_go(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_capi_pool())
    api.create(build_request())
    await harness.converged()
    api.delete(IP_ADDRESS_CLAIM, NODE)
    await harness.eventually(lambda: api.find(IP_ADDRESS_CLAIM, NODE) is None, "it goes")
    await harness.eventually(lambda: api.objects(IP_ALLOCATION) == [], "the address is back")
    assert (api.objects(IP_ADDRESS), api.objects(IP_CLAIM)) == ([], [])


async def test_address_is_released_after_its_ip_address(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Otherwise the next claim could get the address while the old IPAddress still exists."""
    api.create(build_capi_pool(addresses=["203.0.113.9"]))
    api.create(build_request())
    await harness.converged()
    api.patch(IP_ADDRESS, NODE, {"metadata": {"finalizers": ["example.com/in-use"]}})
    api.delete(IP_ADDRESS_CLAIM, NODE)
    api.create(build_claim("next"))
    await harness.converged()
    assert address(api) == "203.0.113.9"
    assert ledger(api) == {"203.0.113.9": "node-capi"}

    api.patch(IP_ADDRESS, NODE, {"metadata": {"finalizers": None}})
    await harness.eventually(lambda: ledger(api) == {"203.0.113.9": "next"}, "it is released")
    assert (api.objects(IP_ADDRESS), api.objects(IP_ADDRESS_CLAIM)) == ([], [])


async def test_address_stays_while_its_claim_exists(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_capi_pool())
    api.create(build_request())
    await harness.converged()
    api.delete(IP_ADDRESS, NODE)
    await harness.converged()
    assert address(api) == "203.0.113.0"

    api.delete(IP_ADDRESS_CLAIM, NODE)
    await harness.eventually(lambda: api.objects(IP_ADDRESS) == [], "it goes with its claim")
    await harness.eventually(lambda: api.find(IP_ADDRESS_CLAIM, NODE) is None)


async def test_pool_without_prefix_keeps_the_claim_waiting_until_it_has_one(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_request())
    await harness.converged()
    assert ready(api) == (
        "False",
        "PoolNotReady",
        "IPPool public has no spec.prefix, which an IPAddress needs; set it",
    )
    assert api.objects(IP_CLAIM) == [], "no address is taken that nobody can use"

    api.patch(IP_POOL, Key("", "public"), {"spec": {"prefix": 26}})
    await harness.converged()
    assert api.get(IP_ADDRESS, NODE)["spec"]["prefix"] == 26
    assert ready(api)[:2] == ("True", "Ready")


async def test_pool_that_comes_later_is_heard_of(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_request())
    await harness.converged()
    assert ready(api)[:2] == ("False", "PoolNotReady")
    api.create(build_capi_pool())
    await harness.converged()
    assert address(api) == "203.0.113.0"


async def test_claim_waits_in_the_queue_of_the_pool(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_capi_pool(addresses=["203.0.113.9"]))
    api.create(build_claim("first"))
    await harness.converged()
    api.create(build_request())
    await harness.converged()
    assert ready(api)[:2] == ("False", "PoolExhausted")

    api.delete(IP_CLAIM, Key("default", "first"))
    await harness.eventually(lambda: address(api) == "203.0.113.9", "it is served")
    await harness.converged()
    assert ready(api)[:2] == ("True", "Ready")


async def test_nothing_is_done_for_a_paused_cluster(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_capi_pool())
    key = Key("default", "tenant")
    api.create(build_object(CLUSTER, "tenant", "default", spec={"paused": True}))
    api.create(build_request(cluster="tenant"))
    await harness.converged()
    assert (address(api), api.objects(IP_CLAIM)) == ("", [])

    api.patch(CLUSTER, key, {"spec": {"paused": False}})
    await harness.converged()
    assert address(api) == "203.0.113.0"

    api.patch(CLUSTER, key, {"metadata": {"annotations": {PAUSED: ""}}})
    api.delete(IP_ADDRESS_CLAIM, NODE)
    await harness.converged()
    assert address(api) == "203.0.113.0", "what is paused is not released"
    api.patch(CLUSTER, key, {"metadata": {"annotations": {PAUSED: None}}})
    await harness.eventually(lambda: api.find(IP_ADDRESS_CLAIM, NODE) is None)


async def test_cluster_that_is_not_found_stops_all_but_the_release(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The Cluster may be deleted before its claims are."""
    api.create(build_capi_pool())
    api.create(build_request(cluster="tenant"))
    await harness.converged()
    assert address(api) == ""

    api.create(build_object(CLUSTER, "tenant", "default", spec={}))
    await harness.converged()
    assert address(api) == "203.0.113.0"
    api.delete(CLUSTER, Key("default", "tenant"))
    api.delete(IP_ADDRESS_CLAIM, NODE)
    await harness.eventually(lambda: api.find(IP_ADDRESS_CLAIM, NODE) is None)
    assert api.objects(IP_ADDRESS) == []


@pytest.mark.parametrize("kind", [IP_POOL, IP_ADDRESS_CLAIM])
async def test_paused_pool_or_claim_is_left_alone(
    api: FakeApi, harness: OperatorHarness, kind: Any
) -> None:
    manifests = {IP_POOL: build_capi_pool(), IP_ADDRESS_CLAIM: build_request()}
    manifests[kind]["metadata"]["annotations"] = {PAUSED: "true"}
    for manifest in manifests.values():
        api.create(manifest)
    await harness.converged()
    assert api.objects(IP_CLAIM) == []

    key = Key("", "public") if kind == IP_POOL else NODE
    api.patch(kind, key, {"metadata": {"annotations": {PAUSED: None}}})
    await harness.converged()
    assert address(api) == "203.0.113.0"


async def test_address_that_was_moved_with_its_claim_is_kept(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """`clusterctl move` recreates claims and addresses; IPClaims stay behind."""
    await harness.stop()
    pool = api.create(build_capi_pool())
    claim = api.create(build_request())
    owner = {
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
        "kind": "IPAddressClaim",
        "name": "node",
    }
    metadata = {
        "ownerReferences": [
            {**owner, "uid": claim["metadata"]["uid"], "controller": True},
        ],
        "finalizers": [PROTECTION],
    }
    spec = {
        "claimRef": {"name": "node"},
        "poolRef": {"apiGroup": "ipam.slipway.dev", "kind": "IPPool", "name": "public"},
        "address": "203.0.113.2",
        "prefix": 24,
    }
    api.create(build_object(IP_ADDRESS, "node", "default", metadata=metadata, spec=spec))
    await harness.restart()
    await harness.converged()
    assert pool["metadata"]["name"] == "public"
    assert ledger(api) == {"203.0.113.2": "node-capi"}
    assert ready(api)[:2] == ("True", "Ready")


@pytest.mark.parametrize("kind", [IP_CLAIM, IP_ADDRESS])
async def test_object_of_somebody_else_is_left_alone_and_named(
    api: FakeApi, harness: OperatorHarness, kind: Any
) -> None:
    api.create(build_capi_pool())
    foreign = (
        build_claim("node-capi")
        if kind == IP_CLAIM
        else build_object(IP_ADDRESS, "node", "default", spec={"address": "203.0.113.1"})
    )
    api.create(foreign)
    await harness.converged()
    api.create(build_request())
    await harness.converged()
    status, reason, message = ready(api)
    assert (status, reason) == ("False", "AllocationFailed")
    assert message.startswith(f"{kind.kind} default/")
    assert "belongs to another object" in message

    api.delete(IP_ADDRESS_CLAIM, NODE)
    await harness.eventually(lambda: api.find(IP_ADDRESS_CLAIM, NODE) is None)
    assert len(api.objects(kind)) == 1


async def test_kinds_that_come_after_the_operator_are_served(api: FakeApi) -> None:
    """The CRDs of Cluster API may be installed later, or never."""
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), cluster_api=True
    ) as harness:
        api.create(build_capi_pool())
        api.create(build_claim())
        await harness.converged()
        assert ledger(api) == {"203.0.113.0": "web"}

        register(api)
        await harness.restart()
        api.create(build_request())
        await harness.converged()
        assert address(api) == "203.0.113.1"


async def test_kinds_are_not_watched_unless_it_is_asked_for(api: FakeApi) -> None:
    register(api)
    mark = api.mark()
    async with OperatorHarness(OPERATOR, api.config, watch_namespaces=("default",)) as harness:
        api.create(build_capi_pool())
        api.create(build_request())
        await harness.converged()
        assert not api.requests.select(
            kind=IP_ADDRESS_CLAIM, since=mark, where=lambda each: each.verb != "create"
        )
        assert address(api) == ""
