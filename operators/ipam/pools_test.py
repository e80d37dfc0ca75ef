"""Pools change and go while claims have their addresses, over HTTP."""

from __future__ import annotations

import pytest

from libs.common.crd import ParseError
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL, IPPool
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
    return_first,
    writes,
)


async def test_narrowed_pool_keeps_what_it_gave(api: FakeApi, harness: OperatorHarness) -> None:
    """Upstream: cilium/cilium#41458, metallb/metallb#2449, #1755."""
    api.create(build_pool())
    for number in range(3):
        api.create(build_claim(f"c{number}"))
    await harness.converged()
    before = ledger(api)
    api.patch(IP_POOL, POOL, {"spec": {"addresses": ["198.51.100.7"], "reuseGraceSeconds": 60}})
    await harness.converged()

    assert ledger(api) == before
    assert capacity(api)["outOfRange"] == 3
    assert capacity(api)["free"] == "1", "addresses outside do not count as used"
    api.delete(IP_CLAIM, claim_of("c1"))
    await harness.converged()
    assert len(ledger(api)) == 2, "an address that does not come back has no need to rest"


async def test_widened_pool_serves_those_who_wait_and_moves_nobody(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: cilium/cilium#41122."""
    api.create(build_pool(addresses=["203.0.113.9"]))
    for name in ("a", "b"):
        api.create(build_claim(name))
        await harness.converged()
    api.patch(IP_POOL, POOL, {"spec": {"addresses": ["203.0.113.1", "203.0.113.9"]}})
    await harness.converged()

    assert ledger(api) == {"203.0.113.9": "a", "203.0.113.1": "b"}
    assert reason(api, "b") == "Allocated"
    assert position(api, "b") is None


async def test_deleted_pool_waits_for_its_addresses(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_claim("a"))
    await harness.converged()
    api.delete(IP_POOL, POOL)
    await harness.converged()
    api.create(build_claim("b"))
    await harness.converged()

    assert condition_of(api.get(IP_POOL, POOL), "Terminating") == "True"
    assert reason(api, "b") == "PoolNotReady"
    assert address(api, "a") == "203.0.113.0"
    api.delete(IP_CLAIM, claim_of("a"))
    await harness.converged()
    assert api.find(IP_POOL, POOL) is None
    assert reason(api, "b") == "PoolNotFound"


async def test_deleted_pool_lists_its_addresses_again_if_the_listing_is_older_than_the_cache(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool())
    api.create(build_claim())
    await harness.converged()
    outdated = api.objects(IP_ALLOCATION)
    assert len(outdated) == 1
    api.delete(IP_CLAIM, claim_of("web"))
    await harness.converged()
    assert ledger(api) == {}
    with return_first(IP_ALLOCATION, outdated) as listings:
        api.delete(IP_POOL, POOL)
        await harness.eventually(lambda: api.find(IP_POOL, POOL) is None)

    assert not listings


async def test_pool_made_again_knows_nothing_of_the_old_one(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metallb/metallb#1591, harvester#8318."""
    api.create(build_pool())
    api.create(build_claim())
    await harness.converged()
    api.delete(IP_CLAIM, claim_of("web"))
    api.delete(IP_POOL, POOL)
    await harness.converged()
    api.create(build_pool(addresses=["198.51.100.1"]))
    api.create(build_claim())
    await harness.converged()

    assert ledger(api) == {"198.51.100.1": "web"}


async def test_settled_pool_is_silent_also_after_a_restart(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(reuseGraceSeconds=3600))
    for number in range(6):
        api.create(build_claim(f"c{number}"))
    await harness.converged()
    api.delete(IP_CLAIM, claim_of("c0"))
    await harness.converged()
    mark = api.mark()
    await harness.restart()
    await harness.converged()

    assert writes(api, mark) == []


async def test_metrics_tell_what_a_pool_has(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool())
    api.create(build_claim())
    await harness.converged()

    assert harness.metric("ipam_pool_addresses", pool="public", state="free") == 3
    assert harness.metric("ipam_allocations_total", pool="public") == 1
    api.delete(IP_CLAIM, claim_of("web"))
    api.delete(IP_POOL, POOL)
    await harness.converged()
    assert "ipam_pool_addresses{" not in harness.manager.metrics.render().decode()


async def test_pool_that_cannot_be_read_can_be_deleted(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(family="IPv6", addresses=["2001:db8::9-2001:db8::1"]))
    await harness.converged()
    assert condition_of(api.get(IP_POOL, POOL), "Ready") == "False"

    api.delete(IP_POOL, POOL)
    await harness.converged()
    assert api.find(IP_POOL, POOL) is None


async def test_pool_that_is_mended_says_again_what_it_said_before(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(family="IPv6", addresses=["2001:db8::1"]))
    for name in ("a", "b"):
        api.create(build_claim(name))
        await harness.converged()
    api.patch(IP_POOL, POOL, {"spec": {"addresses": ["2001:db8::9-2001:db8::1"]}})
    await harness.converged()
    assert reason(api, "b") == "PoolNotReady"

    api.patch(IP_POOL, POOL, {"spec": {"addresses": ["2001:db8::1"]}})
    await harness.converged()
    assert (reason(api, "b"), position(api, "b")) == ("PoolExhausted", 1)


async def test_pool_whose_entries_cannot_be_made_does_not_try_without_a_pause(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """While the CRD of the ledger is recreated, its kind is not found for a moment."""
    api.fail("create", IP_ALLOCATION, status=404, times=None)
    api.create(build_pool())
    api.create(build_claim("a"))
    await harness.eventually(lambda: harness.failing, "the pool waits to try again")
    assert len(api.requests.select("create", IP_ALLOCATION)) < 10

    api.faults.clear()
    await harness.eventually(lambda: address(api, "a"))


@pytest.mark.parametrize(
    "addresses",
    ["127.0.0.1", "0.0.0.0/0", "169.254.0.1-169.254.0.9", "223.255.255.0-224.0.0.9"],
)
def test_pool_refuses_addresses_that_no_client_can_reach(addresses: str) -> None:
    pool = build_pool(addresses=[addresses])
    pool["metadata"]["uid"] = "1"

    with pytest.raises(ParseError, match="must not contain"):
        IPPool.parse(pool)
