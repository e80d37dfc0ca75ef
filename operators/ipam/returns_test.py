"""Addresses are released, over HTTP, as a user would try it."""

from __future__ import annotations

from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Key, build_object, key_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import (
    POOL,
    address,
    capacity,
    claim_of,
    condition_of,
    ledger,
    reason,
    return_first,
)


async def test_address_rests_before_somebody_else_gets_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: cluster-api-ipam-provider-in-cluster#332; the claim is deleted immediately."""
    api.create(build_pool(addresses=["203.0.113.0"], reuseGraceSeconds=3600))
    api.create(build_claim("a"))
    await harness.converged()
    api.delete(IP_CLAIM, claim_of("a"))
    await harness.converged()
    api.create(build_claim("b"))
    await harness.converged()

    assert api.find(IP_CLAIM, claim_of("a")) is None
    assert reason(api, "b") == "PoolExhausted"
    assert capacity(api)["quarantined"] == 1
    assert "nextRelease" in api.get(IP_POOL, POOL)["status"]

    api.patch(IP_POOL, POOL, {"spec": {"reuseGraceSeconds": 0}})
    await harness.converged()
    assert ledger(api) == {"203.0.113.0": "b"}


async def test_address_that_rests_goes_back_to_the_claim_of_the_same_name(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(reuseGraceSeconds=3600))
    for name in ("a", "b"):
        api.create(build_claim(name))
        await harness.converged()
    api.delete(IP_CLAIM, claim_of("b"))
    await harness.converged()
    api.create(build_claim("c"))
    api.create(build_claim("b"))
    await harness.converged()

    assert address(api, "b") == "203.0.113.1"
    assert address(api, "c") == "203.0.113.2"


