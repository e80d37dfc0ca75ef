"""Manifests and patches that an Operation writes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from libs.common.actions import Action
from libs.common.kinds import LEASE, Manifest, build_object, key_of
from libs.common.labels import MANAGED_BY
from libs.common.naming import label_value
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create, Delete, Patch, annotate
from libs.contracts.compute import INSTANCE_LABEL, INSTANCE_UID_LABEL
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE_MIGRATION
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT
from operators.compute.api.directives import Directive
from operators.compute.api.instance import INSTANCE
from operators.compute.api.instancetypes import Instancetype, SizeRef
from operators.compute.api.operation import OPERATION, Operation, OperationReason
from operators.compute.naming import (
    BEGUN_AS,
    MADE_BY,
    MADE_IN,
    OPERATOR_ID,
    lease_name,
    migration_name,
)
from operators.compute.operation.observed import Lock, Target


def build_lease(operation: Operation, target: Target) -> Manifest:
    """Build the Lease with which an Operation locks an Instance.

    It is never renewed: the lock is valid for as long as its holder, the Operation, exists and has
    not ended.
    """
    labels = {
        MANAGED_BY: OPERATOR_ID,
        INSTANCE_LABEL: label_value(operation.spec.target_ref.name),
        INSTANCE_UID_LABEL: target.uid,
    }
    return build_object(
        LEASE,
        lease_name(target.uid),
        operation.metadata.namespace,
        metadata={"labels": labels, "ownerReferences": [_refer(operation)]},
        spec={"holderIdentity": operation.metadata.uid},
    )


def build_migration(operation: Operation) -> Manifest:
    """Build the migration of an Operation."""
    spec: Manifest = {"vmiName": operation.spec.target_ref.name}
    wanted = operation.spec.migrate
    if wanted is not None and wanted.node_selector:
        spec["addedNodeSelector"] = dict(wanted.node_selector)
    return build_object(
        VIRTUAL_MACHINE_INSTANCE_MIGRATION,
        migration_name(operation.metadata.name, operation.metadata.uid),
        operation.metadata.namespace,
        metadata={"labels": {MANAGED_BY: OPERATOR_ID}, "ownerReferences": [_refer(operation)]},
        spec=spec,
    )


def build_snapshot(operation: Operation, name: str) -> Manifest:
    """Build the snapshot of an Operation; it has no owner, so it is never garbage collected."""
    notes = {MADE_BY: operation.metadata.uid, MADE_IN: operation.metadata.name}
    source = {
        "apiGroup": VIRTUAL_MACHINE.group,
        "kind": VIRTUAL_MACHINE.kind,
        "name": operation.spec.target_ref.name,
    }
    return build_object(
        MACHINE_SNAPSHOT,
        name,
        operation.metadata.namespace,
        metadata={
            "labels": {
                MANAGED_BY: OPERATOR_ID,
                INSTANCE_LABEL: label_value(operation.spec.target_ref.name),
            },
            "annotations": notes,
        },
        spec={"source": source},
    )


def is_snapshot_of(manifest: Manifest, uid: str) -> bool:
    """Return whether an Operation created a snapshot."""
    return (manifest["metadata"].get("annotations") or {}).get(MADE_BY) == uid


def record_begin(operation: Operation) -> tuple[Action, ...]:
    """Record the UID of the Operation where backups keep it; no action if one is recorded."""
    metadata = operation.metadata
    if BEGUN_AS in metadata.annotations:
        return ()
    change = annotate(metadata.annotations, BEGUN_AS, metadata.uid)
    # The version guards annotations that others add meanwhile.
    step = Patch(
        OPERATION, metadata.key, metadata.uid, [change], resource_version=metadata.resource_version
    )
    return (Action(step, OperationReason.ACCEPTED),)


def take_lock(operation: Operation, target: Target) -> Action:
    """Create the Lease; the Operation that succeeds has locked the Instance."""
    step = Create(
        LEASE,
        build_lease(operation, target),
        ours=lambda held: holder_of(held) == operation.metadata.uid,
    )
    return Action(step, OperationReason.ACCEPTED)


def drop_lock(operation: Operation, target_uid: str, lock: Lock) -> Action:
    """Delete the observed Lease by its UID."""
    key = key_of(
        {"metadata": {"namespace": operation.metadata.namespace, "name": lease_name(target_uid)}}
    )
    return Action(Delete(LEASE, key, lock.uid), OperationReason.IN_PROGRESS)


def holder_of(lease: Manifest) -> str:
    """Return the UID of the Operation that holds a Lease."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def set_directive(target: Target, directive: Directive) -> tuple[Action, ...]:
    """Add a directive to the spec of the Instance; no action if it exists."""
    spec = target.instance.spec
    if spec.directive(directive.kind) == directive:
        return ()
    others = [held for held in spec.directives if held.kind is not directive.kind]
    return (_set(target, "directives", _render([*others, directive])),)


def withdraw_directives(target: Target, token: str) -> tuple[Action, ...]:
    """Remove the directives of an Operation from the spec; no action if there are none."""
    held = target.instance.spec.directives
    others = [directive for directive in held if directive.token != token]
    if len(others) == len(held):
        return ()
    return (_set(target, "directives", _render(others)),)


def set_field(target: Target, field: str, value: str) -> tuple[Action, ...]:
    """Set a field of the spec, as a user would; no action if it has the value."""
    held = target.manifest.get("spec", {}).get(field)
    return () if held == value else (_set(target, field, value),)


def set_size(target: Target, size: SizeRef) -> tuple[Action, ...]:
    """Set the field that defines the size, and remove the other one, in one write."""
    if target.instance.spec.size_ref == size:
        return ()
    typed = isinstance(size, Instancetype)
    field, other = ("instancetype", "size") if typed else ("size", "instancetype")
    value = size.to_manifest() if isinstance(size, Instancetype) else size
    operations: list[Manifest] = [{"op": "add", "path": f"/spec/{field}", "value": value}]
    if other in target.manifest.get("spec", {}):
        operations.append({"op": "remove", "path": f"/spec/{other}"})
    return (_patch(target, operations),)


def _set(target: Target, field: str, value: Any) -> Action:
    return _patch(target, [{"op": "add", "path": f"/spec/{field}", "value": value}])


def _patch(target: Target, operations: list[Manifest]) -> Action:
    version = target.manifest["metadata"].get("resourceVersion", "")
    key = key_of(target.manifest)
    step = Patch(INSTANCE, key, target.uid, operations, resource_version=version)
    return Action(step, OperationReason.IN_PROGRESS)


def _render(directives: Iterable[Directive]) -> list[Manifest]:
    return [directive.to_manifest() for directive in directives]


def _refer(operation: Operation) -> Manifest:
    metadata = {"name": operation.metadata.name, "uid": operation.metadata.uid}
    return build_owner_reference(OPERATION, {"metadata": metadata})
