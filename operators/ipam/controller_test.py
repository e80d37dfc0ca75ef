"""Pools, claims and the ledger over HTTP, as a user would try them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import NAMESPACE, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import writes_of_the_operator
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool

POOL = Key("", "public")


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run an API server that knows the kinds of ipam, and no KubeVirt."""
    async with FakeApi() as api:
        for model in RESOURCES:
            api.register(build_crd(model))
        yield api


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator for namespace default."""
    async with OperatorHarness(OPERATOR, api.config, watch_namespaces=("default",)) as harness:
        yield harness


def claim_of(name: str) -> Key:
    return Key("default", name)


def address(api: FakeApi, name: str) -> str:
    claim = api.get(IP_CLAIM, claim_of(name))
    return str((claim.get("status") or {}).get("address", ""))


def reason(api: FakeApi, name: str, condition: str = "Ready") -> str:
    found = find_condition(api.get(IP_CLAIM, claim_of(name)), condition)
    return str(found["reason"]) if found else ""


def position(api: FakeApi, name: str) -> Any:
    return (api.get(IP_CLAIM, claim_of(name)).get("status") or {}).get("queuePosition")


def capacity(api: FakeApi, name: str = "public") -> Any:
    return api.get(IP_POOL, Key("", name))["status"]["capacity"]


def ledger(api: FakeApi) -> dict[str, str]:
    return {
        each["spec"]["address"]: each["spec"]["claimRef"]["name"]
        for each in api.objects(IP_ALLOCATION)
    }


def condition_of(manifest: Manifest, condition_type: str) -> str:
    found = find_condition(manifest, condition_type)
    return str(found["status"]) if found else ""


def writes(api: FakeApi, mark: int) -> list[str]:
    """Return the writes of the operator since a mark that changed something."""
    return sorted(
        f"{each.verb} {each.kind.kind if each.kind else ''} {each.subresource}".rstrip()
        for each in writes_of_the_operator(api, mark)
    )


# Giving.


async def test_claims_get_addresses_and_the_others_know_their_place(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    for number in range(6):
        api.create(build_claim(f"c{number}"))
        await harness.settled()

    assert [address(api, f"c{number}") for number in range(4)] == [
        f"203.0.113.{number}" for number in range(4)
    ]
    assert sorted(position(api, f"c{number}") for number in (4, 5)) == [1, 2]
    assert reason(api, "c4") == "PoolExhausted"
    assert capacity(api) == {
        "total": "4",
        "free": "0",
        "allocated": 4,
        "quarantined": 0,
        "outOfRange": 0,
        "waiting": 2,
    }
    assert condition_of(api.get(IP_POOL, POOL), "Exhausted") == "True"


async def test_release_serves_the_head_of_the_queue_and_moves_nobody(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metallb/metallb#2723, a release moved the addresses of others."""
    api.create(build_pool())
    for number in range(6):
        api.create(build_claim(f"c{number}", priority=int(number == 5)))
    await harness.settled()
    before = ledger(api)
    assert before["203.0.113.0"] == "c5", "priority goes first"
    waiting = next(f"c{n}" for n in range(5) if position(api, f"c{n}") == 1)

    api.delete(IP_CLAIM, claim_of("c5"))
    await harness.settled()

    assert ledger(api) == {**before, "203.0.113.0": waiting}
    assert sorted(position(api, f"c{n}") or 0 for n in range(5)) == [0, 0, 0, 0, 1]


