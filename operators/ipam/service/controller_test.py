"""Services of the class of ipam get an address of a pool, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.kinds import EVENT, SERVICE, Key, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import ledger, reassign, writes

SHOP, CLAIM = Key("default", "shop"), Key("default", "shop-lb")
CLASS = "slipway.dev/ipam"


def build_service(name: str = "shop", *, pool: str = "", second: str = "", **spec: Any) -> Manifest:
    notes = {"ipam.slipway.dev/pool": pool} if pool else {}
    if second:
        notes["ipam.slipway.dev/secondary-pool"] = second
    fields = {"type": "LoadBalancer", "loadBalancerClass": CLASS, "ports": [{"port": 80}], **spec}
    return build_object(SERVICE, name, "default", metadata={"annotations": notes}, spec=fields)


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator with Services of its class, and a default pool."""
    async with OperatorHarness(
        OPERATOR,
        api.config,
        watch_namespaces=("default",),
        load_balancer=True,
        default_pool="public",
    ) as harness:
        yield harness


def ingress(api: FakeApi, key: Key = SHOP) -> list[str]:
    shown = api.get(SERVICE, key).get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return [each["ip"] for each in shown]


def reasons(api: FakeApi) -> set[str]:
    """Return the reasons of the Events about the Service `shop`."""
    events = [each for each in api.objects(EVENT) if each["regarding"]["name"] == "shop"]
    return {str(each["reason"]) for each in events}


async def test_service_gets_an_address_of_the_pool_it_names(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_pool("inner", addresses=["10.9.0.1"]))
    api.create(build_service())
    api.create(build_service("inside", pool="inner"))
    await harness.converged()

    assert ingress(api) == ["203.0.113.0"]
    assert ingress(api, Key("default", "inside")) == ["10.9.0.1"]
    assert ledger(api) == {"203.0.113.0": "shop-lb", "10.9.0.1": "inside-lb"}
    mark = api.mark()
    await harness.restart()
    await harness.converged()
    assert writes(api, mark) == []


async def test_corrected_request_of_a_service_without_an_address_is_applied(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metallb/metallb#448, #471."""
    api.create(build_pool())
    api.create(build_service(pool="pubilc"))
    await harness.converged()
    assert ingress(api) == []

    pool = {"metadata": {"annotations": {"ipam.slipway.dev/pool": "public"}}}
    api.patch(SERVICE, SHOP, {**pool, "spec": {"loadBalancerIP": "203.0.113.9"}})
    await harness.converged()
    assert ingress(api) == [], "the pool does not have this address"
    assert "AddressOutOfRange" in reasons(api)
    api.patch(SERVICE, SHOP, {"spec": {"loadBalancerIP": "203.0.113.2"}})
    await harness.converged()
    assert ingress(api) == ["203.0.113.2"]


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {"ipam.slipway.dev/pool": "inner"}}},
        {"spec": {"loadBalancerIP": "203.0.113.3"}},
    ],
)
async def test_request_that_an_address_in_use_cannot_satisfy_is_reported(
    api: FakeApi, harness: OperatorHarness, change: dict[str, Any]
) -> None:
    api.create(build_pool())
    api.create(build_service(pool="public"))
    await harness.converged()
    assert "RequestNotApplied" not in reasons(api)

    api.patch(SERVICE, SHOP, change)
    await harness.eventually(lambda: "RequestNotApplied" in reasons(api), "the user sees it")
    assert ingress(api) == ["203.0.113.0"]


async def test_second_pool_is_corrected_until_there_is_a_second_address(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_pool("six", addresses=["2001:db8::/126"], family="IPv6"))
    api.create(build_pool("sieben", addresses=["2001:db8:7::/126"], family="IPv6"))
    families: dict[str, Any] = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    api.create(build_service(second="sechs", **families))
    await harness.converged()
    uid = api.get(IP_CLAIM, CLAIM)["metadata"]["uid"]
    assert ingress(api) == ["203.0.113.0"]

    for second, event in (("", ""), ("public", "ClaimRefused"), ("six", "")):
        notes = {"ipam.slipway.dev/secondary-pool": second or None}
        api.patch(SERVICE, SHOP, {"metadata": {"annotations": notes}})
        await harness.converged()
        assert event in {"", *reasons(api)}
    assert len(ingress(api)) == 2
    assert ingress(api)[0] == "203.0.113.0"
    assert api.get(IP_CLAIM, CLAIM)["metadata"]["uid"] == uid

    notes = {"ipam.slipway.dev/secondary-pool": "sieben"}
    api.patch(SERVICE, SHOP, {"metadata": {"annotations": notes}})
    await harness.eventually(lambda: "RequestNotApplied" in reasons(api), "it is too late")
    assert len(ledger(api)) == 2


