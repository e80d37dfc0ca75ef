"""Objects are restored from a backup: without status, UID and owner references, in any order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import permutations
from typing import Any

import pytest

from libs.common.kinds import NAMESPACE, SERVICE, Key, Kind, Manifest, build_object, key_of
from libs.common.ownership import controller_uid
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from operators.ipam.naming import KNOWN_UID
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import POOL, address, claim_of, ledger, reason

KINDS = (IP_POOL, IP_ALLOCATION, IP_CLAIM, SERVICE)
SHOP = Key("default", "shop")


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), load_balancer=True
    ) as harness:
        yield harness


def back_up(api: FakeApi) -> dict[Kind, list[Manifest]]:
    """Return the objects as a backup tool creates them again."""
    return {kind: [strip(each) for each in api.objects(kind)] for kind in KINDS}


def strip(manifest: Manifest) -> Manifest:
    """Remove what a backup tool does not restore."""
    kept = ("name", "namespace", "labels", "annotations")
    metadata = manifest["metadata"]
    spec = {name: value for name, value in manifest["spec"].items() if name != "clusterIP"}
    return {
        **{name: manifest[name] for name in ("apiVersion", "kind")},
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": spec,
    }


def lose(api: FakeApi) -> None:
    """Remove all objects, as if the cluster were lost."""
    for kind in (*KINDS,):
        for each in api.objects(kind):
            api.vanish(kind, key_of(each))


def build_shop() -> Manifest:
    annotations = {"ipam.slipway.dev/pool": "public"}
    spec: dict[str, Any] = {"type": "LoadBalancer", "loadBalancerClass": "slipway.dev/ipam"}
    spec["ports"] = [{"port": 80}]
    return build_object(
        SERVICE, "shop", "default", metadata={"annotations": annotations}, spec=spec
    )


def ingress(api: FakeApi) -> list[str]:
    shown = api.get(SERVICE, SHOP).get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return [each["ip"] for each in shown]


@pytest.mark.parametrize("order", list(permutations(KINDS)), ids=lambda order: str(order[0]))
async def test_claims_and_services_have_the_same_addresses_after_a_restore(
    api: FakeApi, harness: OperatorHarness, order: Sequence[Kind]
) -> None:
    api.create(build_pool(quotaPerNamespace=3))
    api.create(build_claim("never", sticky="Never"))
    await harness.converged()
    api.create(build_shop())
    await harness.converged()
    target = {"kind": "Service", "name": "shop"}
    api.create(build_claim("web", target=target, ports=[{"name": "web", "port": 443}]))
    await harness.converged()
    before, saved = ledger(api), back_up(api)
    lose(api)
    await harness.converged()
    for kind in order:
        for each in saved[kind]:
            if api.find(kind, key_of(each)) is None:
                api.create(each)
        await harness.converged()

    assert ledger(api) == before
    assert ingress(api) == [address(api, "shop-lb")]
    assert controller_uid(api.get(SERVICE, Key("default", "web-ip")))
    assert {reason(api, name) for name in ("web", "never", "shop-lb")} == {"Allocated"}


async def test_restored_pool_allocates_other_addresses_after_the_wait(
    api: FakeApi, harness: OperatorHarness
) -> None:
    pool = build_pool()
    pool["metadata"]["annotations"] = {KNOWN_UID: "earlier"}
    api.create(pool)
    api.create(build_claim())
    await harness.converged()
    assert reason(api, "web") == "PoolNotReady"

    api.patch(IP_POOL, POOL, {"metadata": {"annotations": {KNOWN_UID: None}}})
    await harness.eventually(lambda: bool(address(api, "web")), "an administrator ends the wait")


async def test_recreated_claim_keeps_its_address_without_a_quarantine(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Argo CD replaces a claim: it is deleted and created between two events."""
    api.create(build_pool())
    for name in ("a", "b"):
        api.create(build_claim(name))
        await harness.converged()
    api.watches.pause(IP_CLAIM)
    api.vanish(IP_CLAIM, claim_of("b"))
    api.create(build_claim("b"))
    api.watches.resume(IP_CLAIM)
    await harness.converged()

    assert ledger(api) == {"203.0.113.0": "a", "203.0.113.1": "b"}


async def test_addresses_of_a_deleted_namespace_return_whoever_watched_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The release that watched the namespace may have been deleted with it."""
    api.create(build_pool())
    api.create(build_object(NAMESPACE, "team"))
    claim = {"namespace": "team", "name": "x", "uid": "x"}
    pool = {"name": "public", "uid": api.get(IP_POOL, POOL)["metadata"]["uid"]}
    spec = {"realm": "public", "address": "203.0.113.1", "poolRef": pool, "claimRef": claim}
    api.create(build_object(IP_ALLOCATION, "public-ip4-203-0-113-1", spec=spec))
    await harness.converged()
    assert ledger(api) == {"203.0.113.1": "x"}

    api.vanish(NAMESPACE, Key("", "team"))
    await harness.eventually(lambda: ledger(api) == {}, "it is released")
