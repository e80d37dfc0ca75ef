"""An address is bound once a load balancer announces it, over HTTP, as a user would try it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from lab.kubevirt_sim.instant_balancer import announce, attach_load_balancer
from lab.kubevirt_sim.load_balancer import MODE
from lab.kubevirt_sim.settings import LoadBalancer
from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import SERVICE, Key
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool
from operators.ipam.settings import Announcement
from operators.ipam.shown import claim_of

SERVED = Key("default", "web-ip")
PLAIN = {"kind": "Address", "address": "10.0.0.7"}
PORTS = [{"name": "https", "port": 443}]

type Run = Callable[[Announcement], AbstractAsyncContextManager[OperatorHarness]]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run an API server without a load balancer, with a pool and a claim that has a target."""
    async with FakeApi() as api:
        for model in RESOURCES:
            api.register(build_crd(model))
        api.create(build_pool(addressTargets="Allow"))
        api.create(build_claim(target=PLAIN, ports=PORTS))
        yield api


@pytest.fixture
def clock() -> AdvancedClock:
    """Make a clock that may be moved ahead."""
    return AdvancedClock()


@pytest.fixture
def run(api: FakeApi, clock: AdvancedClock) -> Run:
    """Return what runs the operator with a way of announcing."""

    def start(announcement: Announcement) -> AbstractAsyncContextManager[OperatorHarness]:
        return OperatorHarness(
            OPERATOR,
            api.config,
            clock=clock,
            watch_namespaces=("default",),
            announcement=announcement,
        )

    return start


def reported(api: FakeApi, condition: str) -> tuple[str, str, str]:
    found = find_condition(api.get(IP_CLAIM, claim_of("web")), condition) or {}
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


@pytest.mark.parametrize(
    ("announcement", "kind"),
    [
        (Announcement.METALLB, "MetalLB"),
        (Announcement.CILIUM, "Cilium"),
        (Announcement.KUBE_VIP, "KubeVip"),
    ],
)
async def test_address_is_bound_once_the_load_balancer_reports_it(
    api: FakeApi, run: Run, announcement: Announcement, kind: LoadBalancer
) -> None:
    async with run(announcement) as harness:
        await harness.eventually(lambda: reported(api, "Announced")[0] == "False", "not yet")
        assert reported(api, "Announced")[1] == "WaitingForLoadBalancer"
        assert reported(api, "Bound")[:2] == ("False", "WaitingForLoadBalancer")
        assert "203.0.113.0 for Service web-ip" in reported(api, "Bound")[2]

        announce(api, kind)
        await harness.eventually(
            lambda: reported(api, "Bound")[:2] == ("True", "Bound"), "announced"
        )
        assert reported(api, "Announced")[:2] == ("True", "Announced")


async def test_load_balancer_that_reads_another_annotation_announces_another_address(
    api: FakeApi, run: Run
) -> None:
    """Two claims could be announced at one address while the ledger has it once."""
    attach_load_balancer(api, "Cilium")
    async with run(Announcement.METALLB) as harness:
        await harness.eventually(lambda: reported(api, "Announced")[1] == "OtherAddress", "another")

    assert reported(api, "Bound")[:2] == ("False", "OtherAddress")
    assert "announces 198.51.100.1 for Service web-ip instead of 203.0.113.0" in (
        reported(api, "Bound")[2]
    )


