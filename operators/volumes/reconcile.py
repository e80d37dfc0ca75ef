"""Planning: computes the next actions for a DemoVolume. Pure: no I/O, no clock.

A plan depends only on the observed state. So after a crash between two steps, the next reconcile
observes the intermediate state and plans the remaining steps. After a plan was executed completely,
the next plan is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from libs.common.actions import Action, Teardown
from libs.common.kinds import PVC, Manifest, describe
from libs.common.plan import Create, Delete, Patch
from libs.common.quantity import render_quantity
from libs.contracts.claims import ClaimView
from libs.contracts.snapshots import VOLUME_SNAPSHOT, VolumeSnapshotView
from operators.volumes.api.v1alpha1 import AdoptPolicy, DemoVolume, Reason, ReclaimPolicy
from operators.volumes.growth import find_rule, must_recreate, plan_request
from operators.volumes.naming import SNAPSHOT_OF
from operators.volumes.observed import (
    ClaimOwnership,
    Observed,
    explain_missing_api,
    find_ownership,
    find_policy,
    find_source_problem,
    has_own_origin,
    is_lost,
    is_ours,
    is_restored,
    list_mismatches,
    render_blockers,
    render_users,
    shares,
)
from operators.volumes.resources import (
    build_adoption_patch,
    build_attributes_patch,
    build_claim,
    build_metadata_patch,
    build_outdated_patch,
    build_release_patch,
    build_request_patch,
    build_snapshot,
    render_size,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a DemoVolume that is not being deleted.

    Attributes:
        actions: Actions to execute one after the other.
        takes_over: Whether the plan makes the DemoVolume the owner of an existing claim. Check with
            the API server first that the DemoVolume still exists: the garbage collector deletes a
            claim whose owner reference is dangling.
        recreates: Whether the plan deletes a claim without a volume, to create it again. The status
            must no longer name the claim then: it would count as lost.
    """

    actions: tuple[Action, ...] = ()
    takes_over: bool = False
    recreates: bool = False


def plan_volume(volume: DemoVolume, observed: Observed) -> Plan:
    """Plan the actions that bring the claim in line with the spec.

    A plan never changes a claim of another owner, and never requests less than the capacity.
    """
    claim = observed.claim
    match find_ownership(volume, observed):
        case ClaimOwnership.ABSENT:
            return _plan_creation(volume, observed)
        case ClaimOwnership.OURS if claim is not None and not claim.deleting:
            return _plan_correction(volume, observed, claim)
        case ClaimOwnership.FOREIGN if claim is not None and shares(volume, claim):
            # The claim has other owners as well: correct only our labels, annotations and owner
            # reference.
            return Plan(_plan_metadata(volume, claim), takes_over=True)
        case ClaimOwnership.UNOWNED if claim is not None and may_adopt(volume, observed):
            return Plan(_plan_adoption(volume, observed, claim), takes_over=True)
        case _:
            return Plan()


def plan_finalize(volume: DemoVolume, observed: Observed) -> Teardown:
    """Plan the clean-up before the finalizer of a DemoVolume can be removed.

    The current reclaimPolicy applies: users can change it while the deletion waits.
    """
    claim = observed.claim
    if claim is None:
        return Teardown(done=True)
    if find_ownership(volume, observed) is not ClaimOwnership.OURS:
        # The claim stays with its other owners.
        return _plan_release(volume, claim) if shares(volume, claim) else Teardown(done=True)
    policy = find_policy(volume, claim)
    if policy is ReclaimPolicy.RETAIN or observed.is_orphaning:
        return _plan_release(volume, claim)
    # A claim that was never bound contains no data, and a claim that is being deleted can no longer
    # be snapshotted.
    if (
        policy is ReclaimPolicy.SNAPSHOT
        and claim.volume_name
        and not claim.deleting
        and (waiting := _plan_snapshot(volume, observed, claim)) is not None
    ):
        return waiting
    return _plan_deletion(observed, claim, policy)


def may_adopt(volume: DemoVolume, observed: Observed) -> bool:
    """Return whether a claim without an owner may be adopted."""
    if observed.claim is not None and is_restored(volume, observed.claim):
        return True
    return volume.spec.adopt is AdoptPolicy.IF_MATCHING and not list_mismatches(volume, observed)


