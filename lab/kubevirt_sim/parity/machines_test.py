"""Cases of machines: generations, live updates, readiness, migrations, actions."""

from __future__ import annotations

from typing import Final

from lab.kubevirt_sim.parity.site import Site, build_machine, read, refused
from libs.common.conditions import find_condition
from libs.common.kinds import CONTROLLER_REVISION, POD, Key, Manifest, build_object, uid_of
from libs.common.reading import holds_at, map_at, maps_at, text_at, text_map_at
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)

NOT_LIVE: Final = "a non-live-updatable field was changed in the template spec"
CORES: Final = {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}
SOCKETS: Final = {"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}


def behind(vm: Manifest) -> tuple[int | None, int | None]:
    """Return by how much the wanted and the observed generation are behind; None if not known.

    KubeVirt itself writes into a template (annotations of the PCI topology), so that the figures
    themselves differ between clusters.
    """
    now, status = int(vm["metadata"]["generation"]), map_at(vm, "status")
    names = ("desiredGeneration", "observedGeneration")
    desired, observed = (None if name not in status else now - status[name] for name in names)
    return desired, observed


async def until_behind(site: Site, wanted: tuple[int | None, int | None]) -> Manifest:
    """Wait until the generations are behind by so much; returns the machine."""

    async def probe() -> Manifest | None:
        vm = await site.machine()
        return vm if behind(vm) == wanted else None

    return await site.until(probe, f"the generations are behind by {wanted}")


async def test_running_machine_reports_its_generation(site: Site) -> None:
    """A machine that runs reports the generation of its instance."""
    await site.start_machine()
    vm = await until_behind(site, (0, 0))
    vmi = await site.instance()
    observed = vm["status"]["observedGeneration"]
    assert vmi["metadata"]["annotations"]["kubevirt.io/vm-generation"] == str(observed)
    name = text_at(vmi, "status", "virtualMachineRevisionName")
    assert name.startswith(f"revision-start-vm-{uid_of(vm)}-")
    revision = await site.client.get(CONTROLLER_REVISION, Key(site.namespace, name))
    assert text_at(revision, "data", "spec", "runStrategy") == "Always"
    assert vm["status"]["runStrategy"] == "Always"


async def test_machine_that_never_ran_reports_nothing(site: Site) -> None:
    """A machine that never ran has neither generations nor a run strategy in its status."""
    await site.create_machine(strategy="Halted")

    async def probe() -> Manifest | None:
        vm = await site.machine()
        return vm if text_at(vm, "status", "printableStatus") == "Stopped" else None

    vm = await site.until(probe, "the machine is stopped")
    assert behind(vm) == (None, None)
    assert "runStrategy" not in vm["status"]
    assert read(vm, "Ready") == ("False", "VMINotExists", "VMI does not exist")


async def test_stop_alone_is_observed(site: Site) -> None:
    """A change of the run strategy alone raises the observed generation before the stop."""
    await site.start_machine()
    vm = await site.halt()
    assert behind(vm) == (0, 0)
    assert vm["status"]["runStrategy"] == "Halted"


async def test_change_with_a_stop_is_never_observed(site: Site) -> None:
    """A template change in the same write as a stop leaves the observed generation behind."""
    await site.start_machine()
    await until_behind(site, (0, 0))
    vm = await site.halt(**CORES)
    assert behind(vm) == (0, 1)
    assert vm["status"]["runStrategy"] == "Halted"
    assert read(vm, "RestartRequired")[::2] == ("True", NOT_LIVE), "it outlives the instance"


async def test_change_while_off_is_not_observed(site: Site) -> None:
    """A template change while the machine is off shows only after the next start."""
    await site.start_machine()
    await site.halt()
    await site.change(SOCKETS)
    vm = await site.machine()
    assert behind(vm) == (1, 1)
    await site.change({"runStrategy": "Always"})
    await site.until_running()
    vm = await until_behind(site, (0, 0))
    assert find_condition(vm, "RestartRequired") is None


async def test_change_waits_for_a_restart(site: Site) -> None:
    """A change that is not live requires a restart, until it is reverted."""
    await site.start_machine()
    await until_behind(site, (0, 0))
    await site.change(CORES)

    async def required() -> bool:
        return read(await site.machine(), "RestartRequired")[::2] == ("True", NOT_LIVE)

    await site.until(required, "a restart is required")
    assert map_at(await site.instance(), "spec", "domain", "cpu")["cores"] == 1
    await site.change({"template": {"spec": {"domain": {"cpu": {"cores": 1}}}}})

    async def untrue() -> bool:
        return find_condition(await site.machine(), "RestartRequired") is None

    await site.until(untrue, "no restart is required")
    await until_behind(site, (0, 0))


async def test_new_sockets_wait_for_a_migration(site: Site) -> None:
    """New sockets reach the instance, not its guest; the next change fails meanwhile."""
    await site.start_machine()
    await site.change(SOCKETS)

    async def probe() -> Manifest | None:
        vm, vmi = await site.machine(), await site.instance()
        return vmi if holds_at(vmi, "HotVCPUChange") and holds_at(vm, "HotVCPUChange") else None

    vmi = await site.until(probe, "a CPU hot-plug is pending")
    assert map_at(vmi, "spec", "domain", "cpu")["sockets"] == 2
    assert map_at(vmi, "spec", "domain", "cpu")["maxSockets"] == 4
    assert map_at(vmi, "status", "currentCPUTopology")["sockets"] == 1
    assert find_condition(await site.machine(), "RestartRequired") is None
    await site.change({"template": {"spec": {"domain": {"cpu": {"sockets": 3}}}}})

    async def failed() -> bool:
        _, reason, message = read(await site.machine(), "Failure")
        return reason == "HotPlugCPUError" and "another CPU hotplug is in progress" in message

    await site.until(failed, "the second hot-plug fails")


async def test_fewer_sockets_require_a_restart(site: Site) -> None:
    """Sockets cannot be taken away from a running guest."""
    vm = build_machine(site.namespace)
    vm["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] = 2
    await site.client.create(VIRTUAL_MACHINE, vm)
    await site.until_running()
    await site.change({"template": {"spec": {"domain": {"cpu": {"sockets": 1}}}}})

    async def probe() -> bool:
        text = "Reduction of CPU socket count requires a restart"
        return read(await site.machine(), "RestartRequired")[::2] == ("True", text)

    await site.until(probe, "a restart is required")


async def test_small_memory_change_requires_a_restart(site: Site) -> None:
    """Memory below 1 GiB cannot be hot-plugged."""
    await site.start_machine()
    await site.change({"template": {"spec": {"domain": {"memory": {"guest": "96Mi"}}}}})

    async def probe() -> bool:
        status, _, message = read(await site.machine(), "RestartRequired")
        return status == "True" and message.startswith("memory updated in template spec")

    await site.until(probe, "a restart is required")


async def test_memory_of_a_large_guest_waits_for_a_migration(site: Site) -> None:
    """From 1 GiB on new memory reaches the instance; its guest has it after a migration."""
    vm = build_machine(site.namespace)
    vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "1Gi"
    await site.client.create(VIRTUAL_MACHINE, vm)
    vmi = await site.until_running()
    assert map_at(vmi, "spec", "domain", "memory")["maxGuest"] == "4Gi"

    async def movable() -> bool:
        return holds_at(await site.instance(), "LiveMigratable")

    await site.until(movable, "the machine can be moved")
    await site.change({"template": {"spec": {"domain": {"memory": {"guest": "2Gi"}}}}})

    async def probe() -> Manifest | None:
        vmi = await site.instance()
        return vmi if holds_at(vmi, "HotMemoryChange") else None

    vmi = await site.until(probe, "a memory hot-plug is pending")
    assert map_at(vmi, "spec", "domain", "memory")["guest"] == "2Gi"
    messages = map_at(vmi, "status", "memory")
    assert (messages["guestAtBoot"], messages["guestCurrent"]) == ("1Gi", "1Gi")
    assert find_condition(await site.machine(), "RestartRequired") is None


async def test_memory_above_the_most_requires_a_restart(site: Site) -> None:
    """A guest gets at most four times the memory that it was started with."""
    vm = build_machine(site.namespace)
    vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "1Gi"
    await site.client.create(VIRTUAL_MACHINE, vm)
    await site.until_running()

    async def movable() -> bool:
        return holds_at(await site.instance(), "LiveMigratable")

    await site.until(movable, "the machine can be moved")
    await site.change({"template": {"spec": {"domain": {"memory": {"guest": "5Gi"}}}}})

    async def required() -> bool:
        status, _, message = read(await site.machine(), "RestartRequired")
        return status == "True" and "greater than the configured maxGuest memory" in message

    await site.until(required, "a restart is required")


async def test_node_selector_is_live(site: Site) -> None:
    """A node selector reaches a running instance."""
    await site.start_machine()
    await site.change({"template": {"spec": {"nodeSelector": {"kubevirt.io/schedulable": "true"}}}})

    async def probe() -> bool:
        return bool(map_at(await site.instance(), "spec", "nodeSelector"))

    await site.until(probe, "the instance has the node selector")
    assert find_condition(await site.machine(), "RestartRequired") is None


async def test_instance_without_a_bootable_disk_is_ready(site: Site) -> None:
    """An instance is ready as soon as QEMU runs, whether anything boots or not."""
    vmi = await site.start_machine()
    assert find_condition(vmi, "AgentConnected") is None
    assert read(vmi, "Ready")[0] == "True"


async def test_instance_reports_its_pod(site: Site) -> None:
    """An instance names node, pod and address; under masquerade the address is of the pod."""
    vmi = await site.start_machine()
    node = text_at(vmi, "status", "nodeName")
    assert text_map_at(vmi, "metadata", "labels")["kubevirt.io/nodeName"] == node
    [(pod_uid, active)] = text_map_at(vmi, "status", "activePods").items()
    assert active == node
    pods = (await site.client.list(POD, site.namespace)).items
    [pod] = [each for each in pods if uid_of(each) == pod_uid]
    labels = text_map_at(pod, "metadata", "labels")
    assert labels["kubevirt.io/created-by"] == uid_of(vmi)
    assert labels["vmi.kubevirt.io/id"] == "web"
    [interface] = maps_at(vmi, "status", "interfaces")
    assert interface["ipAddress"] == text_at(pod, "status", "podIP")
    phases = [each["phase"] for each in maps_at(vmi, "status", "phaseTransitionTimestamps")]
    assert phases == ["Pending", "Scheduling", "Scheduled", "Running"]


async def test_deleted_instance_comes_back(site: Site) -> None:
    """A machine of strategy Always gets another instance after a deletion."""
    first = await site.start_machine()
    await site.client.delete(VIRTUAL_MACHINE_INSTANCE, site.web, uid=uid_of(first))

    async def probe() -> bool:
        vmi = await site.instance()
        return uid_of(vmi) != uid_of(first) and text_at(vmi, "status", "phase") == "Running"

    await site.until(probe, "there is another instance")


async def test_migration_of_nothing_is_refused(site: Site) -> None:
    """A migration of an instance that is not there is refused with 400."""
    kind = VIRTUAL_MACHINE_INSTANCE_MIGRATION
    migration = build_object(kind, "move", site.namespace, spec={"vmiName": "nobody"})
    text = f'the VMI "{site.namespace}/nobody" does not exist'
    await refused(site.client.create(kind, migration), 400, text)


async def test_machine_that_says_twice_whether_it_runs_is_refused(site: Site) -> None:
    """`running` and `runStrategy` exclude each other."""
    vm = build_machine(site.namespace)
    vm["spec"]["running"] = True
    await refused(site.client.create(VIRTUAL_MACHINE, vm), 422, "mutually exclusive")
