"""Bugs that others had with KubeVirt, on a simulated one: evictions, disks, lost machines."""

from __future__ import annotations

import pytest

from libs.common.client import ANY_ANSWER
from libs.common.conditions import find_condition
from libs.common.kinds import PVC, Key, Manifest, build_object
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    SUBRESOURCES_GROUP,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
)
from operators.compute.api.instance import INSTANCE
from operators.compute.conftest import WEB, Cloud
from operators.compute.naming import KEPT_FOR

DATA = Key("default", "data")


async def test_eviction_that_is_called_off_leaves_the_guest_alone(cloud: Cloud) -> None:
    """Upstream: kubevirt/kubevirt#9585, an eviction that could not move a guest never ended."""
    await _set_strategy(cloud, "External")
    before = cloud.run()
    await cloud.sim.evict(WEB)
    await cloud.compute.eventually(lambda: _holds(cloud, "Evicting"), "the eviction is told")

    path = f"/apis/{SUBRESOURCES_GROUP}/v1/namespaces/default/virtualmachineinstances/web"
    await cloud.sim.client.raw("PUT", f"{path}/evacuate/cancel", accept=ANY_ANSWER)
    await cloud.compute.eventually(lambda: not _holds(cloud, "Evicting"), "it is called off")

    assert (cloud.run().uid, cloud.run().node_name) == (before.uid, before.node_name)


@pytest.mark.parametrize(("strategy", "moves"), [("External", False), ("LiveMigrate", True)])
async def test_drained_node_ends_no_run(cloud: Cloud, strategy: str, moves: bool) -> None:
    """Upstream: kubermatic/kubermatic#14449, a guest was deleted while it was being moved.

    Who drains with `External` moves the guest himself, as by an Operation.
    """
    await _set_strategy(cloud, strategy)
    before = cloud.run()

    await cloud.sim.evict(WEB)
    await cloud.converged()
    assert (cloud.run().node_name != before.node_name) is moves
    if not moves:
        assert (await cloud.operate("Migrate"))["phase"] == "Succeeded"

    after = await cloud.running()
    assert after.uid == before.uid and after.node_name != before.node_name
    assert cloud.deletions() == 0


async def test_disk_whose_data_volume_was_collected_is_replaced_and_deleted(cloud: Cloud) -> None:
    """Upstream: kubermatic/kubermatic#11827: CDI before 1.62 leaves the claim alone behind."""
    cloud.annotate_new(DATA_VOLUME, "collect", "true")
    for name in ("first", "second"):
        status = await cloud.operate("Rebuild", name)
        assert status["phase"] == "Succeeded", status
    assert cloud.machine().disks["root"] not in _list_disks(cloud), "it was not collected"

    def is_replaced() -> bool:
        names = [each["metadata"]["name"] for each in cloud.api.objects(PVC)]
        return names == [cloud.machine().disks["root"]]

    await cloud.compute.eventually(is_replaced, "the claims of both earlier disks are gone")
    cloud.api.delete(INSTANCE, WEB)
    await cloud.compute.eventually(lambda: not cloud.api.objects(PVC), "its disk goes with it")


async def test_disk_whose_data_volume_was_collected_is_kept_where_that_is_asked_for(
    cloud: Cloud,
) -> None:
    """The same, with an Instance that leaves its disk behind: it has to let go of the claim."""
    cloud.annotate_new(DATA_VOLUME, "collect", "true")
    cloud.api.patch(INSTANCE, WEB, {"spec": {"deletionPolicy": {"rootDisk": "Retain"}}})
    assert (await cloud.operate("Rebuild"))["phase"] == "Succeeded"
    disk = cloud.machine().disks["root"]
    assert disk not in _list_disks(cloud), "it was not collected"

    cloud.api.delete(INSTANCE, WEB)
    await cloud.compute.eventually(lambda: cloud.api.find(INSTANCE, WEB) is None, "it can go")

    claim = cloud.api.get(PVC, Key("default", disk))
    assert not claim["metadata"].get("ownerReferences")
    assert KEPT_FOR not in (claim["metadata"].get("annotations") or {})


async def test_volume_of_a_machine_that_vanished_is_used_by_the_next(cloud: Cloud) -> None:
    """Upstream: kubevirt/csi-driver#83: no volume could be detached from a machine that was gone.

    Nothing here keeps a list of what is attached: the template of the machine is the list.
    """
    cloud.api.create(_build_claim())
    volumes = [{"name": "data", "claim": "data"}]
    cloud.api.patch(INSTANCE, WEB, {"spec": {"volumes": volumes}})
    await cloud.compute.eventually(lambda: "data" in _list_volumes(cloud), "it is attached")
    before, volumes_before = cloud.machine(), _list_volumes(cloud)

    for kind in (VIRTUAL_MACHINE_INSTANCE, VIRTUAL_MACHINE):
        cloud.api.vanish(kind, WEB)
    await cloud.compute.eventually(lambda: _is_new(cloud, before.uid), "there is another machine")
    await cloud.converged()

    assert cloud.run().ready
    assert _list_volumes(cloud) == volumes_before
    cloud.api.delete(INSTANCE, WEB)
    await cloud.compute.eventually(lambda: cloud.api.find(INSTANCE, WEB) is None, "it can go")
    assert cloud.api.get(PVC, DATA), "the claim of the user stays"


async def _set_strategy(cloud: Cloud, strategy: str) -> None:
    """Give the machine an eviction strategy, which a run has from its beginning."""
    cloud.api.patch(INSTANCE, WEB, {"spec": {"evictionStrategy": strategy}})
    await cloud.converged()
    cloud.api.delete(VIRTUAL_MACHINE_INSTANCE, WEB)
    await cloud.converged()
    await cloud.running()
    vmi = cloud.api.get(VIRTUAL_MACHINE_INSTANCE, WEB)
    assert vmi["spec"]["evictionStrategy"] == strategy
    cloud.api.requests.clear()


def _holds(cloud: Cloud, condition: str) -> bool:
    found = find_condition(cloud.api.get(INSTANCE, WEB), condition)
    return found is not None and found["status"] == "True"


def _is_new(cloud: Cloud, uid: str) -> bool:
    held = cloud.api.find(VIRTUAL_MACHINE, WEB)
    return held is not None and held["metadata"]["uid"] != uid


def _list_disks(cloud: Cloud) -> list[str]:
    return [each["metadata"]["name"] for each in cloud.api.objects(DATA_VOLUME)]


def _list_volumes(cloud: Cloud) -> list[str]:
    machine = cloud.api.get(VIRTUAL_MACHINE, WEB)
    return [each["name"] for each in machine["spec"]["template"]["spec"]["volumes"]]


def _build_claim() -> Manifest:
    return build_object(
        PVC,
        DATA.name,
        DATA.namespace,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        status={"phase": "Bound"},
    )
