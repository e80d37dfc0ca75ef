"""Addresses are given to claims, over HTTP, as a user would try it."""

from __future__ import annotations

from libs.common.kinds import NAMESPACE, SERVICE, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
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
    position,
    reason,
    writes,
)

PLAIN = {"kind": "Address", "address": "10.0.0.7"}
PORTS = [{"name": "https", "port": 443}]


async def test_claims_get_addresses_and_the_others_know_their_place(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    for number in range(6):
        api.create(build_claim(f"c{number}"))
        await harness.converged()

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
    api.create(build_pool(maxPriority=1))
    for number in range(6):
        api.create(build_claim(f"c{number}", priority=int(number == 5)))
    await harness.converged()
    before = ledger(api)
    assert before["203.0.113.0"] == "c5", "priority goes first"
    waiting = next(f"c{n}" for n in range(5) if position(api, f"c{n}") == 1)

    api.delete(IP_CLAIM, claim_of("c5"))
    await harness.converged()

    assert ledger(api) == {**before, "203.0.113.0": waiting}
    assert sorted(position(api, f"c{n}") or 0 for n in range(5)) == [0, 0, 0, 0, 1]


async def test_allocation_takes_two_writes_and_one_a_pass(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    await harness.converged()
    mark = api.mark()

    api.create(build_claim())
    await harness.converged()

    assert writes(api, mark) == [
        "create IPAllocation",
        "patch IPClaim status",
        "patch IPPool status",
    ], "that of the pool is shared by all claims of a pass"


async def test_claim_without_a_pool_waits_for_it(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_claim())
    await harness.converged()
    assert reason(api, "web") == "PoolNotFound"

    api.create(build_pool())
    await harness.converged()
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
    await harness.converged()

    assert ledger(api) == {"203.0.113.2": "a"} or ledger(api) == {"203.0.113.2": "b"}
    assert sorted(reason(api, name) for name in ("a", "b")) == ["AddressTaken", "Allocated"]
    assert reason(api, "outside") == "AddressOutOfRange"
    assert position(api, "outside") is None


async def test_dual_stack_claim_gets_one_of_each(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::/64"]))
    api.create(build_claim(secondary={"poolRef": {"name": "six"}}))
    await harness.converged()

    status = api.get(IP_CLAIM, claim_of("web"))["status"]
    assert (status["address"], status["secondaryAddress"]) == ("203.0.113.0", "2001:db8::1")
    assert reason(api, "web") == "Allocated"
    api.delete(IP_CLAIM, claim_of("web"))
    await harness.converged()
    assert ledger(api) == {}


async def test_claim_of_two_pools_of_one_family_is_told_so(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_pool("other", addresses=["198.51.100.0/24"]))
    api.create(build_claim(secondary={"poolRef": {"name": "other"}}))
    await harness.converged()

    assert reason(api, "web") == "FamilyMismatch"
    assert list(ledger(api).values()) == ["web"], "nothing of the second pool"


async def test_namespace_gets_addresses_after_its_labels_match(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(allowedNamespaces={"matchLabels": {"tier": "web"}}))
    api.create(build_claim())
    await harness.converged()
    assert reason(api, "web") == "NamespaceNotAllowed"

    api.patch(NAMESPACE, Key("", "default"), {"metadata": {"labels": {"tier": "web"}}})
    await harness.eventually(lambda: bool(address(api, "web")))


async def test_draining_pool_gives_nothing_and_takes_nothing(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_claim("a"))
    await harness.converged()
    # Kinds are watched by streams of their own: the claim is heard of before the pool drains.
    api.watches.pause(IP_POOL)
    api.patch(IP_POOL, POOL, {"spec": {"allocation": "Draining"}})
    api.create(build_claim("b"))
    await harness.eventually(lambda: reason(api, "b") == "PoolDraining", "the claim is told")
    api.watches.resume(IP_POOL)
    await harness.converged()

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
    await harness.converged()

    assert len(ledger(api)) == 4
    assert sum(bool(address(api, f"c{number}")) for number in range(6)) == 4
    assert condition_of(api.get(IP_POOL, POOL), "Overlapping") == "True"
    assert capacity(api)["free"] == capacity(api, "twin")["free"] == "0"


async def test_many_claims_at_once_get_an_address_each(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: k8snetworkplumbingwg/whereabouts#110, many claims together got duplicates."""
    api.create(build_pool(addresses=["203.0.113.0/26"]))
    for number in range(100):
        api.create(build_claim(f"c{number}"))
    await harness.converged()

    shown = [address(api, f"c{number}") for number in range(100)]
    assert len({each for each in shown if each}) == 62 == len(ledger(api))
    positions = sorted(position(api, f"c{number}") or 0 for number in range(100))
    assert positions == [0] * 62 + list(range(1, 39))


async def test_second_address_waits_until_the_family_of_the_first_is_known(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool("other", addresses=["198.51.100.0/24"]))
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::/64"]))
    api.create(build_claim("wrong", secondary={"poolRef": {"name": "other"}}))
    api.create(build_claim("right", secondary={"poolRef": {"name": "six"}}))
    await harness.converged()
    assert ledger(api) == {}

    api.create(build_pool())
    await harness.converged()
    assert sorted(ledger(api).values()) == ["right", "right", "wrong"]
    assert reason(api, "wrong") == "FamilyMismatch"


async def test_nothing_is_announced_before_the_first_address_is_there(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """A Service that began with the second family could never get the first one before it."""
    api.create(build_pool(addresses=["203.0.113.1"], addressTargets="Allow"))
    api.create(build_claim("before"))
    await harness.converged()
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::/64"]))
    api.create(build_claim(target=PLAIN, ports=PORTS, secondary={"poolRef": {"name": "six"}}))
    await harness.converged()
    assert len(ledger(api)) == 2
    assert (reason(api, "web", "Bound"), api.objects(SERVICE)) == ("NoAddress", [])

    api.delete(IP_CLAIM, claim_of("before"))
    await harness.converged()
    (service,) = api.objects(SERVICE)
    assert service["spec"]["ipFamilies"] == ["IPv4", "IPv6"]


async def test_address_without_a_port_is_not_said_to_lead_anywhere(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_claim(target=PLAIN))
    await harness.converged()
    assert reason(api, "web", "Bound") == "NoPorts"

    api.patch(IP_CLAIM, claim_of("web"), {"spec": {"ports": PORTS}})
    await harness.converged()
    assert reason(api, "web", "Bound") == "Bound"