def _plan_creation(volume: DemoVolume, observed: Observed) -> Plan:
    if find_source_problem(volume, observed) is not None:
        # A claim whose source does not fit would stay Pending indefinitely, and a pending claim is
        # immutable.
        return Plan()
    if is_lost(volume, observed):
        return Plan()
    source_claim = observed.source.claim if observed.source is not None else ""
    manifest = build_claim(volume, source_claim)
    step = Create(PVC, manifest, ours=lambda held: is_ours(volume, ClaimView.parse(held)))
    name = describe(PVC, step.key)
    if volume.status is not None and volume.status.pvc_ref is not None:
        note = f"Recreated {name}, which is empty; the previous one no longer exists"
        return Plan((Action(step, Reason.REPLACED, note, warning=True),))
    return Plan((Action(step, Reason.CREATED, f"Created {name}"),))


def _plan_adoption(volume: DemoVolume, observed: Observed, claim: ClaimView) -> tuple[Action, ...]:
    # A last snapshot of an earlier DemoVolume must not count for this one: the claim can be used
    # after the adoption. The adoption itself records it as outdated, because this DemoVolume may be
    # deleted before its next reconcile.
    snapshot = observed.snapshot
    earlier = snapshot.key.name if snapshot is not None and _is_last_of(snapshot, claim) else ""
    operations = build_adoption_patch(volume, claim, outdated=earlier)
    return _patch_metadata(claim, operations, Reason.ADOPTED, "Adopted")


def _plan_correction(volume: DemoVolume, observed: Observed, claim: ClaimView) -> Plan:
    # The last snapshot of an earlier deletion that kept the claim in the end, for example because
    # reclaimPolicy was changed. The claim is in use again, so the snapshot is outdated.
    outdated = _plan_outdated(observed, claim)
    if outdated:
        return Plan(outdated)
    recreates = must_recreate(render_size(volume), claim, observed.users)
    if recreates and not has_own_origin(volume, observed, claim):
        name, version = describe(PVC, claim.key), claim.resource_version
        delete = Delete(PVC, claim.key, claim.uid, resource_version=version)
        note = f"Replacing {name}, which has no volume yet, to request {render_size(volume)}"
        return Plan((Action(delete, Reason.RESIZING, note),), recreates=True)
    metadata = _plan_metadata(volume, claim)
    changes = (*_plan_attributes(volume, claim), *_plan_growth(volume, observed, claim))
    return Plan((*metadata, *changes), takes_over=bool(metadata))


def _plan_growth(volume: DemoVolume, observed: Observed, claim: ClaimView) -> tuple[Action, ...]:
    rule = find_rule(claim, observed.storage_class)
    size = plan_request(volume.spec.size_bytes, claim, rule)
    if size is None:
        return ()
    operations = build_request_patch(claim, size)
    # Without annotations, the patch would replace annotations that somebody else adds meanwhile.
    version = "" if claim.annotations else claim.resource_version
    step = Patch(PVC, claim.key, claim.uid, operations, resource_version=version)
    note = f"Requested {render_quantity(size)} instead of {claim.requested_text}"
    return (Action(step, Reason.RESIZING, note),)


def _plan_attributes(volume: DemoVolume, claim: ClaimView) -> tuple[Action, ...]:
    """Request another VolumeAttributesClass; Kubernetes allows this only for bound claims."""
    name = volume.spec.volume_attributes_class_name
    if name is None or name == claim.attributes_class or not claim.bound:
        return ()
    step = Patch(PVC, claim.key, claim.uid, build_attributes_patch(name))
    note = f"Requested VolumeAttributesClass {name}"
    if claim.attributes_class:
        note = f"{note} instead of {claim.attributes_class}"
    return (Action(step, Reason.MODIFYING, note),)


def _plan_metadata(volume: DemoVolume, claim: ClaimView) -> tuple[Action, ...]:
    operations = build_metadata_patch(volume, claim)
    return _patch_metadata(claim, operations, Reason.CORRECTED, "Corrected labels or owner of")


def _patch_metadata(
    claim: ClaimView, operations: Sequence[Manifest], reason: Reason, note: str
) -> tuple[Action, ...]:
    if not operations:
        return ()
    # The patch replaces the owner references as a list. The resource version makes it fail if
    # another client has changed them in the meantime, so that their change is not lost.
    step = Patch(PVC, claim.key, claim.uid, operations, resource_version=claim.resource_version)
    return (Action(step, reason, f"{note} {describe(PVC, claim.key)}"),)


def _plan_outdated(observed: Observed, claim: ClaimView) -> tuple[Action, ...]:
    """Record that the claim was used after its last snapshot, so that another one is taken.

    The record is an annotation on the claim, so it survives a restart of the operator. The outdated
    snapshot is kept; users can delete it.
    """
    snapshot = observed.snapshot
    if snapshot is None or not _is_last_of(snapshot, claim):
        return ()
    operations = build_outdated_patch(claim, snapshot.key.name)
    step = Patch(PVC, claim.key, claim.uid, operations, resource_version=claim.resource_version)
    note = f"{describe(VOLUME_SNAPSHOT, snapshot.key)} is older than the last use of the volume"
    return (Action(step, Reason.SNAPSHOT_OUTDATED, note),)


