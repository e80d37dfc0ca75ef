"""What a test wants of one machine, disk or node: annotations of the group `sim.slipway.dev`.

They stand on the template of a VirtualMachine (KubeVirt copies them to each instance), on a
DataVolume, on a migration or on a Node. A value that cannot be read counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from lab.kubevirt_sim.timing import Timing
from libs.common.reading import map_at, text_at, text_map_at

PREFIX: Final = "sim.slipway.dev/"
"""Prefix of all annotations that the simulator reads."""
SILENT: Final = PREFIX + "silent"
"""Annotation of a Node that, set to `true`, has it stop: no heartbeat, nothing starts or ends."""
SIMULATED_NODE: Final = PREFIX + "node"
"""Label of the nodes that the simulator plays."""
SCHEDULER: Final = "kubevirt-sim"
"""Scheduler of the pods that the simulator runs itself."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The behavior of the guest of a machine.

    Attributes:
        boot: Seconds until it runs (`boot-seconds`).
        crash: `boot` for one that never comes to run, `run` for one that has crashed (`guest`).
        power: `shutdown` for one that has powered itself off, `reboot` is not seen from outside.
        agent: Whether it has a guest agent (`agent`: `true` or `false`).
        agent_delay: Seconds until the agent is connected (`agent-seconds`).
        reboots: How often it has rebooted by itself (`reboots`, which the simulator writes).
        ignores_acpi: Whether it ignores the power button (`ignores-acpi`).
        shutdown: Seconds to power off (`shutdown-seconds`).
        image: `ErrImagePull` or `ImagePullBackOff` for a launcher that cannot start (`image`).
        unschedulable: Whether no node fits (`unschedulable`).
        migratable: Reason for which it cannot be migrated; empty when it can (`not-migratable`).
        address_delay: Seconds for which no address shows after a migration (`address-seconds`).
    """

    boot: float
    crash: str
    power: str
    agent: bool
    agent_delay: float
    reboots: str
    ignores_acpi: bool
    shutdown: float
    image: str
    unschedulable: bool
    not_migratable: str
    address_delay: float

    @classmethod
    def parse(cls, manifest: Mapping[str, Any], timing: Timing) -> Self:
        """Read the annotations of an instance."""
        notes = _notes(manifest)
        guest = notes.get("guest", "")
        return cls(
            boot=_seconds(notes, "boot-seconds", timing.boot),
            crash={"crash-at-boot": "boot", "crash": "run"}.get(guest, ""),
            power=guest if guest == "shutdown" else "",
            agent=notes.get("agent", "true") != "false",
            agent_delay=_seconds(notes, "agent-seconds", timing.agent),
            reboots=notes.get("reboots", "0"),
            ignores_acpi=notes.get("ignores-acpi") == "true",
            shutdown=_seconds(notes, "shutdown-seconds", timing.shutdown),
            image=notes.get("image", ""),
            unschedulable=notes.get("unschedulable") == "true",
            not_migratable=notes.get("not-migratable", ""),
            address_delay=_seconds(notes, "address-seconds", 0.0),
        )


@dataclass(frozen=True, slots=True)
class Copy:
    """The behavior of a live migration.

    Attributes:
        seconds: How long the copy takes (`migrate-seconds`).
        outcome: `succeed`, `fail` or `stall` (`migration`).
        window: Readiness of the two pods during the copy (`window`): `both-ready`, `none-ready` or
            `source-ready`; what KubeVirt does differs by release.
    """

    seconds: float
    outcome: str
    window: str

    @classmethod
    def parse(
        cls, migration: Mapping[str, Any], instance: Mapping[str, Any], timing: Timing
    ) -> Self:
        """Read the annotations of a migration, and of its instance if it has none."""
        notes = {**_notes(instance), **_notes(migration)}
        return cls(
            seconds=_seconds(notes, "migrate-seconds", timing.migrate),
            outcome=notes.get("migration", "succeed"),
            window=notes.get("window", "both-ready"),
        )


@dataclass(frozen=True, slots=True)
class Import:
    """The course of the import of a disk.

    Attributes:
        seconds: How long it takes (`import-seconds`).
        outcome: `succeed`, `fail` (the phase Failed), `quota` (no importer can be created),
            `error`, `pull` and `small` (the importer begins again and again) or `stall`
            (`import`).
        boots: Whether a guest can boot from it (`boots`: `false`, or `no-boot` in its URL).
        collected: Whether CDI deletes the DataVolume once it is done, as before 1.62 (`collect`).
    """

    seconds: float
    outcome: str
    boots: bool
    collected: bool

    @classmethod
    def parse(cls, manifest: Mapping[str, Any], timing: Timing) -> Self:
        """Read the annotations of a DataVolume."""
        notes = _notes(manifest)
        source = map_at(manifest, "spec", "source")
        urls = [text_at(source, kind, "url") for kind in source]
        return cls(
            seconds=_seconds(notes, "import-seconds", timing.import_disk),
            outcome=notes.get("import", "succeed"),
            boots=notes.get("boots") != "false" and not any("no-boot" in url for url in urls),
            collected=notes.get("collect") == "true",
        )


def is_silent(node: Mapping[str, Any]) -> bool:
    """Return whether a node has stopped."""
    return text_map_at(node, "metadata", "annotations").get(SILENT) == "true"


def _notes(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX): value
        for name, value in text_map_at(manifest, "metadata", "annotations").items()
        if name.startswith(PREFIX)
    }


def _seconds(notes: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(notes[name])
    except (KeyError, ValueError):
        return default
    return seconds if seconds >= 0 else default
