"""What is read of a claim and its Service, where the parts do not agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Key, Manifest, build_object
from libs.common.runtime import Context
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.claims import IPClaim
from operators.ipam.claim.observe import observe_binding
from operators.ipam.samples import build_claim, build_pool

FAMILIES = {"IPv4": "10.0.0.1", "IPv6": "2001:db8::1"}


def read_epoch(shown: int, *slices: int) -> int:
    """Return the epoch of a claim whose status and slices say these."""
    claim = build_claim()
    claim["metadata"] |= {"uid": "u", "generation": 1}
    claim["status"] = {"observedGeneration": 1, "binding": {"state": "Bound", "epoch": shown}}
    held: list[Manifest] = [
        {"metadata": {"annotations": {"ipam.slipway.dev/epoch": str(each)}}} for each in slices
    ]
    context = cast(Context, SimpleNamespace(children=lambda _: held))
    return observe_binding(context, IPClaim.parse(claim)).epoch


def test_epoch_never_goes_back() -> None:
    """A person may recreate slices, or the status may be stale: the higher epoch counts."""
    assert read_epoch(3, 1) == 3
    assert read_epoch(1, 2, 4) == 4
    assert read_epoch(5) == 5


async def test_address_of_one_family_leads_to_no_endpoint_of_the_other(
    api: FakeApi, harness: OperatorHarness
) -> None:
    ports: list[dict[str, Any]] = [{"name": "http", "port": 80}]
    spec = {"ports": ports, "ipFamilies": list(FAMILIES), "ipFamilyPolicy": "RequireDualStack"}
    api.create(build_object(SERVICE, "shop", "default", spec=spec))
    for family, address in FAMILIES.items():
        endpoints = build_object(
            ENDPOINT_SLICE,
            f"shop-{family.lower()}",
            "default",
            metadata={"labels": {"kubernetes.io/service-name": "shop"}},
            addressType=family,
            endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
            ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
        )
        api.create(endpoints)
    api.create(build_pool(addressTargets="Allow"))
    api.create(build_claim(target={"kind": "Service", "name": "shop"}))
    await harness.converged()

    published = api.get(ENDPOINT_SLICE, Key("default", "web-ip-v4"))
    assert [each["addresses"] for each in published["endpoints"]] == [["10.0.0.1"]]
    assert published["ports"][0]["port"] == 8080
    assert api.find(ENDPOINT_SLICE, Key("default", "web-ip-v6")) is None
