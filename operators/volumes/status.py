"""Status of a DemoVolume. Pure.

Ready is True if a pod can use the volume with the size in the spec. Ready is True in two more
cases, in which only a pod can continue the work, so that a client that waits for Ready before it
creates the pod would wait indefinitely: while the StorageClass waits for the first consumer, and
while a volume that no pod uses waits for a pod to grow its file system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from libs.common.actions import Teardown
from libs.common.conditions import Condition, build_conditions
from libs.common.crd import ObjectReference
from libs.common.kinds import PVC, Key, Manifest, describe
from libs.common.quantity import render_quantity
from libs.contracts.claims import ClaimUser, ClaimView
from operators.volumes.api.v1alpha1 import (
    USERS_SHOWN,
    ConditionType,
    DemoVolume,
    DemoVolumeStatus,
    Reason,
    ReclaimPolicy,
)
from operators.volumes.growth import evaluate_growth, find_rule
from operators.volumes.observed import (
    ClaimOwnership,
    Observed,
    evaluate_conflict,
    explain_missing_api,
    find_ownership,
    find_policy,
    find_source_problem,
    has_own_origin,
    is_lost,
    render_blockers,
    render_users,
)
from operators.volumes.resources import build_metadata_patch

PROBLEMS: Final = frozenset(
    {
        Reason.LOST,
        Reason.CREATE_FAILED,
        Reason.CLAIM_TERMINATING,
        Reason.CLAIM_LOST,
        Reason.INFEASIBLE,
        Reason.RESIZE_FAILED,
        Reason.CLASS_FORBIDS,
        Reason.FOREIGN_CLAIM,
        Reason.UNOWNED_CLAIM,
        Reason.MISMATCH,
        Reason.SOURCE_MISSING,
        Reason.SOURCE_MISMATCH,
        Reason.SNAPSHOT_API_MISSING,
        Reason.SNAPSHOT_FAILED,
        Reason.SNAPSHOT_CONFLICT,
        Reason.IN_USE,
    }
)
"""Reasons that require action by a person; a Warning Event is recorded when one first occurs."""

type Refusals = Mapping[StrEnum, str]
"""Error messages of the API server for failed steps, by the reason of their action."""


def build_status(
    volume: DemoVolume,
    observed: Observed,
    refusals: Refusals,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status of a DemoVolume that is not being deleted.

    Args:
        volume: The DemoVolume.
        observed: Observed objects after the steps of this reconcile.
        refusals: Error messages of failed steps of this reconcile.
        current: Current conditions of the DemoVolume.
        now: Time for conditions whose status changes.
    """
    conditions = [*_evaluate(volume, observed, refusals), *_evaluate_snapshot_api(volume, observed)]
    return _build(volume, observed, conditions, current, now)


