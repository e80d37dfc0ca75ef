"""Cases of instancetypes and preferences; read in KubeVirt d923fdb (1.9.0-rc.2)."""

from __future__ import annotations

from typing import Any, Final

from lab.kubevirt_sim.parity.site import WEB, Site, build_machine, read, refused
from libs.common.conditions import find_condition
from libs.common.kinds import CONTROLLER_REVISION, Key, Manifest, build_object, uid_of
from libs.common.reading import holds_at, map_at, text_at, text_map_at
from libs.contracts.instancetypes import INSTANCETYPE, PREFERENCE
from libs.contracts.kubevirt import VIRTUAL_MACHINE

TINY: Final = {"kind": INSTANCETYPE.kind, "name": "tiny"}
SPREAD: Final = {"kind": PREFERENCE.kind, "name": "cores"}


async def create_type(site: Site, name: str = "tiny", cpus: int = 1, memory: str = "64Mi") -> None:
    """Create an instancetype in the namespace of the case."""
    spec = {"cpu": {"guest": cpus}, "memory": {"guest": memory}}
    await site.client.create(
        INSTANCETYPE, build_object(INSTANCETYPE, name, site.namespace, spec=spec)
    )


async def create_preference(site: Site, **spec: Any) -> None:
    """Create a preference in the namespace of the case."""
    await site.client.create(
        PREFERENCE, build_object(PREFERENCE, "cores", site.namespace, spec=spec)
    )


def build_typed(site: Site, *, strategy: str = "Always", **names: Any) -> Manifest:
    """Build a machine without resources of its own that names an instancetype."""
    vm = build_machine(site.namespace, strategy=strategy)
    domain = vm["spec"]["template"]["spec"]["domain"]
    del domain["cpu"], domain["memory"]
    vm["spec"] |= names
    return vm


async def until_kept(site: Site, name: str) -> str:
    """Wait until the machine has a revision of an instancetype; returns the revision."""

    async def probe() -> str:
        held = map_at(await site.machine(), "status", "instancetypeRef")
        same = text_at(held, "name") == name
        return text_at(held, "controllerRevisionRef", "name") if same else ""

    return await site.until(probe, f"a revision of {name} is kept")


async def until_failed(site: Site, reason: str) -> str:
    """Wait until the machine has the condition Failure for a reason; returns its message."""

    async def probe() -> str:
        status, found, message = read(await site.machine(), "Failure")
        return message if (status, found) == ("True", reason) else ""

    return await site.until(probe, f"the machine failed with {reason}")


async def test_instancetype_sizes_the_instance_and_is_kept(site: Site) -> None:
    """An instancetype gives an instance its size and is kept in a ControllerRevision."""
    await create_type(site, cpus=2)
    await site.client.create(VIRTUAL_MACHINE, build_typed(site, instancetype=TINY))
    vmi = await site.until_running()
    cpu = vmi["spec"]["domain"]["cpu"]
    assert (cpu["sockets"], cpu["cores"], cpu["threads"]) == (2, 1, 1)
    assert vmi["spec"]["domain"]["memory"]["guest"] == "64Mi"
    notes = text_map_at(vmi, "metadata", "annotations")
    assert notes["kubevirt.io/instancetype-name"] == "tiny"
    held = await site.client.get(INSTANCETYPE, Key(site.namespace, "tiny"))
    name = await until_kept(site, "tiny")
    assert name == f"{WEB}-tiny-v1beta1-{uid_of(held)}-{held['metadata']['generation']}"
    revision = await site.client.get(CONTROLLER_REVISION, Key(site.namespace, name))
    labels = text_map_at(revision, "metadata", "labels")
    assert labels["instancetype.kubevirt.io/object-name"] == "tiny"
    domain = (await site.machine())["spec"]["template"]["spec"]["domain"]
    assert not map_at(domain, "cpu") and not map_at(domain, "memory").get("guest")


async def test_revision_outlives_a_change_and_a_deletion(site: Site) -> None:
    """What a machine named once stays as it was, changed or deleted since, over a restart."""
    await create_type(site)
    await site.client.create(VIRTUAL_MACHINE, build_typed(site, instancetype=TINY))
    await site.until_running()
    kept, key = await until_kept(site, "tiny"), Key(site.namespace, "tiny")
    held = await site.client.patch(INSTANCETYPE, key, {"spec": {"cpu": {"guest": 2}}})
    await site.client.delete(INSTANCETYPE, key, uid=uid_of(held))
    await site.until_gone(INSTANCETYPE, key)
    await site.halt()
    await site.change({"runStrategy": "Always"})
    vmi = await site.until_running()
    assert vmi["spec"]["domain"]["cpu"]["sockets"] == 1
    assert await until_kept(site, "tiny") == kept
    assert find_condition(await site.machine(), "Failure") is None


