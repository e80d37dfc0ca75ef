"""Addresses beside other Services, claims and tenants, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.kinds import ENDPOINT_SLICE, POD, SERVICE, Key, Manifest, build_object, uid_of
from libs.common.labels import INSTANCE as INSTANCE_LABEL
from libs.common.labels import MANAGED_BY, SERVICE_NAME
from libs.common.ownership import build_owner_reference
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.contracts.compute import INSTANCE
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.claim.resources import build_source_ranges
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.settings import Announcement
from operators.ipam.shown import claim_of, reason, writes

PORTS = [{"name": "https", "port": 443}]
PLAIN = {"kind": "Address", "address": "10.0.0.7"}
WEB_IP = Key("default", "web-ip")


def build_service(name: str, namespace: str = "default", **spec: Any) -> Manifest:
    fields = {"ports": [{"port": 443, "protocol": "TCP"}], **spec}
    return build_object(SERVICE, name, namespace, spec=fields)


def build_slice(service: str, address: str, pod: Manifest | None = None) -> Manifest:
    endpoint: Manifest = {"addresses": [address], "conditions": {"ready": True}}
    if pod is not None:
        metadata = pod["metadata"]
        endpoint["targetRef"] = {
            "kind": "Pod",
            **{name: metadata[name] for name in ("name", "namespace", "uid")},
        }
    return build_object(
        ENDPOINT_SLICE,
        f"{service}-x",
        "default",
        metadata={"labels": {SERVICE_NAME: service}},
        addressType="IPv4",
        endpoints=[endpoint],
        ports=[{"name": "", "protocol": "TCP", "port": 443}],
    )


def bound(api: FakeApi, name: str = "web") -> tuple[str, str, str]:
    found = find_condition(api.get(IP_CLAIM, claim_of(name)), "Bound") or {}
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


@pytest.mark.parametrize("namespace", ["default", "shop"])
async def test_claim_is_not_bound_while_another_service_has_its_address(
    api: FakeApi, namespace: str
) -> None:
    """CVE-2020-8554: kubernetes/kubernetes#97076."""
    thief = Key(namespace, "thief")
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default", "shop")
    ) as harness:
        api.create(build_pool(addressTargets="Allow"))
        api.create(build_claim(target=PLAIN, ports=PORTS))
        await harness.converged()
        assert bound(api)[:2] == ("True", "Bound")

        api.create(build_service("thief", namespace, externalIPs=["203.0.113.0"]))
        await harness.eventually(lambda: bound(api)[1] == "AddressConflict", "it is reported")
        assert ("thief" in bound(api)[2]) == (namespace == "default"), "names of others are secret"

        api.patch(SERVICE, thief, {"spec": {"externalIPs": None}})
        await harness.eventually(lambda: bound(api)[0] == "True", "it is over")
        ingress = {"ingress": [{"ip": "203.0.113.0"}]}
        api.patch_status(SERVICE, thief, {"loadBalancer": ingress})
        await harness.eventually(lambda: bound(api)[1] == "AddressConflict", "by its status")


async def test_service_of_the_namespace_may_share_the_address_by_ports(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_claim(target=PLAIN, ports=PORTS))
    udp = [{"port": 443, "protocol": "UDP"}]
    api.create(build_service("quic", externalIPs=["203.0.113.0"], ports=udp))
    await harness.converged()

    assert bound(api)[:2] == ("True", "Bound")


async def test_claims_at_each_others_service_are_refused(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_service("real"))
    api.create(build_slice("real", "10.0.0.7"))
    for name, target in (("a", "real"), ("b", "a-ip")):
        api.create(build_claim(name, target={"kind": "Service", "name": target}))
        await harness.converged()
    assert (bound(api, "a")[0], bound(api, "b")[1]) == ("True", "TargetNotAllowed")
    api.patch(IP_CLAIM, claim_of("a"), {"spec": {"target": {"name": "b-ip"}}})
    await harness.converged()
    mark = api.mark()
    await harness.restart()
    await harness.converged()

    assert writes(api, mark) == []
    refused = ("TargetNotAllowed", "TargetNotFound")
    assert bound(api, "a")[1] in refused
    assert bound(api, "b")[1] in refused


