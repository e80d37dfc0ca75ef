"""A root disk on storage of one node or zone is where its machine can run."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest

from lab.kubevirt_sim.volumes import build_volume
from libs.common.kinds import NODE, PV, PVC, STORAGE_CLASS, Key, build_object, key_of
from libs.common.runtime import Context
from libs.common.testing.clock import FakeClock
from libs.common.testing.direct import DirectContext
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.claims import SELECTED_NODE
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE, VmiView
from operators.compute.api.instance import INSTANCE
from operators.compute.conftest import Cloud
from operators.compute.instance.places import find_place
from operators.compute.samples import build_instance, build_observation, parse_instance

ZONE: Final = "topology.kubernetes.io/zone"
LOCAL: Final = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
CLAIM: Final = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
NEAR: Final = Key("default", "near")
IMAGE: Final = {"url": "https://images.example.com/other.qcow2"}


@pytest.fixture(params=["b", "c"])
def zone(cloud: Cloud, request: pytest.FixtureRequest) -> str:
    """Have local storage, and a node in each of three zones; returns one of these."""
    wait: dict[str, Any] = {
        "provisioner": "rancher.io/local-path",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    cloud.api.create(build_object(STORAGE_CLASS, "local", **wait))
    for name, node in zip("abc", cloud.api.objects(NODE), strict=True):
        cloud.api.patch(NODE, key_of(node), {"metadata": {"labels": {ZONE: name}}})
    return str(request.param)


def place_volume(cloud: Cloud, zone: str, name: str = "data") -> None:
    """Create a bound claim whose volume can be used in one zone only."""
    claim = build_object(PVC, name, "default", spec={**CLAIM, "volumeName": f"pv-{name}"})
    held = cloud.api.create(claim)
    volume = build_volume(held, f"pv-{name}", "1Gi", f"sim-node-{'abc'.index(zone) + 1}")
    cloud.api.create(volume)
    cloud.api.patch_status(PVC, Key("default", name), {"phase": "Bound"})


async def runs(cloud: Cloud, zone: str, why: str) -> None:
    """Wait until the machine runs in a zone."""

    def probe() -> bool:
        return (cloud.api.get(INSTANCE, NEAR).get("status") or {}).get("phase") == "Running"

    await cloud.compute.eventually(probe, why)
    node = VmiView.parse(cloud.api.get(VIRTUAL_MACHINE_INSTANCE, NEAR)).node_name
    assert cloud.api.get(NODE, Key("", node))["metadata"]["labels"][ZONE] == zone


@pytest.mark.parametrize("cause", ["nodeSelector", "volume"])
async def test_first_disk_is_where_the_machine_can_run(cloud: Cloud, zone: str, cause: str) -> None:
    spec: dict[str, Any] = {"placement": {"nodeSelector": {ZONE: zone}}}
    if cause == "volume":
        place_volume(cloud, zone)
        spec = {"volumes": [{"name": "data", "claim": "data"}]}
    cloud.api.create(build_instance("near", rootDisk=LOCAL, **spec))

    await runs(cloud, zone, "the machine runs on its first disk")


@pytest.mark.parametrize("power", ["Running", "Stopped"])
async def test_rebuilt_disk_is_where_the_machine_can_run(
    cloud: Cloud, zone: str, power: str
) -> None:
    placement = {"nodeSelector": {ZONE: zone}}
    cloud.api.create(build_instance("near", rootDisk=LOCAL, placement=placement))
    await runs(cloud, zone, "the machine runs")
    cloud.api.patch(INSTANCE, NEAR, {"spec": {"power": power}})
    await cloud.converged()

    status = await cloud.operate("Rebuild", target="near", rebuild={"image": IMAGE})
    assert status["phase"] == "Succeeded", status
    cloud.api.patch(INSTANCE, NEAR, {"spec": {"power": "Running"}})

    await runs(cloud, zone, "the machine runs on its new disk")


async def test_disk_of_a_machine_that_can_run_anywhere_is_placed_by_the_scheduler(
    cloud: Cloud,
) -> None:
    claim = cloud.api.get(PVC, Key("default", "web-root"))

    assert SELECTED_NODE not in claim["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("key", "operator", "values", "places"),
    [
        (ZONE, "In", ["b", "x"], {"b"}),
        (ZONE, "NotIn", ["b"], {"a", "c"}),
        (ZONE, "Gt", ["1"], {""}),
    ],
)
async def test_place_follows_the_affinity_of_volumes(
    key: str, operator: str, values: list[str], places: set[str]
) -> None:
    api = FakeApi()
    for name in "abc":
        api.create(build_object(NODE, name, metadata={"labels": {ZONE: name}}))
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    api.create(build_object(PV, "pv", spec={"nodeAffinity": affinity}))
    api.create(build_object(PVC, "data", "default", spec={**CLAIM, "volumeName": "pv"}))
    instance = parse_instance(volumes=[{"name": "data", "claim": "data"}])
    ctx = DirectContext(api, INSTANCE, instance.to_manifest(), FakeClock().now, lambda *_: list)

    assert await find_place(cast(Context, ctx), instance, build_observation()) in places