async def test_missing_instancetype_is_accepted_and_fails(site: Site) -> None:
    """A machine that names what does not exist is accepted, and fails until it exists."""
    await site.client.create(VIRTUAL_MACHINE, build_typed(site, instancetype=TINY))
    assert '"tiny" not found' in await until_failed(site, "FailedFindInstancetype")
    await create_type(site)
    await site.until_running()
    assert not holds_at(await site.machine(), "Failure")


async def test_machine_with_a_missing_preference_is_not_stopped(site: Site) -> None:
    """KubeVirt does nothing for a machine that names what does not exist: it is not stopped."""
    before = await site.start_machine()
    await site.change({"preference": SPREAD, "runStrategy": "Halted"})
    assert '"cores" not found' in await until_failed(site, "FailedFindPreference")
    vmi = await site.instance()
    assert uid_of(vmi) == uid_of(before) and "deletionTimestamp" not in vmi["metadata"]
    await create_preference(site)
    await site.halt()


async def test_more_processors_reach_a_running_instance(site: Site) -> None:
    """Another instancetype with more processors is applied to the running instance."""
    await create_type(site)
    await create_type(site, "wide", cpus=2)
    await site.client.create(VIRTUAL_MACHINE, build_typed(site, instancetype=TINY))
    await site.until_running()
    await site.change({"instancetype": {**TINY, "name": "wide"}})

    async def probe() -> Manifest | None:
        vmi = await site.instance()
        sockets = vmi["spec"]["domain"]["cpu"]["sockets"] == 2
        return vmi if sockets and holds_at(vmi, "HotVCPUChange") else None

    vmi = await site.until(probe, "the instance is given the sockets")
    assert vmi["status"]["currentCPUTopology"]["sockets"] == 1, "until it migrates"
    # The annotation still names the one that it was started with.
    notes = text_map_at(vmi, "metadata", "annotations")
    assert notes["kubevirt.io/instancetype-name"] == "tiny"


async def test_fewer_processors_wait_for_a_restart(site: Site) -> None:
    """Another instancetype with fewer processors requires a restart."""
    await create_type(site)
    await create_type(site, "wide", cpus=2)
    typed = build_typed(site, instancetype={**TINY, "name": "wide"})
    await site.client.create(VIRTUAL_MACHINE, typed)
    await site.until_running()
    await site.change({"instancetype": TINY})
    text = "Reduction of CPU socket count requires a restart"

    async def probe() -> bool:
        return read(await site.machine(), "RestartRequired")[::2] == ("True", text)

    await site.until(probe, "a restart is required")


async def test_preference_chooses_the_topology(site: Site) -> None:
    """The processors of an instancetype become cores if the preference says so."""
    await create_type(site, cpus=2)
    await create_preference(site, cpu={"preferredCPUTopology": "cores"})
    typed = build_typed(site, instancetype=TINY, preference=SPREAD)
    await site.client.create(VIRTUAL_MACHINE, typed)
    cpu = (await site.until_running())["spec"]["domain"]["cpu"]
    assert (cpu["sockets"], cpu["cores"]) == (1, 2)


async def test_resources_with_an_instancetype_are_refused(site: Site) -> None:
    """Processors and memory in a template conflict with an instancetype."""
    await create_type(site)
    vm = build_machine(site.namespace, strategy="Halted")
    vm["spec"]["instancetype"] = TINY
    words = "conflicts with selected instance type"
    fields = ("domain.cpu.sockets", "domain.memory.guest")
    await refused(site.client.create(VIRTUAL_MACHINE, vm), 422, words, *fields)


async def test_preference_requires_processors(site: Site) -> None:
    """A machine is refused whose instancetype gives less than its preference requires."""
    await create_type(site)
    await create_preference(site, requirements={"cpu": {"guest": 2}})
    typed = build_typed(site, strategy="Halted", instancetype=TINY, preference=SPREAD)
    words = "insufficient CPU resources of 1 vCPU provided by instance type"
    await refused(site.client.create(VIRTUAL_MACHINE, typed), 422, words)