async def test_refusal_of_cilium_is_quoted(api: FakeApi, run: Run) -> None:
    async with run(Announcement.CILIUM) as harness:
        await harness.eventually(lambda: reported(api, "Announced")[0] == "False", "it is made")
        refusal = {
            "type": "cilium.io/IPAMRequestSatisfied",
            "status": "False",
            "reason": "no_pool",
            "message": "There are no enabled CiliumLoadBalancerIPPools that match this service",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        api.patch_status(SERVICE, SERVED, {"conditions": [refusal]})
        await harness.eventually(lambda: reported(api, "Bound")[1] == "Refused", "it is refused")

    assert "no enabled CiliumLoadBalancerIPPools" in reported(api, "Bound")[2]


async def test_refusal_of_metallb_is_quoted_from_its_event(
    api: FakeApi, run: Run, clock: AdvancedClock
) -> None:
    refusal = 'Failed to allocate IP for "default/web-ip": ["203.0.113.0"] is not allowed in config'
    async with run(Announcement.METALLB) as harness:
        await harness.eventually(lambda: reported(api, "Announced")[1] != "", "it is told")
        api.patch(SERVICE, SERVED, {"metadata": {"annotations": {MODE: "refuse"}}})
        announce(api)
        clock.seconds = 60
        await harness.restart()
        await harness.eventually(
            lambda: reported(api, "Announced")[1] == "Refused", "it is refused"
        )

    assert refusal in reported(api, "Bound")[2]


@pytest.mark.parametrize(
    ("announcement", "spec"),
    [
        (Announcement.EXTERNAL_IPS, {"type": "ClusterIP", "externalIPs": ["203.0.113.0"]}),
        (Announcement.NONE, {"type": "ClusterIP"}),
    ],
)
async def test_what_nobody_reports_is_unknown_and_keeps_no_address_from_being_bound(
    api: FakeApi, run: Run, announcement: Announcement, spec: dict[str, object]
) -> None:
    async with run(announcement) as harness:
        await harness.eventually(
            lambda: reported(api, "Bound")[0] == "True", "it has its endpoints"
        )

    assert reported(api, "Announced")[:2] == ("Unknown", "NotObserved")
    service = api.get(SERVICE, SERVED)
    assert service["spec"] == {**service["spec"], **spec}
    assert not [name for name in service["metadata"].get("annotations", {}) if "IPs" in name]
    assert ("externalIPs" in service["spec"]) == ("externalIPs" in spec)


async def test_load_balancer_without_an_annotation_is_asked_by_the_field(
    api: FakeApi, run: Run
) -> None:
    attach_load_balancer(api)
    async with run(Announcement.LOAD_BALANCER_IP) as harness:
        await harness.eventually(lambda: reported(api, "Announced")[0] == "True", "it is announced")

    assert api.get(SERVICE, SERVED)["spec"]["loadBalancerIP"] == "203.0.113.0"


async def test_address_that_is_no_longer_announced_is_not_bound(api: FakeApi, run: Run) -> None:
    detach = attach_load_balancer(api)
    async with run(Announcement.METALLB) as harness:
        await harness.eventually(lambda: reported(api, "Bound")[0] == "True", "it is announced")
        detach()
        api.patch_status(SERVICE, SERVED, {"loadBalancer": {"ingress": None}})
        await harness.eventually(lambda: reported(api, "Bound")[0] == "False", "it is not any more")

    assert reported(api, "Bound")[1] == "WaitingForLoadBalancer"


async def test_family_that_a_policy_refuses_in_one_place_is_served_in_others_and_later(
    api: FakeApi, run: Run, clock: AdvancedClock
) -> None:
    """A policy that refuses a Service with two families says nothing of the cluster."""
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::/120"]))

    def is_refused(request: Request) -> bool:
        body = request.body
        families = body.get("spec", {}).get("ipFamilies", ()) if isinstance(body, dict) else ()
        return len(families) > 1 and body["metadata"]["name"] == "a-ip"

    refusal = api.fail("", SERVICE, status=422, times=None, where=is_refused)

    def families(name: str) -> list[str]:
        service = api.find(SERVICE, Key("default", f"{name}-ip"))
        return [] if service is None else list(service["spec"]["ipFamilies"])

    async with run(Announcement.NONE) as harness:
        for name in ("a", "b"):
            second = {"poolRef": {"name": "six"}}
            api.create(build_claim(name, target=PLAIN, ports=PORTS, secondary=second))
            await harness.converged()
        assert (families("a"), families("b")) == (["IPv4"], ["IPv4", "IPv6"])

        refusal.release()
        clock.seconds = 601
        api.patch(IP_CLAIM, Key("default", "a"), {"metadata": {"labels": {"x": "y"}}})
        await harness.eventually(lambda: families("a") == ["IPv4", "IPv6"], "it is tried again")
