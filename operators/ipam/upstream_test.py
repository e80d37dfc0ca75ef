"""Bugs of other address managers: restarts, caches that are behind, owners that went first."""

from __future__ import annotations

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Key, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.naming import FINALIZER
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import address

WEB = Key("default", "web")


async def test_restart_gives_the_only_address_to_nobody_else(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metallb/metallb#1774, cilium/cilium#43131: who waited got what was taken."""
    api.create(build_pool(addresses=["203.0.113.1"]))
    api.create(build_claim("first"))
    await harness.converged()
    api.create(build_claim("second"))
    await harness.converged()

    for _ in range(3):
        await harness.restart(crash=True)
        await harness.converged()
    assert (address(api, "first"), address(api, "second")) == ("203.0.113.1", "")


async def test_claims_back_to_back_get_two_addresses_though_the_cache_is_behind(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubernetes-sigs/cluster-api-ipam-provider-in-cluster#338."""
    api.create(build_pool())
    await harness.converged()
    api.watches.pause(IP_ALLOCATION)
    for name in ("a", "b", "c"):
        api.create(build_claim(name))
    await harness.eventually(lambda: all(address(api, name) for name in "abc"), "all are served")
    api.watches.resume(IP_ALLOCATION)
    await harness.converged()

    assert len({address(api, name) for name in "abc"}) == len(api.objects(IP_ALLOCATION)) == 3


async def test_claim_whose_target_went_first_can_be_deleted(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubernetes-sigs/cluster-api#10108, claims stayed once their cluster was gone."""
    service = build_object(SERVICE, "web", "default", spec={"ports": [{"port": 80}]})
    target = {"kind": "Service", "name": "web"}
    api.create(service)
    api.create(build_pool())
    api.create(build_claim(target=target, deletionPolicy="RefuseWhileAssigned"))
    await harness.converged()
    api.delete(IP_CLAIM, WEB)
    await harness.converged()
    kept = find_condition(api.get(IP_CLAIM, WEB), "Terminating")
    assert kept is not None and kept["reason"] == "StillAssigned"

    api.delete(SERVICE, WEB)
    api.delete(IP_POOL, Key("", "public"))
    await harness.converged()

    assert api.find(IP_CLAIM, WEB) is None
    assert api.objects(IP_ALLOCATION) == []


async def test_claim_made_anew_for_another_pool_keeps_nothing_of_the_first(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: harvester/harvester#6684, the address of the previous pool was never released.

    `spec.poolRef` cannot be changed, so that another pool is another claim, of the same name.
    """
    api.create(build_pool())
    api.create(build_pool("inner", addresses=["10.0.0.1"]))
    api.create(build_claim(sticky="Prefer"))
    await harness.converged()

    api.delete(IP_CLAIM, WEB)
    await harness.eventually(lambda: api.find(IP_CLAIM, WEB) is None, "the claim goes at once")
    api.create(build_claim(poolRef={"name": "inner"}))
    await harness.converged()

    entries = [each["spec"]["address"] for each in api.objects(IP_ALLOCATION)]
    assert (address(api, "web"), entries) == ("10.0.0.1", ["10.0.0.1"])


@pytest.mark.parametrize("lost", [False, True])
async def test_status_that_is_not_written_leaves_the_address_with_its_claim(
    api: FakeApi, harness: OperatorHarness, lost: bool
) -> None:
    """Upstream: harvester/seeder#6: between two statuses an address belonged to two."""
    api.create(build_pool())
    await harness.converged()
    api.fail("patch", IP_CLAIM, name="a", subresource="status", times=None, lost_response=lost)
    api.create(build_claim("a"))
    await harness.eventually(lambda: len(api.objects(IP_ALLOCATION)) == 1, "a is in the ledger")
    api.create(build_claim("b"))
    await harness.eventually(lambda: bool(address(api, "b")), "b is served")
    await harness.restart(crash=True)
    api.faults.clear()
    await harness.eventually(lambda: bool(address(api, "a")), "a is told")

    assert (address(api, "a"), address(api, "b")) == ("203.0.113.0", "203.0.113.1")
    assert len(api.objects(IP_ALLOCATION)) == 2


async def test_finalizer_is_there_before_anything_is_made(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubeovn/kube-ovn#5115: added and soon deleted, the address leaked."""
    api.create(build_pool(addressTargets="Allow"))
    await harness.converged()
    marked: list[bool] = []

    def is_made(change: object) -> None:
        claim = api.find(IP_CLAIM, WEB)
        if api.objects(IP_ALLOCATION) and claim is not None:
            marked.append(FINALIZER in claim["metadata"].get("finalizers", []))

    api.store.listeners.append(is_made)
    target = {"kind": "Address", "address": "10.0.0.7"}
    api.create(build_claim(target=target, ports=[{"name": "https", "port": 443}]))
    await harness.eventually(lambda: bool(api.objects(IP_ALLOCATION)), "it is in the ledger")
    api.delete(IP_CLAIM, WEB)
    await harness.converged()

    assert marked and all(marked)
    assert api.objects(IP_ALLOCATION) == []


async def test_what_leads_to_a_target_is_made_again_by_the_next_process(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubeovn/kube-ovn#4987, #2090: a gateway that restarted knew no addresses."""
    api.create(build_pool(addressTargets="Allow"))
    target = {"kind": "Address", "address": "10.0.0.7"}
    api.create(build_claim(target=target, ports=[{"name": "https", "port": 443}]))
    await harness.converged()
    await harness.stop()
    for kind, name in ((SERVICE, "web-ip"), (ENDPOINT_SLICE, "web-ip-v4")):
        api.delete(kind, Key("default", name))

    await harness.restart()
    await harness.converged()

    (endpoint,) = api.get(ENDPOINT_SLICE, Key("default", "web-ip-v4"))["endpoints"]
    assert endpoint["addresses"] == ["10.0.0.7"]
    assert api.get(SERVICE, Key("default", "web-ip"))
    assert address(api, "web") == "203.0.113.0"


async def test_address_that_another_leader_took_meanwhile_is_passed_over(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubernetes/kubernetes#135333, a collision ended the allocation with an error."""
    api.create(build_pool())
    api.create(build_claim("theirs"))
    await harness.converged()
    entry = api.get(IP_ALLOCATION, Key("", "public-ip4-203-0-113-0"))
    api.watches.pause(IP_ALLOCATION)
    theirs = {**entry["spec"], "address": "203.0.113.1"}
    api.create(build_object(IP_ALLOCATION, "public-ip4-203-0-113-1", spec=theirs))

    api.create(build_claim("ours"))
    await harness.eventually(lambda: bool(address(api, "ours")), "it is served all the same")

    assert address(api, "ours") == "203.0.113.2"
    assert not harness.failing
