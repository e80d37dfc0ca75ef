"""Workloads of the compute operator: a machine with all it can have, and Operations on it.

KubeVirt, CDI and the other operators are fakes that act immediately. The simulator of KubeVirt
(`lab/kubevirt_sim`), which includes delays, is used in the tests of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from lab.sweep.modes import Mode
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.triggers import Trigger
from lab.sweep.virtualization import (
    GUESTS,
    STUCK,
    VIRTUALIZATION,
    name_instancetype,
    names_instancetype,
)
from lab.sweep.workload import (
    Phase,
    User,
    Workload,
    build_open_crd,
    change,
    is_empty,
    is_observed,
    remove,
)
from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import LEASE, PVC, SECRET, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import map_at, text_at
from libs.common.testing.blurring import blur, blur_hashes
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE_UID_LABEL
from libs.contracts.instancetypes import INSTANCETYPE, MATCHED_KINDS
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT, MACHINE_SNAPSHOT_CONTENT
from libs.contracts.network import FIREWALL, NETWORK
from libs.contracts.volumes import DEMO_VOLUME
from operators.compute.api import RESOURCES
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.controller import OPERATOR
from operators.compute.fake_cluster import RUN_DEPENDENT
from operators.compute.samples import IMAGE

_REPLACEMENTS: Final = (
    *RUN_DEPENDENT,
    blur_hashes("web-root", "reboot", "move", "stuck", "anew", "back"),
)
_SOON: Final = {"waitSeconds": 5}
_TAKEN: Final = {"snapshot": "take"}
_FINAL: Final = {
    # KubeVirt says that this guest cannot be asked, or not by us.
    "virtualmachineinstances.subresources.kubevirt.io/softreboot": {Mode.E409, Mode.E403},
    # Somebody else has the name that the user chose for the snapshot.
    "virtualmachinesnapshots.snapshot.kubevirt.io": {Mode.E409},
}
"""Answers to writes that end an Operation, which asks once."""
_DISK_PHASES: Final = ("rebuild", "restore")
"""Phases whose Operation fails, and leaves the machine alone, if somebody else has the name of the
new disk."""


def is_exempt(mode: Mode, moment: Trigger) -> bool:
    """Return whether a fault ends an Operation as it should, and the run differs from others."""
    if mode is Mode.E409 and moment.target == DATA_VOLUME.resource:
        return moment.phase in _DISK_PHASES
    if mode is Mode.GONE and moment.target == VIRTUAL_MACHINE_INSTANCE_MIGRATION.resource:
        # Somebody deletes the migration after the guest has moved, so it is not asked for again.
        return (moment.phase, moment.action) == ("move", "MODIFIED")
    return mode in _FINAL.get(moment.target, ())


def check_runs(history: Sequence[Version]) -> list[str]:
    """Check that no Instance ever has two runs, nor two machines."""
    live: dict[str, set[str]] = {}
    found = []
    for version in history:
        if version.kind not in (VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE):
            continue
        owner = text_at(version.manifest, "metadata", "labels", INSTANCE_UID_LABEL)
        held = live.setdefault(f"{version.kind.plural} of {owner}", set())
        if version.action == "DELETED":
            held.discard(uid_of(version.manifest))
        else:
            held.add(uid_of(version.manifest))
        if len(held) > 1:
            found.append(f"there are {len(held)} {version.kind.plural} of one Instance")
    return found


def check_disks(history: Sequence[Version]) -> list[str]:
    """Check that no disk is deleted while a run uses it."""
    used: dict[str, str] = {}
    found = []
    for version in history:
        if version.kind == VIRTUAL_MACHINE_INSTANCE:
            volumes = version.manifest["spec"]["volumes"]
            used[uid_of(version.manifest)] = volumes[0]["dataVolume"]["name"]
            if version.action == "DELETED":
                del used[uid_of(version.manifest)]
            continue
        going = version.kind == PVC and is_deleting(version.manifest)
        if going and version.name in used.values():
            found.append(f"{version.title} goes while a machine runs from it")
    return found


async def _prepare(user: User) -> None:
    for name, cpus, memory in (("small", 2, "4Gi"), ("large", 4, "8Gi")):
        spec = {"cpus": cpus, "memory": memory, "disk": "10Gi"}
        await user.create(INSTANCE_SIZE, user.scoped(name), spec)


async def _create(user: User) -> None:
    await _prepare(user)
    await user.create(FIREWALL, "web", {})
    spec = {
        "size": user.scoped("small"),
        "image": dict(IMAGE),
        "firewallRef": {"name": "web"},
        "publicIP": {"mode": "Auto", "poolName": "public", "ports": [{"name": "ssh", "port": 22}]},
        "ssh": {"authorizedKeys": ["ssh-ed25519 AAAA ada"]},
    }
    await user.create(INSTANCE, "web", spec)


async def _change(user: User) -> None:
    spec = {
        "size": user.scoped("large"),
        "deletionPolicy": {"rootDisk": "Retain", "publicIP": "Retain"},
        "ssh": {"authorizedKeys": ["ssh-ed25519 AAAA bob"]},
    }
    await user.patch(INSTANCE, "web", {"spec": spec})


async def _fill(user: User) -> None:
    """Let the address go, and leave the claim of the disk as CDI does."""
    spec = {
        "deletionPolicy": {"rootDisk": "Delete"},
        "publicIP": {"mode": "None", "poolName": None, "ports": None},
    }
    await user.patch(INSTANCE, "web", {"spec": spec})
    await _add_claim(user)


async def _add_claim(user: User) -> None:
    (disk,) = await user.list(DATA_VOLUME)
    resources = {"requests": {"storage": "10Gi"}}
    metadata = {"name": "web-root", "labels": disk["metadata"]["labels"]}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    await user.add(PVC, {"metadata": metadata, "spec": spec})


async def _collect(user: User) -> None:
    """Delete the DataVolume, as CDI before 1.62 does once it is filled."""
    await user.delete(DATA_VOLUME, "web-root")


_stop = change(INSTANCE, "web", power="Stopped")
_start = change(INSTANCE, "web", power="Running")


async def _delete(user: User) -> None:
    await user.delete(INSTANCE, "web")
    for named in await user.list(INSTANCETYPE):
        await user.delete(INSTANCETYPE, named["metadata"]["name"])
    await user.delete(FIREWALL, "web")
    for operation in await user.list(OPERATION):
        await user.delete(OPERATION, operation["metadata"]["name"])
    await _delete_sizes(user)


async def _delete_sizes(user: User) -> None:
    for name in ("small", "large"):
        await user.delete(INSTANCE_SIZE, user.scoped(name))


async def _create_plain(user: User, **spec: Any) -> None:
    await _prepare(user)
    wanted = {"size": user.scoped("small"), "image": dict(IMAGE), **spec}
    await user.create(INSTANCE, "web", wanted)


async def _create_retaining(user: User) -> None:
    """Its other disk may belong to a node, which decides where the root disk is."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "of-a-node",
    }
    await user.add(PVC, {"metadata": {"name": "data"}, "spec": spec})
    volumes = [{"name": "data", "claim": "data"}]
    await _create_plain(user, volumes=volumes, deletionPolicy={"rootDisk": "Retain"})