@pytest.mark.parametrize("forged", ["no pod", "another pod", "another namespace"])
async def test_written_endpoints_do_not_pass_a_pool_that_denies_plain_addresses(
    api: FakeApi, harness: OperatorHarness, forged: str
) -> None:
    api.create(build_pool())
    api.create(build_service("evil"))
    there = "kube-system" if forged == "another namespace" else "default"
    pod = api.create(
        build_object(POD, "dns", there, spec={"containers": [{"name": "c", "image": "x"}]})
    )
    address = "10.96.0.1" if forged == "another pod" else "10.0.0.9"
    api.patch_status(POD, Key(there, "dns"), {"podIPs": [{"ip": "10.0.0.9"}]})
    api.create(build_slice("evil", address, None if forged == "no pod" else pod))
    api.create(build_claim(target={"kind": "Service", "name": "evil"}))
    await harness.converged()

    assert bound(api)[:2] == ("False", "TargetNotAllowed")
    assert not any(each.get("endpoints") for each in slices(api))


async def test_pods_of_a_service_receive_traffic_in_a_pool_that_denies_plain_addresses(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_service("shop"))
    pod = api.create(
        build_object(POD, "shop-0", "default", spec={"containers": [{"name": "c", "image": "x"}]})
    )
    api.patch_status(POD, Key("default", "shop-0"), {"podIPs": [{"ip": "10.0.0.9"}]})
    api.create(build_slice("shop", "10.0.0.9", pod))
    api.create(build_claim(target={"kind": "Service", "name": "shop"}))
    await harness.converged()

    assert bound(api)[:2] == ("True", "Bound")


@pytest.mark.parametrize("successor", ["none", "of its name", "of another namespace"])
async def test_endpoint_is_removed_after_its_pod_is_gone(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, successor: str
) -> None:
    """A written EndpointSlice stays, and another pod can get the address.

    Kubernetes gives the address of a deleted pod to any other pod.
    """
    monkeypatch.setattr("operators.ipam.claim.observe.TRUST_SECONDS", 0.2)
    monkeypatch.setattr("operators.ipam.claim.pods.TRUST_SECONDS", 0.2)
    fields = {"containers": [{"name": "c", "image": "x"}]}
    api.create(build_pool())
    api.create(build_service("evil"))
    pod = api.create(build_object(POD, "own", "default", spec=fields))
    api.patch_status(POD, Key("default", "own"), {"podIPs": [{"ip": "10.0.0.9"}]})
    api.create(build_slice("evil", "10.0.0.9", pod))
    api.create(build_claim(target={"kind": "Service", "name": "evil"}))
    async with OperatorHarness(OPERATOR, api.config, watch_namespaces=("default",)) as harness:
        await harness.eventually(lambda: bound(api)[0] == "True", "it is a pod")

        api.vanish(POD, Key("default", "own"))
        if successor != "none":
            key = Key("default", "own") if successor == "of its name" else Key("victim", "db")
            api.create(build_object(POD, key.name, key.namespace, spec=fields))
            api.patch_status(POD, key, {"podIPs": [{"ip": "10.0.0.9"}]})
        await harness.eventually(lambda: bound(api)[1] == "TargetNotAllowed", "its pod is gone")
        assert not any(each.get("endpoints") for each in slices(api))


def slices(api: FakeApi) -> list[Manifest]:
    """Return the slices of the claim `web`."""
    found = api.objects(ENDPOINT_SLICE)
    return [each for each in found if each["metadata"]["labels"][SERVICE_NAME] == "web-ip"]


async def test_load_balancer_admits_only_allowed_clients(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(addressTargets="Allow"))
    cidrs = ["198.51.100.0/24"]
    api.create(build_claim(target=PLAIN, ports=PORTS, allowedCidrs=cidrs))
    await harness.converged()
    assert api.get(SERVICE, WEB_IP)["spec"]["loadBalancerSourceRanges"] == cidrs

    api.patch(IP_CLAIM, claim_of("web"), {"spec": {"allowedCidrs": []}})
    await harness.converged()
    assert not api.get(SERVICE, WEB_IP)["spec"].get("loadBalancerSourceRanges")


def test_family_without_an_allowed_network_admits_nobody() -> None:
    cidrs = ["198.51.100.0/24"]

    assert build_source_ranges(cidrs, ["203.0.113.0", "2001:db8::1"]) == [*cidrs, "::1/128"]
    assert build_source_ranges(cidrs, ["203.0.113.0"]) == cidrs


