"""What happens when a guest ends by itself, on a simulated KubeVirt: shutdown, crash, drain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import POD, Key, Manifest, build_object, key_of
from libs.contracts.kubevirt import (
    CREATED_BY,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiView,
)
from libs.contracts.launchers import LauncherView, shrink_launcher
from operators.compute.api.instance import INSTANCE
from operators.compute.conftest import WEB, Cloud
from operators.compute.instance.observe import shows_shutdown


def reason_of(cloud: Cloud, condition: str = "Running") -> str:
    """Return the reason of a condition of the Instance."""
    found: Mapping[str, str] = find_condition(cloud.api.get(INSTANCE, WEB), condition) or {}
    return found.get("reason", "")


async def end_guest(cloud: Cloud, how: str) -> str:
    """End the guest of the current run; returns the UID of that run."""
    uid = cloud.run().uid
    await cloud.sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, guest=how)
    return uid


async def shut_down(cloud: Cloud) -> str:
    """Have the guest shut itself down, and wait until the Instance says so; returns the run."""
    uid = await end_guest(cloud, "shutdown")
    await cloud.compute.eventually(
        lambda: reason_of(cloud) == "GuestShutDown", "the shutdown is reported"
    )
    return uid


async def until_another_run(cloud: Cloud, uid: str) -> None:
    """Wait until the machine runs again, in a new run than the one of a UID."""

    def probe() -> bool:
        held = cloud.api.get(INSTANCE, WEB)["status"]
        return held.get("phase") == "Running" and held.get("vmiUID") not in ("", None, uid)

    await cloud.compute.eventually(probe, "the machine runs again")


async def test_guest_that_shuts_itself_down_stays_off(cloud: Cloud) -> None:
    uid = await shut_down(cloud)
    await cloud.converged()

    status = cloud.api.get(INSTANCE, WEB)["status"]
    assert (status["phase"], cloud.run().uid, cloud.run().phase) == ("Stopped", uid, "Succeeded")
    assert reason_of(cloud, "Ready") == "GuestShutDown"
    assert "Operation of type Start" in status["message"]


@pytest.mark.parametrize("type_", ["Start", "Reboot"])
async def test_operation_boots_it_again(cloud: Cloud, type_: str) -> None:
    uid = await shut_down(cloud)

    assert (await cloud.operate(type_))["phase"] == "Succeeded"
    await until_another_run(cloud, uid)


async def test_stop_and_start_of_a_guest_that_shut_itself_down(cloud: Cloud) -> None:
    uid = await shut_down(cloud)

    assert (await cloud.operate("Stop", "stop"))["phase"] == "Succeeded"
    assert (await cloud.operate("Start", "start"))["phase"] == "Succeeded"
    await until_another_run(cloud, uid)


async def test_rebuild_of_a_guest_that_shut_itself_down_boots_the_new_disk(cloud: Cloud) -> None:
    uid, disk = await shut_down(cloud), cloud.machine().disks["root"]

    assert (await cloud.operate("Rebuild"))["phase"] == "Succeeded"
    await until_another_run(cloud, uid)
    assert cloud.machine().disks["root"] != disk


async def test_shutdown_is_remembered_after_its_pod_is_collected(cloud: Cloud) -> None:
    """The garbage collector of pods deletes completed ones; that is no reason to boot."""
    uid = await shut_down(cloud)
    for pod in cloud.api.objects(POD):
        if pod["metadata"].get("labels", {}).get(CREATED_BY) == uid:
            cloud.api.delete(POD, key_of(pod))
    await cloud.converged()

    assert (cloud.run().uid, reason_of(cloud)) == (uid, "GuestShutDown")


async def test_choice_to_restart_boots_a_guest_that_is_off(cloud: Cloud) -> None:
    uid = await shut_down(cloud)

    cloud.api.patch(INSTANCE, WEB, {"spec": {"onGuestShutdown": "Restart"}})
    await until_another_run(cloud, uid)
    assert cloud.machine().run_strategy == "Always"


async def test_guest_that_may_restart_does_so_by_itself(cloud: Cloud) -> None:
    cloud.api.patch(INSTANCE, WEB, {"spec": {"onGuestShutdown": "Restart"}})
    await cloud.compute.eventually(
        lambda: cloud.machine().run_strategy == "Always", "KubeVirt is told"
    )
    uid = await end_guest(cloud, "shutdown")

    await until_another_run(cloud, uid)


async def test_guest_that_crashes_boots_again(cloud: Cloud) -> None:
    uid = await end_guest(cloud, "crash")

    await until_another_run(cloud, uid)
    assert cloud.machine().run_strategy == "Once"


async def test_guest_whose_pod_is_evicted_boots_again(cloud: Cloud) -> None:
    """A drain shuts the guest down as well, and nobody in the guest has chosen that."""
    cloud.api.patch(INSTANCE, WEB, {"spec": {"evictionStrategy": "None"}})
    await cloud.converged()
    uid = cloud.run().uid
    [pod] = cloud.api.objects(POD)
    cloud.api.delete(POD, key_of(pod))

    await until_another_run(cloud, uid)


def build_pod(
    name: str, *, node: str = "a", deleting: bool = False, disrupted: bool = False
) -> LauncherView:
    """Build a completed launcher pod."""
    pod = build_object(POD, name, "default", spec={"nodeName": node})
    if deleting:
        pod["metadata"]["deletionTimestamp"] = "2026-11-27T22:12:20Z"
    reason = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    pod["status"] = {"phase": "Succeeded", "conditions": [reason] if disrupted else []}
    return LauncherView.parse(shrink_launcher(pod))


MOVED: Final = {"completed": True, "sourcePod": "old", "targetPod": "new"}
FAILED: Final = {**MOVED, "failed": True}
UNNAMED: Final = {"completed": True, "failed": True}
"""KubeVirt before 1.0 does not name the pods."""


@pytest.mark.parametrize(
    ("migration", "pods", "shut_down"),
    [
        pytest.param({}, [build_pod("old")], True, id="completed"),
        pytest.param({}, [build_pod("old", deleting=True)], False, id="deleted"),
        pytest.param({}, [build_pod("old", disrupted=True)], False, id="node shuts down"),
        pytest.param({}, [], False, id="no pod"),
        pytest.param(MOVED, [build_pod("old"), build_pod("new")], True, id="moved"),
        pytest.param(
            MOVED, [build_pod("old"), build_pod("new", deleting=True)], False, id="moved, deleted"
        ),
        pytest.param(MOVED, [build_pod("old")], False, id="moved, gone"),
        pytest.param(FAILED, [build_pod("old")], True, id="did not move"),
        pytest.param(FAILED, [build_pod("new")], False, id="did not move, gone"),
        pytest.param(UNNAMED, [build_pod("new", node="b")], False, id="names no pods, gone"),
        pytest.param(UNNAMED, [build_pod("old")], True, id="names no pods"),
    ],
)
def test_only_the_pod_of_the_guest_shows_a_shutdown(
    migration: Manifest, pods: list[LauncherView], shut_down: bool
) -> None:
    """KubeVirt keeps the completed pod that a guest left until the run is replaced."""
    status: Manifest = {
        "phase": "Succeeded",
        "nodeName": "a",
        **({"migrationState": migration} if migration else {}),
    }
    run = build_object(VIRTUAL_MACHINE_INSTANCE, "web", "default", status=status)

    assert shows_shutdown(VmiView.parse(run), pods) is shut_down


async def test_machine_keeps_its_strategy_while_its_guest_is_off(cloud: Cloud) -> None:
    """Halted would delete the run, and with it what shows that the guest is off by itself."""
    await shut_down(cloud)
    await cloud.converged()

    held = cloud.api.get(VIRTUAL_MACHINE, Key("default", "web"))
    assert held["spec"]["runStrategy"] == "Once"