async def test_allocation_takes_three_writes_and_one_a_pass(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    await harness.settled()
    mark = api.mark()

    api.create(build_claim())
    await harness.settled()

    assert writes(api, mark) == [
        "create IPAllocation",
        "patch IPClaim",
        "patch IPClaim status",
        "patch IPPool status",
    ], "that of the pool is shared by all claims of a pass"


async def test_claim_without_a_pool_waits_for_it(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_claim())
    await harness.settled()
    assert reason(api, "web") == "PoolNotFound"

    api.create(build_pool())
    await harness.settled()
    assert address(api, "web") == "203.0.113.0"

    assert reason(api, "web") == "Allocated"


async def test_two_wishes_for_one_address_and_one_wins(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metal3-io/ip-address-manager#1440."""
    api.create(build_pool())
    for name in ("a", "b"):
        api.create(build_claim(name, address="203.0.113.2"))
    api.create(build_claim("outside", address="198.51.100.1"))
    await harness.settled()

    assert ledger(api) == {"203.0.113.2": "a"} or ledger(api) == {"203.0.113.2": "b"}
    assert sorted(reason(api, name) for name in ("a", "b")) == ["AddressTaken", "Allocated"]
    assert reason(api, "outside") == "AddressOutOfRange"
    assert position(api, "outside") is None


async def test_dual_stack_claim_gets_one_of_each(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::/64"]))
    api.create(build_claim(secondary={"poolRef": {"name": "six"}}))
    await harness.settled()

    status = api.get(IP_CLAIM, claim_of("web"))["status"]
    assert (status["address"], status["secondaryAddress"]) == ("203.0.113.0", "2001:db8::1")
    assert reason(api, "web") == "Allocated"
    api.delete(IP_CLAIM, claim_of("web"))
    await harness.settled()
    assert ledger(api) == {}


async def test_claim_of_two_pools_of_one_family_is_told_so(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_pool("other", addresses=["198.51.100.0/24"]))
    api.create(build_claim(secondary={"poolRef": {"name": "other"}}))
    await harness.settled()

    assert reason(api, "web") == "FamilyMismatch"
    assert list(ledger(api).values()) == ["web"], "nothing of the second pool"


async def test_namespace_gets_addresses_once_its_labels_say_so(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(allowedNamespaces={"matchLabels": {"tier": "web"}}))
    api.create(build_claim())
    await harness.settled()
    assert reason(api, "web") == "NamespaceNotAllowed"

    api.patch(NAMESPACE, Key("", "default"), {"metadata": {"labels": {"tier": "web"}}})
    await harness.eventually(lambda: bool(address(api, "web")))


async def test_draining_pool_gives_nothing_and_takes_nothing(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_claim("a"))
    await harness.settled()
    # Kinds are watched by streams of their own: the claim is heard of before the pool drains.
    api.watches.pause(IP_POOL)
    api.patch(IP_POOL, POOL, {"spec": {"allocation": "Draining"}})
    api.create(build_claim("b"))
    await harness.eventually(lambda: reason(api, "b") == "PoolDraining", "the claim is told")
    api.watches.resume(IP_POOL)
    await harness.settled()

    assert (address(api, "a"), reason(api, "b")) == ("203.0.113.0", "PoolDraining")
    assert len(ledger(api)) == 1


async def test_overlapping_pools_give_no_address_twice(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metal3-io/ip-address-manager#1564; here the name of the entry is the lock."""
    api.create(build_pool())
    api.create(build_pool("twin"))
    for number in range(6):
        pool = "twin" if number % 2 else "public"
        api.create(build_claim(f"c{number}", poolRef={"name": pool}))
    await harness.settled()

    assert len(ledger(api)) == 4
    assert sum(bool(address(api, f"c{number}")) for number in range(6)) == 4
    assert condition_of(api.get(IP_POOL, POOL), "Overlapping") == "True"
    assert capacity(api)["free"] == capacity(api, "twin")["free"] == "0"


async def test_many_claims_at_once_get_an_address_each(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: k8snetworkplumbingwg/whereabouts#110, many at once made duplicates."""
    api.create(build_pool(addresses=["203.0.113.0/26"]))
    for number in range(100):
        api.create(build_claim(f"c{number}"))
    await harness.settled()

    shown = [address(api, f"c{number}") for number in range(100)]
    assert len({each for each in shown if each}) == 62 == len(ledger(api))
    positions = sorted(position(api, f"c{number}") or 0 for number in range(100))
    assert positions == [0] * 62 + list(range(1, 39))


# Taking back.


async def test_address_rests_before_somebody_else_gets_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: cluster-api-ipam-provider-in-cluster#332; the claim itself goes at once."""
    api.create(build_pool(addresses=["203.0.113.0"], reuseGraceSeconds=3600))
    api.create(build_claim("a"))
    await harness.settled()
    api.delete(IP_CLAIM, claim_of("a"))
    await harness.settled()
    api.create(build_claim("b"))
    await harness.settled()

    assert api.find(IP_CLAIM, claim_of("a")) is None
    assert reason(api, "b") == "PoolExhausted"
    assert capacity(api)["quarantined"] == 1
    assert "nextRelease" in api.get(IP_POOL, POOL)["status"]

    api.patch(IP_POOL, POOL, {"spec": {"reuseGraceSeconds": 0}})
    await harness.settled()
    assert ledger(api) == {"203.0.113.0": "b"}


async def test_address_that_rests_goes_back_to_the_claim_of_the_same_name(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(reuseGraceSeconds=3600))
    for name in ("a", "b"):
        api.create(build_claim(name))
        await harness.settled()
    api.delete(IP_CLAIM, claim_of("b"))
    await harness.settled()
    api.create(build_claim("c"))
    api.create(build_claim("b"))
    await harness.settled()

    assert address(api, "b") == "203.0.113.1"
    assert address(api, "c") == "203.0.113.2"


async def test_claim_made_and_deleted_at_once_leaks_nothing(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metal3-io/ip-address-manager#694, harvester#7449."""
    api.create(build_pool())
    for _ in range(5):
        api.create(build_claim())
        api.delete(IP_CLAIM, claim_of("web"))
        await harness.settled()
    api.create(build_claim())
    await harness.settled()

    assert list(ledger(api).values()) == ["web"]


async def test_claim_that_went_while_nobody_looked_gives_its_address_back(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubeovn/kube-ovn#4304; a finalizer taken off by hand is no different."""
    api.create(build_pool())
    api.create(build_claim())
    await harness.settled()
    await harness.stop()
    api.patch(IP_CLAIM, claim_of("web"), {"metadata": {"finalizers": None}})
    api.delete(IP_CLAIM, claim_of("web"))
    api.create(build_claim("new", address="203.0.113.0"))
    await harness.restart()
    await harness.settled()

    assert ledger(api) == {"203.0.113.0": "new"}


async def test_entry_of_an_address_in_use_cannot_be_deleted(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_claim())
    await harness.settled()
    name = Key("", "public-ip4-203-0-113-0")
    api.delete(IP_ALLOCATION, name)
    await harness.settled()
    assert condition_of(api.get(IP_ALLOCATION, name), "Terminating") == "True"

    api.delete(IP_CLAIM, claim_of("web"))
    await harness.settled()
    assert ledger(api) == {}


async def test_lost_entry_is_made_again_for_the_same_claim(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_claim("a"))
    await harness.settled()
    name = Key("", "public-ip4-203-0-113-0")
    api.patch(IP_ALLOCATION, name, {"metadata": {"finalizers": None}})
    api.delete(IP_ALLOCATION, name)
    api.create(build_claim("b", priority=1000))
    await harness.settled()

    assert ledger(api) == {"203.0.113.0": "a", "203.0.113.1": "b"}
    assert reason(api, "a") == "Allocated"


async def test_second_entry_of_one_claim_goes_and_the_address_stays(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Two leaders may each make an entry; what the status says first is what counts."""
    api.create(build_pool())
    api.create(build_claim())
    await harness.settled()
    entry = api.get(IP_ALLOCATION, Key("", "public-ip4-203-0-113-0"))
    spec = {**entry["spec"], "address": "203.0.113.3"}
    api.create(build_object(IP_ALLOCATION, "public-ip4-203-0-113-3", spec=spec))
    await harness.settled()

    assert ledger(api) == {"203.0.113.0": "web"}
    assert address(api, "web") == "203.0.113.0"


# Pools that change.


async def test_narrowed_pool_keeps_what_it_gave(api: FakeApi, harness: OperatorHarness) -> None:
    """Upstream: cilium/cilium#41458, metallb/metallb#2449, #1755."""
    api.create(build_pool())
    for number in range(3):
        api.create(build_claim(f"c{number}"))
    await harness.settled()
    before = ledger(api)
    api.patch(IP_POOL, POOL, {"spec": {"addresses": ["198.51.100.7"], "reuseGraceSeconds": 60}})
    await harness.settled()

    assert ledger(api) == before
    assert capacity(api)["outOfRange"] == 3
    assert capacity(api)["free"] == "1", "addresses outside do not count as used"
    api.delete(IP_CLAIM, claim_of("c1"))
    await harness.settled()
    assert len(ledger(api)) == 2, "an address that does not come back has no need to rest"


async def test_widened_pool_serves_those_who_wait_and_moves_nobody(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: cilium/cilium#41122."""
    api.create(build_pool(addresses=["203.0.113.9"]))
    for name in ("a", "b"):
        api.create(build_claim(name))
        await harness.settled()
    api.patch(IP_POOL, POOL, {"spec": {"addresses": ["203.0.113.1", "203.0.113.9"]}})
    await harness.settled()

    assert ledger(api) == {"203.0.113.9": "a", "203.0.113.1": "b"}
    assert reason(api, "b") == "Allocated"
    assert position(api, "b") is None


async def test_deleted_pool_waits_for_its_addresses(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_claim("a"))
    await harness.settled()
    api.delete(IP_POOL, POOL)
    await harness.settled()
    api.create(build_claim("b"))
    await harness.settled()

    assert condition_of(api.get(IP_POOL, POOL), "Terminating") == "True"
    assert reason(api, "b") == "PoolNotReady"
    assert address(api, "a") == "203.0.113.0"
    api.delete(IP_CLAIM, claim_of("a"))
    await harness.settled()
    assert api.find(IP_POOL, POOL) is None
    assert reason(api, "b") == "PoolNotFound"


async def test_pool_made_again_knows_nothing_of_the_old_one(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metallb/metallb#1591, harvester#8318."""
    api.create(build_pool())
    api.create(build_claim())
    await harness.settled()
    api.delete(IP_CLAIM, claim_of("web"))
    api.delete(IP_POOL, POOL)
    await harness.settled()
    api.create(build_pool(addresses=["198.51.100.1"]))
    api.create(build_claim())
    await harness.settled()

    assert ledger(api) == {"198.51.100.1": "web"}


async def test_settled_pool_is_silent_also_after_a_restart(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(reuseGraceSeconds=3600))
    for number in range(6):
        api.create(build_claim(f"c{number}"))
    await harness.settled()
    api.delete(IP_CLAIM, claim_of("c0"))
    await harness.settled()
    mark = api.mark()
    await harness.restart()
    await harness.settled()

    assert writes(api, mark) == []


async def test_metrics_tell_what_a_pool_has(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_claim())
    await harness.settled()

    assert harness.metric("ipam_pool_addresses", pool="public", state="free") == 3
    assert harness.metric("ipam_allocations_total", pool="public") == 1
    api.delete(IP_CLAIM, claim_of("web"))
    api.delete(IP_POOL, POOL)
    await harness.settled()
    assert "ipam_pool_addresses{" not in harness.manager.metrics.render().decode()
