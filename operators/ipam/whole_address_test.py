"""Claims whose whole address cozy-proxy routes, with the operator and a simulated KubeVirt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from lab.kubevirt_sim.instant_balancer import attach_load_balancer
from lab.kubevirt_sim.samples import build_machine, build_migration
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.shown import claim_of

SERVED = Key("default", "web-ip")
PROXY = "service.kubernetes.io/service-proxy-name"
WHOLE = "networking.cozystack.io/wholeIP"

type Run = Callable[..., AbstractAsyncContextManager[OperatorHarness]]


@pytest.fixture
async def api(fake_api: FakeApi) -> FakeApi:
    """Serve the kinds of ipam, with a pool and a load balancer."""
    for model in RESOURCES:
        fake_api.register(build_crd(model))
    attach_load_balancer(fake_api)
    fake_api.create(build_pool())
    return fake_api


@pytest.fixture
def run(api: FakeApi) -> Run:
    """Return what runs the operator with settings."""

    def start(**settings: Any) -> AbstractAsyncContextManager[OperatorHarness]:
        return OperatorHarness(OPERATOR, api.config, **settings)

    return start


def claim_all() -> dict[str, Any]:
    return build_claim(target={"kind": "Instance", "name": "web"}, traffic="All")


def bound(api: FakeApi) -> tuple[str, str]:
    found = find_condition(api.get(IP_CLAIM, claim_of("web")), "Bound") or {}
    return f"{found.get('status')} {found.get('reason')}", found.get("message", "")


def backends(api: FakeApi) -> list[str]:
    subsets = (api.find(ENDPOINTS, SERVED) or {}).get("subsets") or ()
    return [each["ip"] for subset in subsets for each in subset["addresses"]]


async def test_cozy_proxy_serves_the_service_and_follows_the_machine(
    api: FakeApi, kubevirt_sim: KubeVirtSim, run: Run
) -> None:
    async with run(cozy_proxy=True) as harness:
        api.create(build_machine())
        api.create(claim_all())
        await kubevirt_sim.converged()
        await harness.eventually(lambda: bound(api)[0] == "True Bound")
        before = api.get(IP_CLAIM, claim_of("web"))["status"]["binding"]["podIP"]

        metadata = api.get(SERVICE, SERVED)["metadata"]
        assert metadata["labels"][PROXY] == "cozy-proxy", "kube-proxy would drop other ports"
        assert metadata["annotations"][WHOLE] == "true"
        assert backends(api) == [before], "cozy-proxy does not read EndpointSlices"
        mirrored = api.get(ENDPOINTS, SERVED)["metadata"]["labels"]
        assert mirrored["endpointslice.kubernetes.io/skip-mirror"] == "true"

        api.create(build_migration())
        await kubevirt_sim.converged()
        await harness.converged()
        after = api.get(IP_CLAIM, claim_of("web"))["status"]["binding"]["podIP"]
        assert after != before
        assert backends(api) == [after]


async def test_whole_address_becomes_ports_and_leaves_nothing_behind(
    api: FakeApi, kubevirt_sim: KubeVirtSim, run: Run
) -> None:
    async with run(cozy_proxy=True) as harness:
        api.create(build_machine())
        api.create(claim_all())
        await kubevirt_sim.converged()
        await harness.eventually(lambda: backends(api) != [])
        ports = [{"name": "ssh", "port": 22}]
        api.patch(IP_CLAIM, claim_of("web"), {"spec": {"traffic": "Ports", "ports": ports}})
        await harness.eventually(lambda: api.find(ENDPOINTS, SERVED) is None)
        await harness.converged()

        service = api.get(SERVICE, SERVED)
        assert PROXY not in service["metadata"]["labels"]
        assert WHOLE not in service["metadata"].get("annotations", {})
        assert [each["port"] for each in service["spec"]["ports"]] == [22]
        assert bound(api)[0] == "True Bound"

        api.patch(IP_CLAIM, claim_of("web"), {"spec": {"traffic": "All", "ports": None}})
        await harness.eventually(lambda: backends(api) != [])
        api.delete(IP_CLAIM, claim_of("web"))
        await harness.eventually(lambda: api.find(IP_CLAIM, claim_of("web")) is None)
        left = [api.find(kind, SERVED) for kind in (SERVICE, ENDPOINTS)]
        assert (left, api.objects(ENDPOINT_SLICE)) == ([None, None], [])


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "settings.cozyProxy"),
        ({"cozy_proxy": True, "announcement": "None"}, "settings.announcement"),
    ],
)
async def test_whole_address_that_nothing_routes_is_not_bound(
    api: FakeApi, kubevirt_sim: KubeVirtSim, run: Run, settings: dict[str, Any], word: str
) -> None:
    async with run(**settings) as harness:
        api.create(build_machine())
        api.create(claim_all())
        await kubevirt_sim.converged()
        await harness.eventually(lambda: bound(api)[0] == "False WholeAddressUnsupported")

        assert word in bound(api)[1]
        assert api.find(SERVICE, SERVED) is None


async def test_ipv6_address_is_not_said_to_be_routed_whole(
    api: FakeApi, kubevirt_sim: KubeVirtSim, run: Run
) -> None:
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::/120"]))
    async with run(cozy_proxy=True) as harness:
        api.create(build_machine())
        claim = claim_all()
        claim["spec"]["poolRef"] = {"name": "six"}
        api.create(claim)
        await kubevirt_sim.converged()
        await harness.eventually(lambda: bound(api)[0] == "False WholeAddressUnsupported")

        assert "IPv4" in bound(api)[1]