def build_final_status(
    volume: DemoVolume,
    observed: Observed,
    plan: Teardown,
    refusals: Refusals,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status of a DemoVolume that is being deleted; see `build_status` for arguments."""
    message = "; ".join([plan.message, *dict.fromkeys(refusals.values())])
    conditions = [
        Condition.false(ConditionType.READY, Reason.TERMINATING, message),
        Condition.true(ConditionType.TERMINATING, plan.reason, message),
        *_evaluate(volume, observed, refusals)[1:],
        *_evaluate_snapshot_api(volume, observed),
    ]
    return _build(volume, observed, conditions, current, now)


def _build(
    volume: DemoVolume,
    observed: Observed,
    conditions: Sequence[Condition],
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    status = DemoVolumeStatus(
        observed_generation=volume.metadata.generation, name=volume.claim_name
    ).to_manifest()
    claim = observed.claim
    if claim is not None and find_ownership(volume, observed) is ClaimOwnership.OURS:
        status |= _show_claim(volume, claim, observed).to_manifest()
        status |= {"observedGeneration": volume.metadata.generation, "name": volume.claim_name}
    if is_lost(volume, observed):
        # Keep the reference to the lost claim. Without it, the next reconcile would create an empty
        # claim, as for a new DemoVolume.
        before = (volume.status or DemoVolumeStatus()).to_manifest()
        status |= {name: before[name] for name in ("pvcRef", "reclaimPolicy") if name in before}
    status["conditions"] = build_conditions(
        current, conditions, generation=volume.metadata.generation, now=now
    )
    return status


def _show_claim(volume: DemoVolume, claim: ClaimView, observed: Observed) -> DemoVolumeStatus:
    return DemoVolumeStatus(
        reclaim_policy=find_policy(volume, claim),
        pvc_ref=ObjectReference(name=claim.key.name, uid=claim.uid),
        volume_name=claim.volume_name or None,
        storage_class_name=claim.storage_class or None,
        volume_attributes_class_name=claim.current_attributes_class or None,
        requested=claim.requested_text or None,
        capacity=None if claim.capacity is None else render_quantity(claim.capacity),
        used_by_count=len(observed.users),
        used_by=[user.name for user in observed.users[:USERS_SHOWN]],
    )


def _evaluate(volume: DemoVolume, observed: Observed, refusals: Refusals) -> list[Condition]:
    """Build the conditions that every DemoVolume has; Ready comes first."""
    conflict = evaluate_conflict(volume, observed, refusals.get(Reason.ADOPTED, ""))
    claim = observed.claim
    if claim is None or find_ownership(volume, observed) is not ClaimOwnership.OURS:
        return _evaluate_without_claim(volume, observed, refusals, conflict)
    bound = _evaluate_bound(claim, observed)
    resized = evaluate_growth(
        volume.spec.size_bytes,
        claim,
        find_rule(claim, observed.storage_class),
        refusals.get(Reason.RESIZING, ""),
    )
    drifted = _evaluate_drift(volume, observed, claim, refusals)
    ready = _evaluate_ready(claim, bound, resized, observed)
    modified = _evaluate_modified(volume, claim, refusals.get(Reason.MODIFYING, ""))
    return [ready, bound, resized, *modified, drifted, conflict]


def _evaluate_modified(volume: DemoVolume, claim: ClaimView, refusal: str) -> list[Condition]:
    """Build the condition Modified."""
    name = volume.spec.volume_attributes_class_name
    if name is None:
        return []
    if claim.current_attributes_class == name:
        message = f"the volume has the attributes of {name}"
        return [Condition.true(ConditionType.MODIFIED, Reason.ATTRIBUTES_APPLIED, message)]
    held = claim.current_attributes_class or "none"
    message = f"VolumeAttributesClass {name} is not applied yet, the volume has {held}"
    if not claim.bound:
        return [Condition.unknown(ConditionType.MODIFIED, Reason.NOT_BOUND, message)]
    if refusal:
        return [Condition.false(ConditionType.MODIFIED, Reason.MODIFY_FAILED, refusal)]
    failure = claim.condition("ModifyVolumeError")
    words = f": {failure.message}" if failure is not None and failure.message else ""
    if claim.modify_status == "Infeasible" and claim.attributes_class == name:
        message = (
            f"the driver cannot apply VolumeAttributesClass {name}{words}; "
            "set spec.volumeAttributesClassName to another class"
        )
        return [Condition.false(ConditionType.MODIFIED, Reason.MODIFY_INFEASIBLE, message)]
    return [Condition.false(ConditionType.MODIFIED, Reason.MODIFYING, f"{message}{words}")]


def _evaluate_without_claim(
    volume: DemoVolume, observed: Observed, refusals: Refusals, conflict: Condition
) -> list[Condition]:
    ready = _explain_absence(volume, observed, refusals)
    if conflict.status == "True":
        ready = Condition.false(ConditionType.READY, conflict.reason, conflict.message)
    nothing = "the DemoVolume has no claim"
    return [
        ready,
        Condition.false(ConditionType.BOUND, ready.reason, nothing),
        Condition.unknown(ConditionType.RESIZED, Reason.NOT_BOUND, nothing),
        Condition.unknown(ConditionType.DRIFTED, Reason.NOT_BOUND, nothing),
        conflict,
    ]


def _explain_absence(volume: DemoVolume, observed: Observed, refusals: Refusals) -> Condition:
    problem = find_source_problem(volume, observed)
    if problem is not None:
        return problem
    if is_lost(volume, observed):
        name = describe(PVC, Key(volume.metadata.namespace, volume.claim_name))
        message = (
            f"{name} no longer exists, and its data should have been kept; restore it under this"
            " name, or set spec.onLoss to Recreate for an empty one"
        )
        return Condition.false(ConditionType.READY, Reason.CLAIM_LOST, message)
    refusal = refusals.get(Reason.CREATED) or refusals.get(Reason.REPLACED)
    if refusal is not None:
        return Condition.false(ConditionType.READY, Reason.CREATE_FAILED, refusal)
    return Condition.false(ConditionType.READY, Reason.CREATING, "the claim is being created")


def _evaluate_ready(
    claim: ClaimView, bound: Condition, resized: Condition, observed: Observed
) -> Condition:
    if claim.deleting:
        held = f"; still used by {render_users(observed.users)}" if observed.users else ""
        name = describe(PVC, claim.key)
        message = f"{name} is being deleted with its data{held}{render_blockers(claim)}"
        return Condition.false(ConditionType.READY, Reason.CLAIM_TERMINATING, message)
    if bound.reason == Reason.WAITING_FOR_FIRST_CONSUMER and resized.status == "False":
        return Condition.false(ConditionType.READY, resized.reason, resized.message)
    if bound.reason == Reason.WAITING_FOR_FIRST_CONSUMER:
        return Condition.true(ConditionType.READY, bound.reason, bound.message)
    if bound.status != "True":
        return Condition.false(ConditionType.READY, bound.reason, bound.message)
    if resized.reason == Reason.FILE_SYSTEM_PENDING:
        return _evaluate_mounting(resized, [user for user in observed.users if not user.finished])
    if resized.status != "True":
        return Condition.false(ConditionType.READY, resized.reason, resized.message)
    return Condition.true(ConditionType.READY, Reason.BOUND, resized.message)


def _evaluate_mounting(resized: Condition, users: Sequence[ClaimUser]) -> Condition:
    """Build the condition Ready for a volume whose file system must still grow.

    If no pod uses the volume, it is ready: the kubelet grows the file system before it starts the
    next pod.
    """
    if not users:
        return Condition.true(ConditionType.READY, resized.reason, resized.message)
    # Some storage drivers can grow a file system only while it is not mounted.
    hint = f"if that lasts, restart {render_users(users)}"
    return Condition.false(ConditionType.READY, resized.reason, f"{resized.message}; {hint}")


def _evaluate_bound(claim: ClaimView, observed: Observed) -> Condition:
    name = describe(PVC, claim.key)
    if claim.bound:
        return Condition.true(ConditionType.BOUND, Reason.BOUND, f"bound to {claim.volume_name}")
    if claim.phase == "Lost":
        message = (
            f"the volume {claim.volume_name} of {name} no longer exists; restore that"
            " PersistentVolume"
        )
        return Condition.false(ConditionType.BOUND, Reason.LOST, message)
    if observed.lost_origin and not claim.volume_name:
        message = (
            f"{observed.lost_origin}, which {name} should be populated from, no longer "
            "exists; restore it, or create a DemoVolume with another source"
        )
        return Condition.false(ConditionType.BOUND, Reason.SOURCE_MISSING, message)
    waits = observed.storage_class is not None and observed.storage_class.waits_for_consumer
    if waits and not claim.volume_name and not claim.has_consumer:
        message = f"the volume is created when a pod uses {name}"
        return Condition.false(ConditionType.BOUND, Reason.WAITING_FOR_FIRST_CONSUMER, message)
    message = f"{name} waits for its volume; {_explain_waiting(claim, observed)}"
    return Condition.false(ConditionType.BOUND, Reason.PROVISIONING, message)


def _explain_waiting(claim: ClaimView, observed: Observed) -> str:
    """Return why a claim may be unbound, or what to do about it."""
    if observed.storage_class is not None:
        return "see its events"
    if claim.storage_class is None:
        return (
            "the cluster has no default storage class; set spec.storageClassName in a new "
            "DemoVolume, or mark a class as the default"
        )
    if not claim.storage_class:
        return "without a storage class the claim needs a volume created by hand"
    return (
        f"storage class {claim.storage_class} does not exist, so it needs that class, "
        "or a volume created by hand"
    )


def _evaluate_drift(
    volume: DemoVolume, observed: Observed, claim: ClaimView, refusals: Refusals
) -> Condition:
    refused = refusals.get(Reason.CORRECTED)
    if refused is not None and build_metadata_patch(volume, claim):
        return Condition.true(ConditionType.DRIFTED, Reason.CORRECTION_FAILED, refused)
    size = volume.spec.size_bytes
    if claim.requested is not None and claim.requested > size:
        sizes = f"the claim asks for {claim.requested_text}, spec.size is {render_quantity(size)}"
        remedy = "and a volume cannot shrink; set spec.size to the current size"
        if not claim.volume_name and not has_own_origin(volume, observed, claim):
            remedy = "and a claim without a volume cannot change; it will be replaced"
        message = f"{sizes}, {remedy}"
        return Condition.true(ConditionType.DRIFTED, Reason.LARGER_THAN_SPEC, message)
    return Condition.false(ConditionType.DRIFTED, Reason.IN_SYNC)


def _evaluate_snapshot_api(volume: DemoVolume, observed: Observed) -> list[Condition]:
    """Build the condition SnapshotsAvailable, if the spec needs snapshots."""
    source = volume.spec.source
    fields = []
    if find_policy(volume, observed.claim) is ReclaimPolicy.SNAPSHOT:
        fields.append("spec.reclaimPolicy Snapshot")
    if source is not None and source.snapshot is not None:
        fields.append("spec.source.snapshot")
    if not fields:
        return []
    if observed.snapshots_served:
        return [Condition.true(ConditionType.SNAPSHOTS_AVAILABLE, Reason.SNAPSHOT_API_FOUND)]
    message = explain_missing_api(" and ".join(fields))
    return [
        Condition.false(ConditionType.SNAPSHOTS_AVAILABLE, Reason.SNAPSHOT_API_MISSING, message)
    ]