async def _delete_left(user: User) -> None:
    for name in ("data", "web-root"):
        await user.delete(PVC, name)
    await _delete_sizes(user)


def _ask(type_: str, name: str, **spec: Any) -> Callable[[User], Any]:
    async def act(user: User) -> None:
        await user.create(OPERATION, name, {"type": type_, "targetRef": {"name": "web"}, **spec})

    return act


async def _delete_snapshots(user: User) -> None:
    await _delete(user)
    for snapshot in await user.list(MACHINE_SNAPSHOT):
        await user.delete(MACHINE_SNAPSHOT, snapshot["metadata"]["name"])


_cancel = change(OPERATION, STUCK, cancel=True)


def has_phase(phase: str, further: Callable[[NamespaceRecord], bool] = lambda _: True) -> Any:
    """Return a condition: the Instance is in a phase, and the status is about its newest spec."""

    def check(record: NamespaceRecord) -> bool:
        instance = record.get(INSTANCE, "web")
        seen = is_observed(instance, ready=False)
        return seen and text_at(instance or {}, "status", "phase") == phase and further(record)

    return check


def _is_marked(record: NamespaceRecord) -> bool:
    """Return whether disk and address will outlive the Instance, and the machine has its size."""
    held = [*record.list(DATA_VOLUME), *record.list(IP_CLAIM)]
    machines = record.list(VIRTUAL_MACHINE)
    large = [each["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] == 4 for each in machines]
    free = not any(each["metadata"].get("ownerReferences") for each in held)
    stale = find_condition(record.get(INSTANCE, "web") or {}, "RestartRequired")
    reported = stale is not None and stale["status"] == "True"
    return len(held) == 2 and free and large == [True] and reported


def _is_filled(record: NamespaceRecord) -> bool:
    disk = record.get(DATA_VOLUME, "web-root")
    owned = disk is not None and bool(disk["metadata"].get("ownerReferences"))
    return owned and not record.list(IP_CLAIM) and _has_claim(record)


def _has_claim(record: NamespaceRecord) -> bool:
    return record.get(PVC, "web-root") is not None


def _is_collected(record: NamespaceRecord) -> bool:
    return not record.list(DATA_VOLUME) and _has_claim(record)


def _is_left(record: NamespaceRecord) -> bool:
    """Return whether the disk has outlived its Instance, and is nobody's."""
    claim = record.get(PVC, "web-root")
    machines = [*record.list(VIRTUAL_MACHINE), *record.list(VIRTUAL_MACHINE_INSTANCE)]
    if claim is None or machines or record.get(INSTANCE, "web") is not None:
        return False
    return not text_at(claim, "metadata", "labels", INSTANCE_UID_LABEL)


def has_ended(name: str, phase: str = "Succeeded") -> Any:
    """Return a condition: an Operation has ended so, keeps nothing, and the machine runs."""

    def ended(record: NamespaceRecord) -> bool:
        operation = record.get(OPERATION, name) or {}
        kept = map_at(operation, "metadata").get("finalizers")
        return text_at(operation, "status", "phase") == phase and not kept

    return has_phase("Running", ended)


def _list_stuck(record: NamespaceRecord) -> list[str]:
    asked = [*record.list(VIRTUAL_MACHINE_INSTANCE_MIGRATION), *record.list(MACHINE_SNAPSHOT)]
    return [name for name in (key_of(each).name for each in asked) if name.startswith(STUCK)]


def _is_stuck(record: NamespaceRecord) -> bool:
    at_work = text_at(record.get(OPERATION, STUCK) or {}, "status", "phase") == "Running"
    return at_work and bool(_list_stuck(record))


def _is_given_up(record: NamespaceRecord) -> bool:
    return record.get(OPERATION, STUCK) is None and not _list_stuck(record)


def _one_disk(record: NamespaceRecord) -> bool:
    disks = record.list(DATA_VOLUME)
    return len(disks) == 1 and key_of(disks[0]).name != "web-root"


def _hand_to_foreigner(lock: Manifest) -> Manifest:
    """Let somebody else hold what tells its owner by its content."""
    if lock.get("kind") != LEASE.kind:
        return lock
    return {**lock, "spec": {"holderIdentity": "somebody else"}}


def _build(name: str, phases: tuple[Phase, ...]) -> Workload:
    others = (
        VIRTUAL_MACHINE,
        VIRTUAL_MACHINE_INSTANCE_MIGRATION,
        DATA_VOLUME,
        IP_CLAIM,
        NETWORK,
        FIREWALL,
        DEMO_VOLUME,
        MACHINE_SNAPSHOT,
        MACHINE_SNAPSHOT_CONTENT,
        *MATCHED_KINDS.values(),
    )
    return Workload(
        id=name,
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=(
            *(build_crd(model) for model in RESOURCES),
            *map(build_open_crd, others),
            build_open_crd(VIRTUAL_MACHINE_INSTANCE, subresources={}),
        ),
        primary=INSTANCE,
        children=(
            *(INSTANCE_SIZE, INSTANCETYPE, OPERATION, FIREWALL, IP_CLAIM, SECRET, PVC, DATA_VOLUME),
            *(VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE, VIRTUAL_MACHINE_INSTANCE_MIGRATION),
            *(MACHINE_SNAPSHOT, MACHINE_SNAPSHOT_CONTENT),
        ),
        phases=phases,
        invariants=(check_runs, check_disks),
        components=VIRTUALIZATION,
        unwatched=(SECRET, MACHINE_SNAPSHOT_CONTENT),
        outside=(GUESTS,),
        rewrite=partial(blur, replacements=_REPLACEMENTS),
        hand_to_foreigner=_hand_to_foreigner,
        spares=is_exempt,
    )


WORKLOADS: Final = (
    _build(
        "instance",
        (
            Phase("create", _create, has_phase("Running")),
            Phase("change", _change, has_phase("Running", _is_marked)),
            Phase("type", name_instancetype, has_phase("Running", names_instancetype)),
            Phase("fill", _fill, has_phase("Running", _is_filled)),
            Phase("collect", _collect, has_phase("Running", _is_collected)),
            Phase("probe", _stop, has_phase("Stopped"), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
    ),
    _build(
        "retain",
        (
            Phase("create", _create_retaining, has_phase("Running")),
            Phase("fill", _add_claim, has_phase("Running", _has_claim)),
            Phase("collect", _collect, has_phase("Running", _is_collected)),
            Phase("probe", _stop, has_phase("Stopped"), quiet=True),
            Phase("leave", remove(INSTANCE, "web"), _is_left),
            Phase("delete", _delete_left, is_empty),
        ),
    ),
    _build(
        "operations",
        (
            Phase("create", _create_plain, has_phase("Running")),
            Phase("reboot", _ask("Reboot", "reboot"), has_ended("reboot")),
            Phase("move", _ask("Migrate", "move"), has_ended("move")),
            Phase("stick", _ask("Migrate", STUCK, ttlSecondsAfterFinished=0), _is_stuck),
            Phase("cancel", _cancel, has_phase("Running", _is_given_up)),
            Phase("probe", _stop, has_phase("Stopped"), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
    ),
    _build(
        "rebuild",
        (
            Phase("create", _create_plain, has_phase("Running")),
            Phase(
                "rebuild",
                _ask("Rebuild", "anew", rebuild={"image": dict(IMAGE)}),
                has_ended("anew"),
            ),
            Phase("retire", _stop, has_phase("Stopped", _one_disk)),
            Phase("probe", _start, has_phase("Running"), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
    ),
    _build(
        "snapshots",
        (
            Phase("create", _create_plain, has_phase("Running")),
            Phase("ask", _ask("SoftReboot", "ask", softReboot=_SOON), has_ended("ask")),
            Phase("take", _ask("Snapshot", "take"), has_ended("take")),
            Phase("restore", _ask("Restore", "back", restore=_TAKEN), has_ended("back")),
            Phase("stick", _ask("Snapshot", STUCK, ttlSecondsAfterFinished=0), _is_stuck),
            Phase("cancel", _cancel, has_phase("Running", _is_given_up)),
            Phase("probe", _stop, has_phase("Stopped"), quiet=True),
            Phase("delete", _delete_snapshots, is_empty),
        ),
    ),
)
