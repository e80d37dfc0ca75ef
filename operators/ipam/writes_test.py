"""What a claim costs: each write of the operator, Events among them."""

from __future__ import annotations

from collections import Counter

from libs.common.kinds import EVENT, SERVICE, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.naming import FINALIZER
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import address, claim_of, ledger, reason, writes

WEB, SERVED = claim_of("web"), Key("default", "web-ip")
PLAIN = {"kind": "Address", "address": "10.0.0.7"}
PORTS = [{"name": "https", "port": 443}]


def finalizers(api: FakeApi) -> list[str]:
    found: list[str] = api.get(IP_CLAIM, WEB)["metadata"].get("finalizers", [])
    return found


async def test_claim_costs_two_writes_and_no_event(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pool(addresses=["203.0.113.0/26"]))
    await harness.converged()
    mark = api.mark()
    for number in range(20):
        api.create(build_claim(f"c{number}"))
    await harness.converged()

    assert all(address(api, f"c{number}") for number in range(20))
    counts = Counter(each for each in writes(api, mark) if IP_POOL.kind not in each)
    assert counts == {"create IPAllocation": 20, "patch IPClaim status": 20}
    assert api.objects(EVENT) == []


async def test_claim_with_a_target_costs_five_writes_beside_the_load_balancer(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Its finalizer, entry, slice and Service, and one status once the address is announced."""
    api.create(build_pool(addressTargets="Allow"))
    await harness.converged()
    mark = api.mark()
    api.create(build_claim(target=PLAIN, ports=PORTS))
    await harness.converged()

    assert reason(api, "web", "Bound") == "Bound"
    counts = Counter(each for each in writes(api, mark) if IP_POOL.kind not in each)
    assert counts["patch IPClaim"] == 1, "the finalizer"
    assert counts["patch IPClaim status"] <= 2, "waiting for the load balancer, and announced"
    assert sum(counts.values()) <= 6
    assert api.objects(EVENT) == []


async def test_finalizer_is_there_only_while_there_is_something_to_withdraw(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_claim())
    await harness.converged()
    assert finalizers(api) == []

    api.patch(IP_CLAIM, WEB, {"spec": {"target": PLAIN, "ports": PORTS}})
    await harness.converged()
    assert finalizers(api) == [FINALIZER]

    api.patch(IP_CLAIM, WEB, {"spec": {"target": None}})
    await harness.converged()
    assert finalizers(api) == []
    assert api.find(SERVICE, SERVED) is None


async def test_address_is_kept_while_a_load_balancer_cleans_up_its_service(
    api: FakeApi, harness: OperatorHarness
) -> None:
    cleanup = "service.kubernetes.io/load-balancer-cleanup"
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_claim(target=PLAIN, ports=PORTS))
    await harness.converged()
    api.patch(SERVICE, SERVED, {"metadata": {"finalizers": [cleanup]}})
    api.patch(IP_CLAIM, WEB, {"spec": {"target": None}})
    await harness.eventually(lambda: reason(api, "web", "Bound") == "Withdrawing", "it lingers")
    api.delete(IP_CLAIM, WEB)
    await harness.eventually(lambda: reason(api, "web") == "Withdrawing", "the claim waits for it")
    assert ledger(api) == {"203.0.113.0": "web"}

    api.patch(SERVICE, SERVED, {"metadata": {"finalizers": None}})
    await harness.eventually(lambda: api.objects(IP_ALLOCATION) == [], "the address is back")
    assert api.find(IP_CLAIM, WEB) is None