def _plan_release(volume: DemoVolume, claim: ClaimView) -> Teardown:
    operations = build_release_patch(volume, claim)
    step = Patch(PVC, claim.key, claim.uid, operations, resource_version=claim.resource_version)
    note = f"Kept {describe(PVC, claim.key)}, which has no owner now"
    return Teardown(
        (Action(step, Reason.RELEASED, note),), reason=Reason.RELEASED, message="The claim is kept"
    )


def _plan_snapshot(volume: DemoVolume, observed: Observed, claim: ClaimView) -> Teardown | None:
    """Plan what must happen before the claim may be deleted; None if it can be deleted now."""
    snapshot = observed.snapshot
    if not observed.snapshots_served:
        hint = f"{explain_missing_api('reclaimPolicy Snapshot')}, or set Retain or Delete"
        return Teardown(reason=Reason.SNAPSHOT_API_MISSING, message=hint)
    if observed.users:
        # Data that a pod writes after the snapshot would be lost with the claim.
        waiting = _wait_for_users(observed, "the last snapshot will be taken next")
        return replace(waiting, actions=_plan_outdated(observed, claim))
    if snapshot is None:
        manifest = build_snapshot(volume, claim)
        step = Create(VOLUME_SNAPSHOT, manifest, ours=lambda held: _is_of_claim(held, claim))
        name = describe(VOLUME_SNAPSHOT, step.key)
        action = Action(step, Reason.SNAPSHOTTING, f"Taking {name}")
        return Teardown((action,), reason=Reason.SNAPSHOTTING, message=f"Taking {name}")
    name = describe(VOLUME_SNAPSHOT, snapshot.key)
    if snapshot.deleting:
        message = f"{name} is being deleted; it will be recreated"
        return Teardown(reason=Reason.SNAPSHOTTING, message=message)
    if not _is_last_of(snapshot, claim):
        return Teardown(
            reason=Reason.SNAPSHOT_CONFLICT,
            message=f"{name} is not the last snapshot of the claim; set reclaimPolicy to Retain",
        )
    if snapshot.ready:
        return None
    hint = "set reclaimPolicy to Retain or Delete to continue without a snapshot"
    if snapshot.error:
        other = f"to use another class, set spec.snapshotClassName and delete {name}"
        message = f"{name} failed: {snapshot.error}; {other}; {hint}"
        return Teardown(reason=Reason.SNAPSHOT_FAILED, message=message)
    waits = f"Waiting for {name} to be ready; if it does not become ready, {hint}"
    return Teardown(reason=Reason.SNAPSHOTTING, message=waits)


def _plan_deletion(observed: Observed, claim: ClaimView, policy: ReclaimPolicy) -> Teardown:
    name = describe(PVC, claim.key)
    actions: tuple[Action, ...] = ()
    if not claim.deleting:
        step = Delete(PVC, claim.key, claim.uid)
        actions = (Action(step, Reason.DELETING_CLAIM, f"Deleting {name}"),)
    if observed.users:
        waiting = _wait_for_users(observed, f"{name} is deleted when no pod uses it")
        return Teardown(actions, reason=waiting.reason, message=waiting.message)
    message = f"Waiting for {name} to be deleted{render_blockers(claim)}"
    if policy is ReclaimPolicy.SNAPSHOT and claim.volume_name and claim.deleting:
        ready = observed.snapshot is not None and observed.snapshot.ready
        message += (
            "" if ready else "; no snapshot is taken of a claim that is already being deleted"
        )
    return Teardown(actions, reason=Reason.DELETING_CLAIM, message=message)


def _is_last_of(snapshot: VolumeSnapshotView, claim: ClaimView) -> bool:
    """Return whether a snapshot is a last snapshot of this incarnation of the claim."""
    is_of_claim = snapshot.annotations.get(SNAPSHOT_OF) == claim.uid
    return is_of_claim and snapshot.source_claim == claim.key.name


def _is_of_claim(snapshot: Manifest, claim: ClaimView) -> bool:
    return VolumeSnapshotView.parse(snapshot).annotations.get(SNAPSHOT_OF) == claim.uid


def _wait_for_users(observed: Observed, consequence: str) -> Teardown:
    message = f"In use by {render_users(observed.users)}; {consequence}"
    return Teardown(reason=Reason.IN_USE, message=message)
