"""Services that have an address after their claim was deleted without them, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.crd import build_crd
from libs.common.kinds import SERVICE, Key, Manifest, build_object, key_of, uid_of
from libs.common.labels import MANAGED_BY, PAUSED
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from operators.ipam.naming import LOAD_BALANCER_CLASS
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.settings import Announcement
from operators.ipam.shown import POOL, claim_of, ledger, reason

PUBLISHED = {
    "target": {"kind": "Address", "address": "10.0.0.7"},
    "ports": [{"name": "a", "port": 1}],
}
WEB_IP = Key("default", "web-ip")
ENTRY = Key("", "public-ip4-203-0-113-0")


@pytest.fixture(
    params=[Announcement.METALLB, Announcement.LOAD_BALANCER_IP, Announcement.EXTERNAL_IPS]
)
async def wide(api: FakeApi, request: Any) -> AsyncIterator[OperatorHarness]:
    """Run the operator for two namespaces."""
    async with OperatorHarness(
        OPERATOR,
        api.config,
        watch_namespaces=("default", "shop"),
        announcement=request.param,
        load_balancer=True,
    ) as harness:
        yield harness


async def leave(api: FakeApi, harness: OperatorHarness, **changes: Any) -> None:
    """Let a tenant delete a claim past its finalizer, and keep the Service."""
    api.create(build_pool(addresses=["203.0.113.0"], addressTargets="Allow"))
    api.create(build_claim(**PUBLISHED))
    await harness.converged()
    api.patch(IP_CLAIM, claim_of("web"), {"metadata": {"annotations": {PAUSED: "true"}}})
    await harness.converged()
    metadata = {"ownerReferences": None, **changes}
    api.patch(SERVICE, WEB_IP, {"metadata": metadata, "spec": {"selector": {"app": "mine"}}})
    api.vanish(IP_CLAIM, claim_of("web"))
    await harness.converged()


def create_neighbor(api: FakeApi) -> None:
    claim = build_claim("mine")
    claim["metadata"]["namespace"] = "shop"
    api.create(claim)


async def test_service_of_a_deleted_claim_is_deleted_before_its_address_is_free(
    api: FakeApi, wide: OperatorHarness
) -> None:
    await leave(api, wide)
    create_neighbor(api)
    await wide.eventually(lambda: ledger(api) == {"203.0.113.0": "mine"}, "the neighbor gets it")

    assert api.find(SERVICE, WEB_IP) is None


async def test_service_that_a_load_balancer_still_serves_keeps_its_address_from_others(
    api: FakeApi, wide: OperatorHarness
) -> None:
    await leave(api, wide, finalizers=["service.kubernetes.io/load-balancer-cleanup"])
    create_neighbor(api)
    await wide.converged()
    assert api.get(SERVICE, WEB_IP)["metadata"]["deletionTimestamp"]
    assert ledger(api) == {"203.0.113.0": "web"}

    api.patch(SERVICE, WEB_IP, {"metadata": {"finalizers": None}})
    await wide.eventually(lambda: ledger(api) == {"203.0.113.0": "mine"}, "the neighbor gets it")


async def test_service_without_the_label_keeps_the_address_from_others(
    api: FakeApi, wide: OperatorHarness
) -> None:
    """The operator deletes nothing that may belong to somebody else."""
    await leave(api, wide, labels={MANAGED_BY: None})
    status = {"loadBalancer": {"ingress": [{"ip": "203.0.113.0"}]}}
    api.patch_status(SERVICE, WEB_IP, status)
    create_neighbor(api)
    await wide.converged()
    assert ledger(api) == {"203.0.113.0": "web"}
    (condition,) = api.get(IP_ALLOCATION, ENTRY)["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Released", "HeldByService")
    assert "Service default/web-ip" in condition["message"]
    await wide.restart()
    mark = api.mark()
    await wide.converged()
    assert ledger(api) == {"203.0.113.0": "web"}
    assert not api.writes(mark), "it waits silently"

    api.delete(IP_ALLOCATION, ENTRY)
    await wide.converged()
    assert ledger(api) == {"203.0.113.0": "web"}, "not even an administrator assigns it twice"

    api.delete(SERVICE, WEB_IP)
    await wide.eventually(lambda: ledger(api) == {"203.0.113.0": "mine"}, "it is free")


async def test_address_that_a_service_keeps_counts_against_the_quota(
    api: FakeApi, wide: OperatorHarness
) -> None:
    await leave(api, wide, labels={MANAGED_BY: None})
    api.patch_status(SERVICE, WEB_IP, {"loadBalancer": {"ingress": [{"ip": "203.0.113.0"}]}})
    spec = {"addresses": ["203.0.113.0-203.0.113.3"], "quotaPerNamespace": 1}
    api.patch(IP_POOL, POOL, {"spec": spec})
    for name in ("a", "b"):
        api.create(build_claim(name))
        await wide.converged()

    assert ledger(api) == {"203.0.113.0": "a"}
    assert reason(api, "b") == "QuotaExceeded"


async def test_paused_service_of_the_class_keeps_the_address_from_others(
    api: FakeApi, wide: OperatorHarness
) -> None:
    api.create(build_pool(addresses=["203.0.113.0"]))
    api.create(build_shop())
    await wide.converged()
    shop = Key("default", "shop")
    assert api.get(SERVICE, shop)["status"]["loadBalancer"]["ingress"][0]["ip"] == "203.0.113.0"
    api.patch(SERVICE, shop, {"metadata": {"annotations": {PAUSED: "true"}}})
    await wide.converged()
    api.delete(IP_CLAIM, claim_of("shop-lb"))
    create_neighbor(api)
    await wide.converged()
    assert ledger(api) == {"203.0.113.0": "shop-lb"}

    api.patch(SERVICE, shop, {"metadata": {"annotations": {PAUSED: None}}})
    await wide.converged()
    assert api.get(IP_CLAIM, claim_of("shop-lb"))["status"]["address"] == "203.0.113.0"


def build_shop() -> Manifest:
    annotations = {"ipam.slipway.dev/pool": "public"}
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": LOAD_BALANCER_CLASS,
        "ports": [{"port": 80}],
    }
    return build_object(
        SERVICE, "shop", "default", metadata={"annotations": annotations}, spec=spec
    )


async def test_service_of_a_claim_in_another_realm_does_not_keep_the_address(
    api: FakeApi, wide: OperatorHarness
) -> None:
    for name, realm in (("public", "public"), ("inside", "inside")):
        api.create(build_pool(name, addresses=["203.0.113.0"], realm=realm, addressTargets="Allow"))
    claim = build_claim("theirs", poolRef={"name": "inside"}, **PUBLISHED)
    claim["metadata"]["namespace"] = "shop"
    api.create(claim)
    api.create(build_claim(**PUBLISHED))
    await wide.converged()
    kept = api.get(SERVICE, Key("shop", "theirs-ip"))
    api.delete(IP_CLAIM, claim_of("web"))
    await wide.eventually(lambda: ledger(api) == {"203.0.113.0": "theirs"}, "it is released")

    assert api.find(SERVICE, WEB_IP) is None
    assert uid_of(api.get(SERVICE, key_of(kept))) == uid_of(kept)


async def test_conflict_is_reported_before_the_wait_for_the_load_balancer() -> None:
    """The load balancer waits because another Service requested the address first."""
    metadata = {
        "labels": {MANAGED_BY: "ipam"},
        "annotations": {"metallb.io/loadBalancerIPs": "203.0.113.0"},
    }
    spec = {"type": "LoadBalancer", "ports": [{"port": 1}]}
    async with FakeApi() as api:
        for model in RESOURCES:
            api.register(build_crd(model))
        api.create(build_object(SERVICE, "left-ip", "default", metadata=metadata, spec=spec))
        api.create(build_pool(addressTargets="Allow"))
        api.create(build_claim(**PUBLISHED))
        async with OperatorHarness(OPERATOR, api.config) as harness:
            await harness.converged()

        assert reason(api, "web", "Announced") == "WaitingForLoadBalancer"
        assert reason(api, "web", "Bound") == "AddressConflict"
