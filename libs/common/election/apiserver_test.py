"""Tests of the election on a real API server, whose validation the fake one might not share."""

import asyncio
from collections.abc import Callable

import pytest

from libs.common.client import Client
from libs.common.election.core import Timing
from libs.common.election.elector import LeaseElector
from libs.common.kinds import LEASE, Key
from libs.common.testing.apiserver import ControlPlane

pytestmark = pytest.mark.apiserver

TIMING = Timing(lease_duration=60.0, renew_deadline=40.0, retry_period=0.1)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def test_lease_is_acquired_renewed_released_and_taken_over(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    key = Key(kube_namespace, "podset")
    config = kube_apiserver.config
    a = LeaseElector(lambda: Client(config), key, "a", TIMING)
    b = LeaseElector(lambda: Client(config), key, "b", TIMING)
    a.start()
    await until(a.is_leader)
    first = await kube_client.get(LEASE, key)
    b.start()
    await until(lambda: b.holder == "a")

    assert first["spec"]["holderIdentity"] == "a"
    assert first["spec"]["leaseDurationSeconds"] == 60
    await a.stop()
    await until(b.is_leader)
    second = await kube_client.get(LEASE, key)
    assert second["spec"]["leaseTransitions"] == b.fencing_token == 1
    assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
    await b.stop()
    assert not (await kube_client.get(LEASE, key))["spec"].get("holderIdentity")