async def test_changed_default_pool_is_for_new_services(api: FakeApi) -> None:
    api.create(build_pool())
    api.create(build_pool("inner", addresses=["10.9.0.1", "10.9.0.2"]))
    options: dict[str, Any] = {"watch_namespaces": ("default",), "load_balancer": True}
    api.create(build_service())
    async with OperatorHarness(OPERATOR, api.config, default_pool="public", **options) as harness:
        await harness.converged()
        api.create(build_service("late", pool="absent"))
        await harness.converged()
        api.patch(SERVICE, Key("default", "late"), {"metadata": {"annotations": None}})
    async with OperatorHarness(OPERATOR, api.config, default_pool="inner", **options) as harness:
        await harness.converged()

        assert reasons(api) == set()
        assert ingress(api) == ["203.0.113.0"]
        assert len(ingress(api, Key("default", "late"))) == 1


async def test_address_is_released_with_the_service(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_service())
    await harness.converged()
    api.delete(SERVICE, SHOP)
    await harness.eventually(lambda: api.objects(IP_ALLOCATION) == [], "the address is back")

    assert api.find(IP_CLAIM, CLAIM) is None


async def test_service_that_becomes_another_type_gives_its_address_back(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_service())
    await harness.converged()
    change = {"type": "ClusterIP", "loadBalancerClass": None}
    api.patch(SERVICE, SHOP, {"spec": change})
    api.patch_status(SERVICE, SHOP, {"loadBalancer": None})  # as the API server does
    await harness.eventually(lambda: api.objects(IP_ALLOCATION) == [], "the address is back")

    assert api.find(IP_CLAIM, CLAIM) is None


@pytest.mark.parametrize(
    "spec", [{"type": "ClusterIP", "loadBalancerClass": None}, {"loadBalancerClass": None}]
)
async def test_service_of_another_class_is_left_alone(
    api: FakeApi, harness: OperatorHarness, spec: dict[str, Any]
) -> None:
    api.create(build_pool())
    service = build_service()
    service["spec"] = {k: v for k, v in {**service["spec"], **spec}.items() if v is not None}
    api.create(service)
    await harness.converged()

    # The load balancer of the cluster serves what has no class, with an address of its own.
    assert "203.0.113.0" not in ingress(api)
    assert (api.objects(IP_CLAIM), ledger(api)) == ([], {})


async def test_service_of_the_class_in_the_settings_is_served(api: FakeApi) -> None:
    """Cilium announces Services of its own classes only."""
    api.create(build_pool())
    api.create(build_service())
    api.create(build_service("l2", loadBalancerClass="io.cilium/l2-announcer"))
    async with OperatorHarness(
        OPERATOR,
        api.config,
        watch_namespaces=("default",),
        load_balancer=True,
        default_pool="public",
        service_class="io.cilium/l2-announcer",
    ) as harness:
        await harness.converged()

        assert ingress(api, Key("default", "l2")) == ["203.0.113.0"]
        assert ingress(api) == []


async def test_kube_vip_is_told_the_address_by_its_annotation(api: FakeApi) -> None:
    """It announces what the annotation names and does not read the status."""
    api.create(build_pool())
    api.create(build_service())
    name = "kube-vip.io/loadbalancerIPs"
    async with OperatorHarness(
        OPERATOR,
        api.config,
        watch_namespaces=("default",),
        load_balancer=True,
        default_pool="public",
        announcement="KubeVip",
    ) as harness:
        await harness.converged()
        assert ingress(api) == ["203.0.113.0"]
        assert api.get(SERVICE, SHOP)["metadata"]["annotations"][name] == "203.0.113.0"

        foreign = {"metadata": {"annotations": {name: "203.0.113.9"}}}
        api.patch(SERVICE, SHOP, foreign)
        await harness.converged()
        shown = api.get(SERVICE, SHOP)["metadata"]["annotations"][name]
        assert shown == "203.0.113.0", "the ledger does not have the other one for this Service"


