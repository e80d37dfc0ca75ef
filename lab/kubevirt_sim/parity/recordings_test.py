"""The simulator writes objects of the shape that the real KubeVirt and CDI write.

Each recording is an object of a real cluster. The same is done on the simulator, and the two are
compared structurally: fields, types of values, conditions with reason and which of their times are
set. The simulator may leave fields out that `LEFT_OUT` names; it must not make any up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from lab.kubevirt_sim.parity.site import Site, build_machine, open_simulated
from libs.common.conditions import find_condition
from libs.common.kinds import Key, Manifest, build_object
from libs.common.reading import holds_at, maps_at, text_at
from libs.common.testing.blurring import TIME, UID
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DataVolumeView
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT

FOLDER: Final = Path(__file__).with_name("recordings")

LEFT_OUT: Final[Mapping[str, frozenset[str]]] = {
    "VirtualMachine": frozenset(),
    "VirtualMachineInstance": frozenset(
        {
            "guestOSInfo",  # Nothing is known of a guest that does not run.
            "interfaces[].linkState",
            "launcherContainerImageVersion",
            "machine",
            "machine.type",
            "memory.memoryOverhead",
            "qosClass",
            "runtimeUser",
            "selinuxContext",
        }
    ),
    "DataVolume": frozenset(),
    "VirtualMachineSnapshot": frozenset(),
}
"""Fields of a status that the simulator does not write."""


def load(name: str) -> Manifest:
    manifest: Manifest = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return manifest


def shape(value: Any, path: str = "") -> Iterator[str]:
    """List the paths of a value with the types of their leaves; conditions are left out."""
    if isinstance(value, Mapping):
        if path:
            yield path
        for name, part in value.items():
            if name == "conditions":
                continue
            named = "*" if UID.fullmatch(name) else name
            yield from shape(part, f"{path}.{named}" if path else named)
    elif isinstance(value, list):
        for part in value:
            yield from shape(part, f"{path}[]")
    else:
        yield f"{path}: {_type(value)}"


def _type(value: Any) -> str:
    if isinstance(value, str):
        return "time" if TIME.fullmatch(value) else "text"
    return type(value).__name__


def conditions(manifest: Manifest) -> dict[str, tuple[Any, ...]]:
    """Return status, reason and the set times of each condition."""
    return {
        each["type"]: (
            each["status"],
            each.get("reason", ""),
            sorted(name for name in each if name.startswith("last") and each[name]),
        )
        for each in maps_at(manifest, "status", "conditions")
    }


def compare(recorded: Manifest, simulated: Manifest) -> list[str]:
    """Return in what the status of the simulator differs from a recorded one."""
    wanted, found = set(shape(recorded["status"])), set(shape(simulated["status"]))
    left_out = LEFT_OUT[recorded["kind"]]
    missing = {each for each in wanted - found if each.partition(":")[0] not in left_out}
    differences = [f"made up: {each}" for each in sorted(found - wanted)]
    differences += [f"missing: {each}" for each in sorted(missing)]
    real, ours = conditions(recorded), conditions(simulated)
    for type_ in sorted({*real, *ours}):
        if real.get(type_) != ours.get(type_):
            differences.append(f"{type_}: real {real.get(type_)}, simulated {ours.get(type_)}")
    return differences


async def start(site: Site) -> None:
    """Start a machine as it was recorded: a ReadWriteOnce disk and cloud-init."""
    await site.fill_disk()
    vm = build_machine(site.namespace, "root")
    template = vm["spec"]["template"]["spec"]
    template["domain"]["devices"]["disks"].append({"name": "cloud-init", "disk": {}})
    secret = {"cloudInitNoCloud": {"secretRef": {"name": "web"}}}
    template["volumes"].append({"name": "cloud-init", **secret})
    await site.client.create(VIRTUAL_MACHINE, vm)
    await site.until_running()

    async def connected() -> bool:
        return holds_at(await site.machine(), "AgentConnected")

    await site.until(connected, "the agent is connected")


async def refused_disk(site: Site) -> Manifest:
    await site.create_disk()

    async def probe() -> Manifest | None:
        disk = await site.disk()
        return disk if find_condition(disk, "Ready") else None

    return await site.until(probe, "the disk is refused")


async def filled_disk(site: Site) -> Manifest:
    await site.fill_disk()
    return await site.disk()


async def _spoil_disk(site: Site, fault: str) -> Manifest:
    await site.create_disk(accessModes=["ReadWriteOnce"], fault=fault)

    async def probe() -> Manifest | None:
        disk = await site.disk()
        return disk if DataVolumeView.parse(disk).last_error else None

    return await site.until(probe, "CDI reports its error")


async def failed_disk(site: Site) -> Manifest:
    return await _spoil_disk(site, "fail")


async def retrying_disk(site: Site) -> Manifest:
    return await _spoil_disk(site, "error")


async def cut_off_disk(site: Site) -> Manifest:
    return await _spoil_disk(site, "pull")


async def small_disk(site: Site) -> Manifest:
    return await _spoil_disk(site, "small")


async def disk_without_importer(site: Site) -> Manifest:
    return await _spoil_disk(site, "quota")


async def running_machine(site: Site) -> Manifest:
    await start(site)
    return await site.machine()


async def running_instance(site: Site) -> Manifest:
    await start(site)
    return await site.instance()


async def resized_instance(site: Site) -> Manifest:
    await start(site)
    await site.change({"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}})

    async def probe() -> Manifest | None:
        vmi = await site.instance()
        return vmi if holds_at(vmi, "HotVCPUChange") else None

    return await site.until(probe, "the hot-plug is pending")


async def halted_machine(site: Site) -> Manifest:
    await start(site)
    return await site.halt(template={"spec": {"hostname": "other"}})


async def partial_snapshot(site: Site) -> Manifest:
    await start(site)
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}
    snapshot = build_object(MACHINE_SNAPSHOT, "before", site.namespace, spec={"source": source})
    await site.client.create(MACHINE_SNAPSHOT, snapshot)

    async def probe() -> Manifest | None:
        held = await site.client.get(MACHINE_SNAPSHOT, Key(site.namespace, "before"))
        return held if text_at(held, "status", "phase") == "Succeeded" else None

    return await site.until(probe, "the snapshot is ready")


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("datavolume-refused", refused_disk),
        ("datavolume-filled", filled_disk),
        ("datavolume-failed", failed_disk),
        ("datavolume-retrying", retrying_disk),
        ("datavolume-cut-off", cut_off_disk),
        ("datavolume-small", small_disk),
        ("datavolume-no-importer", disk_without_importer),
        ("machine-running", running_machine),
        ("machine-halted", halted_machine),
        ("instance-running", running_instance),
        ("instance-resized", resized_instance),
        ("snapshot-partial", partial_snapshot),
    ],
)
async def test_simulator_writes_what_was_recorded(name: str, act: Any, fake_api: FakeApi) -> None:
    async with open_simulated(fake_api) as site:
        simulated = await act(site)

    assert compare(load(name), simulated) == []


def test_every_recording_is_used_and_says_where_it_is_from() -> None:
    for path in FOLDER.iterdir():
        first = path.read_text().splitlines()[0]
        assert re.match(r"# Recorded on KubeVirt .* and CDI v[\d.]+", first), path.name
    assert len(list(FOLDER.iterdir())) == 12
