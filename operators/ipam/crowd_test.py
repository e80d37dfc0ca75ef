"""One tenant's claims beyond its quota do not delay, cost or exhaust what other tenants need."""

from __future__ import annotations

from collections import Counter
from typing import Final

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import writes

_QUIET: Final = Key("quiet", "web")


def build(name: str, namespace: str) -> Manifest:
    """Build a claim of a namespace."""
    claim = build_claim(name)
    claim["metadata"]["namespace"] = namespace
    return claim


def run(api: FakeApi) -> OperatorHarness:
    """Run the operator for all namespaces, one reconcile at a time."""
    return OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("*",), max_concurrent_reconciles=1
    )


def is_bound(api: FakeApi, key: Key = _QUIET) -> bool:
    """Return whether a claim has an address."""
    return bool((api.get(IP_CLAIM, key).get("status") or {}).get("address"))


async def test_quiet_namespace_is_served_before_a_crowd_beyond_its_quota(api: FakeApi) -> None:
    api.create(build_pool(addresses=["203.0.113.0/28"], quotaPerNamespace=1))
    for number in range(2_000):
        api.create(build(f"c{number:04}", "crowd"))
    api.create(build("web", "quiet"))
    mark = api.mark()
    async with run(api) as harness:
        await harness.eventually(lambda: is_bound(api), "the quiet namespace is served")

        # The entries of both namespaces, and what the pool and the first claims say.
        assert len(writes(api, mark)) < 100


async def test_refused_claims_cost_nothing_when_others_come_and_go(api: FakeApi) -> None:
    api.create(build_pool(addresses=["203.0.113.0/28"], quotaPerNamespace=1))
    for number in range(100):
        api.create(build(f"c{number:04}", "crowd"))
    async with run(api) as harness:
        await harness.converged()
        mark = api.mark()
        api.create(build("web", "quiet"))
        await harness.converged()
        counts = Counter(each for each in writes(api, mark) if "IPPool" not in each)
        assert counts == {"create IPAllocation": 1, "patch IPClaim status": 1}

        mark = api.mark()
        (held,) = [
            entry["spec"]["claimRef"]["name"]
            for entry in api.objects(IP_ALLOCATION)
            if entry["spec"]["claimRef"]["namespace"] == "crowd"
        ]
        api.delete(IP_CLAIM, Key("crowd", held))
        await harness.converged()
        counts = Counter(each for each in writes(api, mark) if "IPPool" not in each)
        assert counts["patch IPClaim status"] == 1, "the next claim of the crowd, and no other"
        assert counts["create IPAllocation"] == 1


async def test_churn_at_the_quota_takes_no_address_from_other_namespaces(api: FakeApi) -> None:
    api.create(build_pool(reuseGraceSeconds=3600, quotaPerNamespace=2))
    costs = []
    async with run(api) as harness:
        for turn in range(15):
            mark = api.mark()
            names = (f"a{turn}", f"b{turn}")
            for name in names:
                api.create(build(name, "crowd"))
            await harness.converged()
            assert all(is_bound(api, Key("crowd", name)) for name in names)
            for name in names:
                api.delete(IP_CLAIM, Key("crowd", name))
            await harness.converged()
            costs.append(len([each for each in writes(api, mark) if "IPPool" not in each]))
        assert len(api.objects(IP_ALLOCATION)) == 2, "its own addresses are given again"
        assert max(costs[1:]) <= 2 * min(
            costs[1:]
        ), "a turn costs the same, however many came before"

        api.create(build("web", "quiet"))
        await harness.converged()
        assert is_bound(api)