async def test_address_whose_rest_cannot_be_ended_does_not_keep_others_waiting(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """A policy of the cluster may forbid to delete entries of the ledger."""
    api.create(build_pool(reuseGraceSeconds=3600))
    api.create(build_claim("a"))
    await harness.converged()
    api.delete(IP_CLAIM, claim_of("a"))
    await harness.converged()
    refusal = api.fail("delete", IP_ALLOCATION, status=403, times=None)
    api.create(build_claim("a"))
    api.create(build_claim("b"))
    await harness.eventually(lambda: address(api, "b") == "203.0.113.1", "the other is served")
    await harness.eventually(lambda: reason(api, "a") == "AllocationFailed", "it is told")

    refusal.release()
    await harness.eventually(lambda: address(api, "a") == "203.0.113.0", "it is tried again")


async def test_claim_made_and_deleted_at_once_leaks_nothing(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metal3-io/ip-address-manager#694, harvester#7449."""
    api.create(build_pool())
    for _ in range(5):
        api.create(build_claim())
        api.delete(IP_CLAIM, claim_of("web"))
        await harness.converged()
    api.create(build_claim())
    await harness.converged()

    assert list(ledger(api).values()) == ["web"]


async def test_claim_that_went_while_nobody_looked_gives_its_address_back(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubeovn/kube-ovn#4304; a finalizer taken off by hand is no different."""
    api.create(build_pool())
    api.create(build_claim())
    await harness.converged()
    await harness.stop()
    api.patch(IP_CLAIM, claim_of("web"), {"metadata": {"finalizers": None}})
    api.delete(IP_CLAIM, claim_of("web"))
    api.create(build_claim("new", address="203.0.113.0"))
    await harness.restart()
    await harness.converged()

    assert ledger(api) == {"203.0.113.0": "new"}


async def test_entry_of_an_address_in_use_cannot_be_deleted(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_claim())
    await harness.converged()
    name = Key("", "public-ip4-203-0-113-0")
    api.delete(IP_ALLOCATION, name)
    await harness.converged()
    assert condition_of(api.get(IP_ALLOCATION, name), "Terminating") == "True"

    api.delete(IP_CLAIM, claim_of("web"))
    await harness.converged()
    assert ledger(api) == {}


async def test_lost_entry_is_made_again_for_the_same_claim(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_claim("a"))
    await harness.converged()
    name = Key("", "public-ip4-203-0-113-0")
    api.patch(IP_ALLOCATION, name, {"metadata": {"finalizers": None}})
    api.delete(IP_ALLOCATION, name)
    api.create(build_claim("b", priority=1000))
    await harness.converged()

    assert ledger(api) == {"203.0.113.0": "a", "203.0.113.1": "b"}
    assert reason(api, "a") == "Allocated"


async def test_second_entry_of_one_claim_goes_and_the_address_stays(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Two leaders may each make an entry; what the status says first is what counts."""
    api.create(build_pool())
    api.create(build_claim())
    await harness.converged()
    entry = api.get(IP_ALLOCATION, Key("", "public-ip4-203-0-113-0"))
    spec = {**entry["spec"], "address": "203.0.113.3"}
    api.create(build_object(IP_ALLOCATION, "public-ip4-203-0-113-3", spec=spec))
    await harness.converged()

    assert ledger(api) == {"203.0.113.0": "web"}
    assert address(api, "web") == "203.0.113.0"


async def test_address_that_was_lost_for_good_is_not_said_to_lead_anywhere(
    api: FakeApi, harness: OperatorHarness
) -> None:
    target = {"kind": "Address", "address": "10.0.0.7"}
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_pool("twin"))
    api.create(build_claim(target=target, ports=[{"name": "https", "port": 443}]))
    await harness.converged()
    assert reason(api, "web", "Bound") == "Bound"
    await harness.stop()
    name = Key("", "public-ip4-203-0-113-0")
    spec = api.get(IP_ALLOCATION, name)["spec"]
    api.patch(IP_ALLOCATION, name, {"metadata": {"finalizers": None}})
    api.delete(IP_ALLOCATION, name)
    other = api.create(build_claim("other", poolRef={"name": "twin"}))["metadata"]
    claim = {"namespace": "default", "name": "other", "uid": other["uid"]}
    spec = {**spec, "poolRef": {"name": "twin", "uid": "twin"}, "claimRef": claim}
    api.create(build_object(IP_ALLOCATION, name.name, spec=spec))
    await harness.restart()
    await harness.converged()

    assert address(api, "other") == "203.0.113.0"
    assert reason(api, "web") == "AddressLost"
    assert reason(api, "web", "Bound") == "NoAddress"
    assert api.objects(SERVICE) == []


async def test_address_that_is_in_no_pool_is_not_given_for_a_status(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.watches.pause(IP_CLAIM)
    api.create(build_claim())
    api.patch_status(IP_CLAIM, claim_of("web"), {"address": "8.8.8.8"})
    api.watches.resume(IP_CLAIM)
    await harness.converged()

    assert reason(api, "web") == "AddressLost"
    assert ledger(api) == {}


async def test_claims_that_are_restored_with_the_ledger_get_their_addresses_back(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """A backup brings objects with new UIDs and without statuses, in any order."""
    api.create(build_pool(reuseGraceSeconds=600))
    for name in ("a", "b", "c"):
        api.create(build_claim(name))
        await harness.converged()
    before, entries = ledger(api), api.objects(IP_ALLOCATION)
    await harness.stop()
    for name in ("a", "b", "c"):
        api.patch(IP_CLAIM, claim_of(name), {"metadata": {"finalizers": None}})
        if api.find(IP_CLAIM, claim_of(name)):
            api.delete(IP_CLAIM, claim_of(name))
    for entry in entries:
        api.patch(IP_ALLOCATION, key_of(entry), {"metadata": {"finalizers": None}})
        api.delete(IP_ALLOCATION, key_of(entry))
    for entry in entries:
        api.create(build_object(IP_ALLOCATION, key_of(entry).name, spec=entry["spec"]))
    for name in ("c", "b", "a"):
        api.create(build_claim(name))
    await harness.restart()
    await harness.converged()

    assert ledger(api) == before
    assert [address(api, name) for name in ("a", "b", "c")] == sorted(before)


async def test_next_release_is_the_earliest_of_those_that_rest(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(reuseGraceSeconds=3600))
    for name in ("a", "b"):
        api.create(build_claim(name))
    await harness.converged()
    for name in ("a", "b"):
        api.delete(IP_CLAIM, claim_of(name))
    await harness.converged()
    # The end of a quarantine is derived from this time and the pool's reuseGraceSeconds.
    for number, released in enumerate(("2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z")):
        entry = Key("", f"public-ip4-203-0-113-{number}")
        api.patch_status(IP_ALLOCATION, entry, {"releasedAt": released})
    earliest = "2030-01-01T01:00:00Z"
    await harness.eventually(
        lambda: api.get(IP_POOL, POOL)["status"].get("nextRelease") == earliest, "the earliest"
    )

    assert capacity(api)["quarantined"] == 2


async def test_namespace_with_a_quota_waits_for_its_own_release(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(quotaPerNamespace=1))
    for name in ("a", "b"):
        api.create(build_claim(name))
        await harness.converged()
    assert (address(api, "a"), reason(api, "b")) == ("203.0.113.0", "QuotaExceeded")
    assert "queuePosition" not in api.get(IP_CLAIM, claim_of("b"))["status"]

    api.delete(IP_CLAIM, claim_of("a"))
    await harness.eventually(lambda: bool(address(api, "b")), "the quota has room again")


async def test_deleted_claim_lists_its_children_again_if_the_listing_is_older_than_the_cache(
    api: FakeApi, harness: OperatorHarness
) -> None:
    target = {"kind": "Address", "address": "10.0.0.7"}
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_claim(target=target, ports=[{"name": "https", "port": 443}]))
    await harness.converged()
    outdated = api.objects(ENDPOINT_SLICE)
    assert len(outdated) == 1
    with return_first(ENDPOINT_SLICE, outdated) as listings:
        api.delete(IP_CLAIM, claim_of("web"))
        await harness.eventually(lambda: api.find(IP_CLAIM, claim_of("web")) is None)

    assert not listings
    assert api.objects(ENDPOINT_SLICE) == []
