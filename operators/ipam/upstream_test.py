"""Bugs of other address managers that come of a restart or of a cache that is behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from libs.common.crd import build_crd
from libs.common.kinds import Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool


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


def address(api: FakeApi, name: str) -> str:
    claim = api.get(IP_CLAIM, Key("default", name))
    return str((claim.get("status") or {}).get("address", ""))


async def test_restart_gives_the_only_address_to_nobody_else(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: metallb/metallb#1774, cilium/cilium#43131: who waited got what was taken."""
    api.create(build_pool(addresses=["203.0.113.1"]))
    api.create(build_claim("first"))
    await harness.settled()
    api.create(build_claim("second"))
    await harness.settled()

    for _ in range(3):
        await harness.restart(crash=True)
        await harness.settled()
    assert (address(api, "first"), address(api, "second")) == ("203.0.113.1", "")


async def test_claims_back_to_back_get_two_addresses_though_the_cache_is_behind(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Upstream: kubernetes-sigs/cluster-api-ipam-provider-in-cluster#338."""
    api.create(build_pool())
    await harness.settled()
    api.watches.pause(IP_ALLOCATION)
    for name in ("a", "b", "c"):
        api.create(build_claim(name))
    await harness.eventually(lambda: all(address(api, name) for name in "abc"), "all are served")
    api.watches.resume(IP_ALLOCATION)
    await harness.settled()

    assert len({address(api, name) for name in "abc"}) == len(api.objects(IP_ALLOCATION)) == 3
