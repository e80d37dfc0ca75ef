"""Virtualization: KubeVirt, CDI and the operators beside compute, each of which acts at once.

For workloads whose operator makes machines or asks for them. The simulator of KubeVirt
(`tools/kubevirt_sim`) plays them with time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from libs.common.client import Client
from libs.common.contracts.cdi import DATA_VOLUME
from libs.common.contracts.compute import INSTANCE
from libs.common.contracts.ip_claims import IP_CLAIM
from libs.common.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.common.contracts.network import FIREWALL
from libs.common.contracts.reading import text_at
from libs.common.kinds import Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import build_owner_reference
from tools.sweep.recorder import Book
from tools.sweep.world import BINDER, Tender

STUCK: Final = "stuck"
"""What the names of migrations that never end begin with."""
_NODES: Final = ("node-1", "node-2")

type Expect = Callable[[Manifest, Book], Manifest]
"""Say what the status of an object is to be."""


def _show(kind: Kind, expect: Expect) -> Tender:
    """Return a tender that brings the status of objects to what it is to be."""

    def needs(manifest: Manifest, book: Book) -> bool:
        held = manifest.get("status") or {}
        wanted = expect(manifest, book)
        return not is_deleting(manifest) and any(held.get(n) != v for n, v in wanted.items())

    async def tend(client: Client, manifest: Manifest, book: Book) -> None:
        patch = {"status": expect(manifest, book)}
        await client.patch(kind, key_of(manifest), patch, subresource="status")

    return Tender(kind, needs, tend)


def _is_wanted(machine: Manifest) -> bool:
    return bool(machine["spec"]["runStrategy"] == "Always")


def _expect_machine(machine: Manifest, book: Book) -> Manifest:
    run = book.get(VIRTUAL_MACHINE_INSTANCE, key_of(machine).name)
    memory = machine["spec"]["template"]["spec"]["domain"]["memory"]
    stale = run is not None and run["spec"]["domain"]["memory"] != memory
    return {
        "observedGeneration": machine["metadata"]["generation"],
        "created": run is not None,
        "conditions": [{"type": "RestartRequired", "status": "True"}] if stale else [],
    }


def _needs_kubevirt(machine: Manifest, book: Book) -> bool:
    run = book.get(VIRTUAL_MACHINE_INSTANCE, key_of(machine).name)
    held = machine.get("status") or {}
    wanted = _expect_machine(machine, book)
    said = all(held.get(name) == value for name, value in wanted.items())
    return not is_deleting(machine) and ((run is not None) != _is_wanted(machine) or not said)


async def _keep_machine(client: Client, machine: Manifest, book: Book) -> None:
    run = book.get(VIRTUAL_MACHINE_INSTANCE, key_of(machine).name)
    if run is None and _is_wanted(machine):
        await client.create(VIRTUAL_MACHINE_INSTANCE, _build_run(machine))
    elif run is not None and not _is_wanted(machine):
        await client.delete(VIRTUAL_MACHINE_INSTANCE, key_of(run), uid=uid_of(run))
    else:
        status = {"status": _expect_machine(machine, book)}
        await client.patch(VIRTUAL_MACHINE, key_of(machine), status, subresource="status")


def _build_run(machine: Manifest) -> Manifest:
    key, template = key_of(machine), machine["spec"]["template"]
    ready = ("Ready", "LiveMigratable", "AgentConnected")
    return {
        "apiVersion": VIRTUAL_MACHINE_INSTANCE.api_version,
        "kind": VIRTUAL_MACHINE_INSTANCE.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": dict(template["metadata"]["labels"]),
            "ownerReferences": [build_owner_reference(VIRTUAL_MACHINE, machine)],
        },
        "spec": template["spec"],
        "status": {
            "phase": "Running",
            "nodeName": _NODES[0],
            "conditions": [{"type": each, "status": "True"} for each in ready],
            "interfaces": [{"name": "default", "ipAddress": "10.0.0.7"}],
        },
    }


def _needs_move(migration: Manifest, book: Book) -> bool:
    done = text_at(migration, "status", "phase") in ("Succeeded", "Failed")
    return not (is_deleting(migration) or done or key_of(migration).name.startswith(STUCK))


async def _move(client: Client, migration: Manifest, book: Book) -> None:
    run = book.get(VIRTUAL_MACHINE_INSTANCE, migration["spec"]["vmiName"])
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


def _expect_address(claim: Manifest, book: Book) -> Manifest:
    run = book.get(VIRTUAL_MACHINE_INSTANCE, text_at(claim, "spec", "target", "name"))
    bound = {"state": "Bound", "vmiUID": "" if run is None else uid_of(run)}
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "Bound", "status": "False" if run is None else "True"},
    ]
    return {"address": "203.0.113.7", "binding": bound, "conditions": conditions}


def _expect_cover(firewall: Manifest, book: Book) -> Manifest:
    covered = [
        {"name": key_of(instance).name, "uid": uid_of(instance)}
        for instance in book.list(INSTANCE)
        if text_at(instance, "spec", "firewallRef", "name") == key_of(firewall).name
    ]
    return {"instances": covered}


VIRTUALIZATION: Final = (
    BINDER,
    _show(DATA_VOLUME, lambda _, __: {"phase": "Succeeded"}),
    Tender(VIRTUAL_MACHINE, _needs_kubevirt, _keep_machine),
    Tender(VIRTUAL_MACHINE_INSTANCE_MIGRATION, _needs_move, _move),
    _show(IP_CLAIM, _expect_address),
    _show(FIREWALL, _expect_cover),
)
"""Tenders of all of them, and of claims."""
