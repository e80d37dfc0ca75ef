"""Virtualization: fakes of KubeVirt, CDI and the other operators, which act immediately.

They are for workloads whose operator creates or requests machines. Components of a sweep act while
the operator is idle, so that runs are reproducible, and two runs must end in the same objects. The
simulator of KubeVirt (`lab/kubevirt_sim`) cannot be used here yet: generations, nodes and
revisions in its statuses depend on how often an operator wrote. Its rules that these fakes lack are
tried with crashes at each write in `operators/compute/operation/simulation_test.py`: generations of
machines, rollout of changes, launcher pods, claims of disks, admission and refusals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from lab.sweep.components import BINDER, Component
from lab.sweep.external_system import ExternalSystem, Reply, Request
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.workload import User
from libs.common.client import Client
from libs.common.errors import AlreadyExists, NotFound
from libs.common.kinds import Key, Kind, Manifest, build_object, is_deleting, key_of, uid_of
from libs.common.ownership import build_owner_reference
from libs.common.reading import condition_at, map_at, text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE
from libs.contracts.instancetypes import INSTANCETYPE
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import (
    SUBRESOURCES_GROUP,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmCondition,
)
from libs.contracts.machine_snapshots import (
    MACHINE_SNAPSHOT,
    MACHINE_SNAPSHOT_CONTENT,
    MachineSnapshotPhase,
)
from libs.contracts.network import FIREWALL

STUCK: Final = "stuck"
"""Prefix of the names of migrations and snapshots that never end."""
_AGENT: Final = VmCondition.AGENT_CONNECTED
_NODES: Final = ("node-1", "node-2")
_BOOTED: Final = "2026-01-31T12:00:00Z"
_BACK: Final = "2026-01-31T12:01:00Z"

type Expect = Callable[[Manifest, NamespaceRecord], Manifest]
"""Returns the desired status of an object."""


class FakeGuests:
    """A fake of KubeVirt's API for reboots: each guest reboots immediately.

    Args:
        trial: Namespace of the trial.
        client: Connection with all rights.
    """

    def __init__(self, trial: str, client: Client) -> None:
        """Store the arguments; the state of guests is in their machines."""
        self._trial = trial
        self._client = client

    async def answer(self, request: Request) -> Reply:
        """Reboot a guest: its agent connects again at a later time."""
        key = Key(self._trial, request.path.split("/")[-2])
        try:
            run = await self._client.get(VIRTUAL_MACHINE_INSTANCE, key)
        except NotFound:
            return Reply(404)
        conditions = [
            {**each, "lastProbeTime": _BACK} if each["type"] == _AGENT else each
            for each in run["status"]["conditions"]
        ]
        patch = {"metadata": {"uid": uid_of(run)}, "status": {"conditions": conditions}}
        await self._client.patch(VIRTUAL_MACHINE_INSTANCE, key, patch)
        return Reply(202)

    def show(self) -> Mapping[str, Manifest]:
        """Return no objects."""
        return {}


def show_status(kind: Kind, expect: Expect) -> Component:
    """Return a tender that writes the desired status of objects."""

    def needs(manifest: Manifest, record: NamespaceRecord) -> bool:
        held = manifest.get("status") or {}
        wanted = expect(manifest, record)
        return not is_deleting(manifest) and any(held.get(n) != v for n, v in wanted.items())

    async def act(client: Client, manifest: Manifest, record: NamespaceRecord) -> None:
        patch = {"status": expect(manifest, record)}
        await client.patch(kind, key_of(manifest), patch, subresource="status")

    return Component(kind, needs, act)


def _is_wanted(machine: Manifest) -> bool:
    return bool(machine["spec"]["runStrategy"] != "Halted")


def _expect_machine(machine: Manifest, record: NamespaceRecord) -> Manifest:
    run = record.get(VIRTUAL_MACHINE_INSTANCE, key_of(machine).name)
    memory = _read_memory(machine["spec"]["template"])
    stale = run is not None and _read_memory(run) != memory
    return {
        **_expect_revision(machine, record),
        "runStrategy": machine["spec"]["runStrategy"],
        "printableStatus": "Stopped" if run is None else "Running",
        "created": run is not None,
        "conditions": [{"type": "RestartRequired", "status": "True"}] if stale else [],
    }


def _read_memory(manifest: Manifest) -> str:
    return text_at(manifest, "spec", "domain", "memory", "guest")


def _expect_revision(machine: Manifest, record: NamespaceRecord) -> Manifest:
    """Return what shows that KubeVirt keeps the instancetype of a machine; nothing for none."""
    name = text_at(machine, "spec", "instancetype", "name")
    held = record.get(INSTANCETYPE, name) if name else None
    if held is None:
        return {}
    revision = f"{key_of(machine).name}-{name}-v1beta1-{uid_of(held)}-1"
    reference = {"name": name, "kind": INSTANCETYPE.kind}
    return {"instancetypeRef": {**reference, "controllerRevisionRef": {"name": revision}}}


async def name_instancetype(user: User) -> None:
    """Replace the InstanceSize of Instance web by an instancetype of the namespace."""
    await user.create(INSTANCETYPE, "typed", {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}})
    wanted = {"name": "typed", "kind": INSTANCETYPE.kind}
    spec = {"size": None, "instancetype": wanted, "rootDisk": {"size": "10Gi"}}
    await user.patch(INSTANCE, "web", {"spec": spec})


def names_instancetype(record: NamespaceRecord) -> bool:
    """Return whether only the instancetype defines the size of machine web, after a restart."""
    machine = record.get(VIRTUAL_MACHINE, "web") or {}
    named = text_at(machine, "spec", "instancetype", "name") == "typed"
    domain = map_at(machine, "spec", "template", "spec", "domain")
    stale = condition_at(record.get(INSTANCE, "web") or {}, "RestartRequired")
    return named and not domain.get("cpu") and text_at(stale, "status") == "True"


def _needs_kubevirt(machine: Manifest, record: NamespaceRecord) -> bool:
    run = record.get(VIRTUAL_MACHINE_INSTANCE, key_of(machine).name)
    held = machine.get("status") or {}
    wanted = _expect_machine(machine, record)
    said = all(held.get(name) == value for name, value in wanted.items())
    return not is_deleting(machine) and ((run is not None) != _is_wanted(machine) or not said)


async def _keep_machine(client: Client, machine: Manifest, record: NamespaceRecord) -> None:
    run = record.get(VIRTUAL_MACHINE_INSTANCE, key_of(machine).name)
    if run is None and _is_wanted(machine):
        await client.create(VIRTUAL_MACHINE_INSTANCE, _build_run(machine))
    elif run is not None and not _is_wanted(machine):
        await client.delete(VIRTUAL_MACHINE_INSTANCE, key_of(run), uid=uid_of(run))
    else:
        status = {"status": _expect_machine(machine, record)}
        await client.patch(VIRTUAL_MACHINE, key_of(machine), status, subresource="status")


def _build_run(machine: Manifest) -> Manifest:
    key, template = key_of(machine), machine["spec"]["template"]
    ready = ("Ready", "LiveMigratable", _AGENT)
    return build_object(
        VIRTUAL_MACHINE_INSTANCE,
        key.name,
        key.namespace,
        metadata={
            "labels": dict(template["metadata"]["labels"]),
            "ownerReferences": [build_owner_reference(VIRTUAL_MACHINE, machine)],
        },
        spec=template["spec"],
        status={
            "phase": "Running",
            "nodeName": _NODES[0],
            "conditions": [
                # KubeVirt writes the time since which an agent responds as the time of a probe.
                {"type": each, "status": "True", "lastProbeTime": _BOOTED}
                for each in ready
            ],
            "interfaces": [{"name": "default", "ipAddress": "10.0.0.7"}],
        },
    )


def _needs_move(migration: Manifest, record: NamespaceRecord) -> bool:
    done = text_at(migration, "status", "phase") in ("Succeeded", "Failed")
    return not (is_deleting(migration) or done or key_of(migration).name.startswith(STUCK))


async def _move(client: Client, migration: Manifest, record: NamespaceRecord) -> None:
    run = record.get(VIRTUAL_MACHINE_INSTANCE, migration["spec"]["vmiName"])
    phase = "Failed"
    if run is not None:
        node = _NODES[1]
        state = {"completed": True, "targetNode": node, "migrationUid": uid_of(migration)}
        status = {"nodeName": node, "migrationState": state}
        await client.patch(VIRTUAL_MACHINE_INSTANCE, key_of(run), {"status": status})
        phase = "Succeeded"
    patch = {"status": {"phase": phase}}
    key = key_of(migration)
    await client.patch(VIRTUAL_MACHINE_INSTANCE_MIGRATION, key, patch, subresource="status")


def _needs_snapshot(snapshot: Manifest, _: NamespaceRecord) -> bool:
    done = text_at(snapshot, "status", "phase") == MachineSnapshotPhase.SUCCEEDED
    return not (is_deleting(snapshot) or done or key_of(snapshot).name.startswith(STUCK))


async def _take_snapshot(client: Client, snapshot: Manifest, _: NamespaceRecord) -> None:
    key, name = key_of(snapshot), f"content-{uid_of(snapshot)}"
    backup = {"volumeName": "root", "volumeSnapshotName": f"{key.name}-root"}
    content = build_object(
        MACHINE_SNAPSHOT_CONTENT,
        name,
        key.namespace,
        metadata={"ownerReferences": [build_owner_reference(MACHINE_SNAPSHOT, snapshot)]},
        spec={"volumeBackups": [backup]},
    )
    with contextlib.suppress(AlreadyExists):
        await client.create(MACHINE_SNAPSHOT_CONTENT, content)
    status = {
        "phase": MachineSnapshotPhase.SUCCEEDED,
        "readyToUse": True,
        "virtualMachineSnapshotContentName": name,
    }
    await client.patch(MACHINE_SNAPSHOT, key, {"status": status}, subresource="status")


def _expect_address(claim: Manifest, record: NamespaceRecord) -> Manifest:
    run = record.get(VIRTUAL_MACHINE_INSTANCE, text_at(claim, "spec", "target", "name"))
    bound = {"state": "Bound", "vmiUID": "" if run is None else uid_of(run)}
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "Bound", "status": "False" if run is None else "True"},
    ]
    return {"address": "203.0.113.7", "binding": bound, "conditions": conditions}


def _expect_cover(firewall: Manifest, record: NamespaceRecord) -> Manifest:
    covered = [
        {"name": key_of(instance).name, "uid": uid_of(instance)}
        for instance in record.list(INSTANCE)
        if text_at(instance, "spec", "firewallRef", "name") == key_of(firewall).name
    ]
    return {"instances": covered}


VIRTUALIZATION: Final = (
    BINDER,
    show_status(DATA_VOLUME, lambda _, __: {"phase": "Succeeded"}),
    Component(VIRTUAL_MACHINE, _needs_kubevirt, _keep_machine),
    Component(VIRTUAL_MACHINE_INSTANCE_MIGRATION, _needs_move, _move),
    Component(MACHINE_SNAPSHOT, _needs_snapshot, _take_snapshot),
    show_status(IP_CLAIM, _expect_address),
    show_status(FIREWALL, _expect_cover),
)
"""The components of virtualization, and the binder of claims."""
GUESTS: Final = ExternalSystem("guests", FakeGuests, prefixes=(f"/apis/{SUBRESOURCES_GROUP}/",))
"""The API for reboots of guests."""
