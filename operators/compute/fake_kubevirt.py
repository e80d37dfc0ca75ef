"""A minimal fake of KubeVirt, CDI and other operators, for tests that need immediate responses.

`tools/kubevirt_sim` is the faithful simulator. This fake performs each action in one step without
delay, within the test, so that a conformance run with hundreds of crashes takes seconds.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any, Final

from libs.common.crd import build_crd
from libs.common.kinds import Key, Kind, Manifest, build_object, is_deleting, key_of, uid_of
from libs.common.ownership import build_owner_reference
from libs.common.reading import map_at, text_at
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.outcome import Run
from libs.contracts.cdi import DATA_VOLUME
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

REBOOTS: Final = "fake-kubevirt/reboots"
"""Annotation of a VirtualMachineInstance: number of reboots that its guest performed itself."""
NODES: Final = ("node-1", "node-2")
"""Nodes that machines run on."""
_BLURRED: Final = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "uid"),
    (re.compile(r"02(:[0-9a-f]{2}){5}"), "mac"),
    (re.compile(r"\b(web-root|op)-[0-9a-f]{8}\b"), r"\1-hash"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "time"),
    (re.compile(r'"duration": "\w+"'), '"duration": "some"'),
)
"""Patterns of values that depend on UIDs, and their replacements for comparisons."""


@cache
def build_crds() -> tuple[Manifest, ...]:
    """Build the CRDs of the operator, and of all other kinds that it uses."""
    others: tuple[Kind, ...] = (
        VIRTUAL_MACHINE,
        VIRTUAL_MACHINE_INSTANCE_MIGRATION,
        DATA_VOLUME,
        IP_CLAIM,
        NETWORK,
        FIREWALL,
        DEMO_VOLUME,
        MACHINE_SNAPSHOT,
        MACHINE_SNAPSHOT_CONTENT,
    )
    return (
        *(build_crd(model) for model in RESOURCES),
        *(build_loose_crd(kind, None, ("status",)) for kind in others),
        build_loose_crd(VIRTUAL_MACHINE_INSTANCE, None, ()),
    )


def run_kubevirt(api: FakeApi) -> None:
    """Perform the next actions of KubeVirt, CDI, ipam and network; safe to repeat."""
    for disk in api.objects(DATA_VOLUME):
        _fill(api, disk)
    for machine in api.objects(VIRTUAL_MACHINE):
        _run(api, machine)
    for run in api.objects(VIRTUAL_MACHINE_INSTANCE):
        _follow(api, run)
    for migration in api.objects(VIRTUAL_MACHINE_INSTANCE_MIGRATION):
        _move(api, migration)
    for snapshot in api.objects(MACHINE_SNAPSHOT):
        _take(api, snapshot)
    for claim in api.objects(IP_CLAIM):
        _bind(api, claim)
    for firewall in api.objects(FIREWALL):
        _protect(api, firewall)


def _fill(api: FakeApi, disk: Manifest) -> None:
    if not text_at(disk, "status", "phase"):
        # Every disk of such a class has this phase for some seconds, even with immediate binding.
        _publish_status(api, DATA_VOLUME, disk, {"phase": "WaitForFirstConsumer"})
        return
    failing = "broken" in text_at(disk, "spec", "source", "http", "url")
    _publish_status(api, DATA_VOLUME, disk, {"phase": "Failed" if failing else "Succeeded"})


def _run(api: FakeApi, machine: Manifest) -> None:
    if is_deleting(machine):
        return
    key = key_of(machine)
    run = api.find(VIRTUAL_MACHINE_INSTANCE, key)
    wanted = machine["spec"]["runStrategy"] != "Halted"
    if run is None and wanted:
        run = api.create(_build_run(machine))
    # KubeVirt processes a generation before it ends the run.
    generation = _follow_generation(machine, run)
    if run is not None and not wanted and not _is_out_of_reach(run):
        api.delete(VIRTUAL_MACHINE_INSTANCE, key)
        run = None
    template = machine["spec"]["template"]["spec"]
    status: Manifest = {
        "created": run is not None,
        "runStrategy": machine["spec"]["runStrategy"],
        "printableStatus": "Stopped" if run is None else "Running",
        **generation,
    }
    stale = run is not None and run["spec"]["domain"]["memory"] != template["domain"]["memory"]
    status["conditions"] = [{"type": "RestartRequired", "status": "True"}] if stale else []
    _publish_status(api, VIRTUAL_MACHINE, machine, status)


def _follow_generation(machine: Manifest, run: Manifest | None) -> Manifest:
    """Report the generation with which the run was started, as KubeVirt does.

    The value is updated only while a run with the current template of the machine exists. Without a
    run, the last reported value remains.
    """
    generation = machine["metadata"]["generation"]
    held = map_at(machine, "status").get("observedGeneration")
    if run is None:
        return {} if held is None else {"observedGeneration": held}
    same = run["spec"] == machine["spec"]["template"]["spec"]
    return {"observedGeneration": generation if same or held is None else held}


def _is_out_of_reach(run: Manifest) -> bool:
    """Return whether a test simulates that a run cannot end, for example on an unreachable node."""
    return map_at(run, "metadata", "annotations").get("fake-kubevirt/out-of-reach") == "true"


def _build_run(machine: Manifest) -> Manifest:
    key, template = key_of(machine), machine["spec"]["template"]
    reference = build_owner_reference(VIRTUAL_MACHINE, machine)
    disk = template["spec"]["volumes"][0]["dataVolume"]["name"]
    return build_object(
        VIRTUAL_MACHINE_INSTANCE,
        key.name,
        key.namespace,
        metadata={"labels": dict(template["metadata"]["labels"]), "ownerReferences": [reference]},
        spec=template["spec"],
        status=_build_running(NODES[0], agent=not _is_dead(disk, machine)),
    )


def _is_dead(disk: str, machine: Manifest) -> bool:
    """Return whether a test simulates that a disk does not boot: all disks except the first one.

    KubeVirt reports an instance with such a disk as ready nevertheless, because QEMU runs.
    """
    dead = map_at(machine, "metadata", "annotations").get("fake-kubevirt/dead-disks") == "true"
    return dead and not disk.endswith("-root")


def _build_running(node: str, *, agent: bool) -> Manifest:
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "LiveMigratable", "status": "True"},
        *([_build_agent(0)] if agent else ()),
    ]
    interfaces = [{"name": "default", "ipAddress": "10.0.0.7"}]
    return {
        "phase": "Running",
        "nodeName": node,
        "conditions": conditions,
        "interfaces": interfaces,
    }


def reboot_guest(api: FakeApi, key: Key) -> None:
    """Reboot a guest on request, unless a test simulates that it ignores the request."""
    run = api.get(VIRTUAL_MACHINE_INSTANCE, key)
    notes = map_at(run, "metadata", "annotations")
    if notes.get("fake-kubevirt/ignores_reboot") == "true":
        return
    count = int(notes.get(REBOOTS) or 0) + 1
    others = [each for each in run["status"]["conditions"] if each["type"] != "AgentConnected"]
    conditions = [*others, _build_agent(count)]
    change = {
        "metadata": {"annotations": {REBOOTS: str(count)}},
        "status": {"conditions": conditions},
    }
    api.patch(VIRTUAL_MACHINE_INSTANCE, key, change)


def _build_agent(second: int) -> Manifest:
    """Build the condition AgentConnected as virt-handler does: without lastTransitionTime."""
    return {
        "type": "AgentConnected",
        "status": "True",
        "lastProbeTime": f"2026-01-01T00:00:{second:02d}Z",
        "lastTransitionTime": None,
    }


def _take(api: FakeApi, snapshot: Manifest) -> None:
    """Complete a snapshot; it fails if its name contains `broken`."""
    key = key_of(snapshot)
    if "broken" in key.name:
        error = {"message": "the driver cannot take snapshots"}
        _publish_status(api, MACHINE_SNAPSHOT, snapshot, {"phase": "Failed", "error": error})
        return
    name = f"vmsnapshot-content-{uid_of(snapshot)}"
    partial = "partial" in key.name
    if api.find(MACHINE_SNAPSHOT_CONTENT, Key(key.namespace, name)) is None:
        backup = {"volumeName": "root", "volumeSnapshotName": f"{key.name}-root"}
        spec = {"volumeBackups": None if partial else [backup]}
        api.create(build_object(MACHINE_SNAPSHOT_CONTENT, name, key.namespace, spec=spec))
    ready: dict[str, Any] = {
        "phase": "Succeeded",
        "readyToUse": True,
        "virtualMachineSnapshotContentName": name,
        "indications": ["Online", "GuestAgent"],
    }
    if partial:
        # As recorded from KubeVirt: the snapshot is ready and contains nothing.
        ready["indications"].append("PartialSnapshot")
        ready["snapshotVolumes"] = {"excludedVolumes": ["root", "cloud-init"]}
    _publish_status(api, MACHINE_SNAPSHOT, snapshot, ready)


def _follow(api: FakeApi, run: Manifest) -> None:
    """Delete the run of a machine that no longer exists."""
    owner = run["metadata"]["ownerReferences"][0]
    machine = api.find(VIRTUAL_MACHINE, key_of(run))
    if machine is None or uid_of(machine) != owner["uid"]:
        api.delete(VIRTUAL_MACHINE_INSTANCE, key_of(run))


def _move(api: FakeApi, migration: Manifest) -> None:
    if text_at(migration, "status", "phase") in ("Succeeded", "Failed"):
        return
    key = Key(key_of(migration).namespace, migration["spec"]["vmiName"])
    run = api.find(VIRTUAL_MACHINE_INSTANCE, key)
    if run is None:
        _publish_status(api, VIRTUAL_MACHINE_INSTANCE_MIGRATION, migration, {"phase": "Failed"})
        return
    node = NODES[1] if run["status"]["nodeName"] == NODES[0] else NODES[0]
    state = {"completed": True, "targetNode": node, "migrationUid": uid_of(migration)}
    api.patch(
        VIRTUAL_MACHINE_INSTANCE, key, {"status": {"nodeName": node, "migrationState": state}}
    )
    _publish_status(api, VIRTUAL_MACHINE_INSTANCE_MIGRATION, migration, {"phase": "Succeeded"})


def _bind(api: FakeApi, claim: Manifest) -> None:
    target = text_at(claim, "spec", "target", "name")
    run = api.find(VIRTUAL_MACHINE_INSTANCE, Key(key_of(claim).namespace, target or "none"))
    if not target:
        ready = {"type": "Ready", "status": "True"}
        _publish_status(api, IP_CLAIM, claim, {"address": "10.10.0.9", "conditions": [ready]})
        return
    status: dict[str, Any] = {
        "address": "203.0.113.7",
        "binding": {} if run is None else {"state": "Bound", "vmiUID": uid_of(run)},
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Bound", "status": "False" if run is None else "True"},
        ],
    }
    _publish_status(api, IP_CLAIM, claim, status)


def _protect(api: FakeApi, firewall: Manifest) -> None:
    name, namespace = key_of(firewall).name, key_of(firewall).namespace
    covered = [
        {"name": key_of(instance).name, "uid": uid_of(instance)}
        for instance in api.objects(INSTANCE, namespace)
        if text_at(instance, "spec", "firewallRef", "name") == name
    ]
    _publish_status(api, FIREWALL, firewall, {"instances": covered})


def _publish_status(api: FakeApi, kind: Kind, held: Manifest, status: Manifest) -> None:
    now = held.get("status") or {}
    if any(now.get(name) != value for name, value in status.items()):
        # A merge patch keeps fields that it does not name, so removed fields are set to null.
        gone = {name: None for name in now if name not in status}
        binding = status.get("binding")
        if binding == {}:
            status = status | {"binding": None}
        if (
            binding != {}
            or now.get("binding")
            or any(now.get(name) != value for name, value in status.items() if name != "binding")
        ):
            api.patch_status(kind, key_of(held), {**gone, **status})


def blur(run: Run) -> Run:
    """Replace values that depend on UIDs, which differ between runs, in an outcome."""
    return replace(
        run,
        state=_blur(run.state),
        creates=Counter({_blur(name): count for name, count in run.creates.items()}),
        deletes=Counter({_blur(name): count for name, count in run.deletes.items()}),
    )


def _blur[T](value: T) -> T:
    text = json.dumps(value)
    for pattern, name in _BLURRED:
        text = pattern.sub(name, text)
    blurred: T = json.loads(text)
    return blurred