@pytest.mark.parametrize("announcement", [Announcement.EXTERNAL_IPS, Announcement.NONE])
async def test_allowed_clients_that_nothing_enforces_route_nothing(
    api: FakeApi, announcement: Announcement
) -> None:
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_claim(target=PLAIN, ports=PORTS, allowedCidrs=["198.51.100.0/24"]))
    async with OperatorHarness(OPERATOR, api.config, announcement=announcement) as harness:
        await harness.converged()

    assert bound(api)[:2] == ("False", "AllowedCIDRsUnsupported")
    assert api.objects(SERVICE) == []


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "Instance", "name": "b"},
        {"kind": "Service", "name": "a"},
        {"kind": "Address", "name": None, "address": "10.0.0.7"},
    ],
    ids=lambda target: target["kind"],
)
async def test_claim_that_moved_to_another_target_no_longer_belongs_to_its_instance(
    api: FakeApi, harness: OperatorHarness, target: Manifest
) -> None:
    """Otherwise the address would be released with the first machine."""
    owner = {"metadata": {"name": "a", "uid": "a-uid"}}
    claim = build_claim("a-public", target={"kind": "Instance", "name": "a"})
    claim["metadata"]["ownerReferences"] = [build_owner_reference(INSTANCE, owner)]
    claim["metadata"]["labels"] = {MANAGED_BY: "compute", INSTANCE_LABEL: "a", "x": "y"}
    api.collector.pause()
    api.create(build_pool())
    api.create(claim)
    await harness.converged()
    key = claim_of("a-public")
    assert api.get(IP_CLAIM, key)["metadata"]["ownerReferences"]

    api.patch(IP_CLAIM, key, {"spec": {"target": target}})
    await harness.converged()
    metadata = api.get(IP_CLAIM, key)["metadata"]
    assert not metadata.get("ownerReferences")
    assert metadata["labels"] == {"x": "y"}
    assert reason(api, "a-public") == "Allocated"


@pytest.mark.apiserver
async def test_family_that_the_cluster_does_not_serve_keeps_no_other_from_its_target(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    """The API server has Services of IPv4 only. Upstream: metallb/metallb#2482, #2724."""
    await serve(kube_client, *RESOURCES)
    four, six = f"{kube_namespace}-four", f"{kube_namespace}-six"
    allow = {"addressTargets": "Allow", "realm": kube_namespace.replace("-", "")}
    await kube_client.create(IP_POOL, build_pool(four, **allow))
    pool = build_pool(six, family="IPv6", addresses=["2001:db8::1"], **allow)
    await kube_client.create(IP_POOL, pool)
    claim = build_claim(
        poolRef={"name": four}, secondary={"poolRef": {"name": six}}, target=PLAIN, ports=PORTS
    )
    claim["metadata"]["namespace"] = kube_namespace
    await kube_client.create(IP_CLAIM, claim)
    uids = set()
    for class_ in ("", "a.example/b", "c.d/e"):
        async with OperatorHarness(
            OPERATOR,
            kube_apiserver.config,
            watch_namespaces=(kube_namespace,),
            announcement=Announcement.CILIUM,
            load_balancer_class=class_,
        ) as harness:
            await harness.converged()
        service = await kube_client.get(SERVICE, Key(kube_namespace, "web-ip"))
        uids.add(uid_of(service))
        held = await kube_client.get(IP_CLAIM, Key(kube_namespace, "web"))
        condition = find_condition(held, "Bound") or {}
        assert service["spec"]["ipFamilies"] == ["IPv4"]
        assert service["spec"].get("loadBalancerClass", "") == class_
        assert condition["reason"] == "WaitingForLoadBalancer", condition
    assert len(uids) == 1
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.0"}]}}}
    await kube_client.patch(SERVICE, Key(kube_namespace, "web-ip"), ingress, subresource="status")
    async with OperatorHarness(
        OPERATOR,
        kube_apiserver.config,
        watch_namespaces=(kube_namespace,),
        announcement=Announcement.CILIUM,
        load_balancer_class="c.d/e",
    ) as harness:
        await harness.converged()
    held = await kube_client.get(IP_CLAIM, Key(kube_namespace, "web"))
    condition = find_condition(held, "Bound") or {}
    assert (condition["status"], condition["reason"]) == ("True", "FamilyNotServed")
    assert "2001:db8::1 routes no traffic" in condition["message"]