async def test_service_waits_for_an_address_in_the_queue(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(addresses=["203.0.113.9"]))
    api.create(build_claim("first"))
    await harness.converged()
    api.create(build_service())
    await harness.converged()
    assert ingress(api) == []
    await harness.eventually(lambda: "PoolExhausted" in reasons(api), "the Service says why")

    api.delete(IP_CLAIM, Key("default", "first"))
    await harness.eventually(lambda: ingress(api) == ["203.0.113.9"], "it is served")


async def test_claim_of_somebody_else_is_not_used(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_claim("shop-lb"))
    await harness.converged()
    api.create(build_service())
    await harness.eventually(lambda: "NameTaken" in reasons(api), "it reports it")

    assert ingress(api) == []


async def test_address_of_another_family_is_not_assigned(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::/64"]))
    api.create(build_service(pool="six", ipFamilies=["IPv4"]))
    await harness.eventually(lambda: "FamilyMismatch" in reasons(api), "told")

    assert ingress(api) == []


async def test_service_of_two_families_gets_an_address_of_each(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::1"]))
    families: dict[str, Any] = {
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack",
    }
    api.create(build_service(second="six", **families))
    await harness.converged()
    assert ingress(api) == ["203.0.113.0", "2001:db8::1"]
    assert ledger(api) == {"203.0.113.0": "shop-lb", "2001:db8::1": "shop-lb"}

    api.create(build_service("waits", second="six", **families))
    await harness.converged()
    assert ingress(api, Key("default", "waits")) == ["203.0.113.1"]
    api.delete(SERVICE, SHOP)
    waits = Key("default", "waits")
    await harness.eventually(lambda: ingress(api, waits) == ["203.0.113.1", "2001:db8::1"])


async def test_second_pool_of_the_same_name_is_refused_with_an_event(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The API server says what is wrong with the claim; the fake one evaluates no rule in CEL."""
    api.create(build_pool())
    refusal = api.fail("create", IP_CLAIM, status=422, times=None, message="must name another pool")
    api.create(build_service(second="public"))
    await harness.eventually(lambda: "ClaimRefused" in reasons(api), "the Service says why")
    refusal.release()


async def test_service_that_is_being_deleted_keeps_its_address(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """A finalizer of somebody else keeps it, and kube-proxy serves it until it is gone."""
    api.create(build_pool(addresses=["203.0.113.9"]))
    service = build_service()
    service["metadata"]["finalizers"] = ["example.com/cleanup"]
    api.create(service)
    await harness.converged()
    api.delete(SERVICE, SHOP)
    api.create(build_claim("next"))
    await harness.converged()
    assert ledger(api) == {"203.0.113.9": "shop-lb"}
    assert ingress(api) == ["203.0.113.9"]

    api.patch(SERVICE, SHOP, {"metadata": {"finalizers": None}})
    await harness.eventually(lambda: ledger(api) == {"203.0.113.9": "next"}, "it is released")


async def test_address_that_another_claim_has_is_withdrawn(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(addresses=["203.0.113.9"]))
    api.create(build_service())
    await harness.converged()
    assert ingress(api) == ["203.0.113.9"]
    await harness.stop()
    reassign(api, "public-ip4-203-0-113-9", "other")
    await harness.restart()
    await harness.converged()

    assert ledger(api) == {"203.0.113.9": "other"}
    assert ingress(api) == []


@pytest.mark.apiserver
async def test_real_api_server_takes_the_status_and_shows_it(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    await serve(kube_client, *RESOURCES)
    await kube_client.create(IP_POOL, build_pool(kube_namespace, realm="services"))
    service = build_service(pool=kube_namespace)
    service["metadata"]["namespace"] = kube_namespace
    await kube_client.create(SERVICE, service)
    key = Key(kube_namespace, "shop")
    async with OperatorHarness(
        OPERATOR, kube_apiserver.config, watch_namespaces=(kube_namespace,), load_balancer=True
    ) as harness:
        await harness.converged()

    live = await kube_client.get(SERVICE, key)
    assert live["status"]["loadBalancer"] == {"ingress": [{"ip": "203.0.113.0", "ipMode": "VIP"}]}
    claim = await kube_client.get(IP_CLAIM, Key(kube_namespace, "shop-lb"))
    assert claim["metadata"]["ownerReferences"][0]["uid"] == live["metadata"]["uid"]
