"""The observed state of a DemoVolume, and the ownership of its claim. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from fractions import Fraction
from typing import Final, Self, assert_never

from libs.common.conditions import Condition
from libs.common.crd import LabelSelector
from libs.common.kinds import PVC, Key, Manifest, describe
from libs.common.naming import label_value
from libs.common.quantity import render_quantity
from libs.contracts.claims import ClaimUser, ClaimView, StorageClassView
from libs.contracts.snapshots import VOLUME_SNAPSHOT, VolumeSnapshotView
from operators.volumes.api.v1alpha1 import (
    DEMO_VOLUME,
    AdoptPolicy,
    ConditionType,
    DemoVolume,
    LossPolicy,
    Reason,
    ReclaimPolicy,
)
from operators.volumes.naming import ADOPTED_BY, KEPT_FOR, VOLUME_LABEL

_PROTECTION: Final = "kubernetes.io/pvc-protection"
"""Finalizer of each claim: Kubernetes removes it when no pod uses the claim."""


class ClaimOwnership(Enum):
    """The ownership of the claim with the name of the volume."""

    ABSENT = auto()
    OURS = auto()
    UNOWNED = auto()
    FOREIGN = auto()


@dataclass(frozen=True, slots=True)
class SourceView:
    """The source from which a new volume must be filled.

    Attributes:
        size: Minimum size of the copy in bytes; None if it is not known yet.
        volume_mode: Mode that the copy must have; empty for any mode.
        claim: Name of the claim to clone; empty for a snapshot.
    """

    ready: bool
    size: Fraction | None
    volume_mode: str = ""
    claim: str = ""

    @classmethod
    def of_snapshot(cls, snapshot: VolumeSnapshotView) -> Self:
        """Build the source from a snapshot."""
        return cls(snapshot.ready and not snapshot.deleting, snapshot.restore_size)

    @classmethod
    def of_claim(cls, claim: ClaimView) -> Self:
        """Build the source from the claim of another DemoVolume."""
        ready = claim.bound and not claim.deleting
        # As in the provisioner of CSI, the request counts: storage may have rounded up the volume,
        # and rounds up the copy in the same way.
        return cls(ready, claim.requested, claim.volume_mode, claim.key.name)


@dataclass(frozen=True, slots=True)
class Observed:
    """The current state of one DemoVolume and its dependencies.

    Attributes:
        claim: Claim with the name in the spec, whoever owns it.
        holder: Other owner of the claim, for messages; empty if there is none.
        storage_class: StorageClass of the claim; None if it has none or the class does not exist.
        users: Pods that use the claim, by name.
        snapshots_served: Whether the cluster serves VolumeSnapshot.
        source: Source of the data of the volume; None if the source does not exist.
        snapshot: Last snapshot of the claim, found by its name.
        is_orphaning: Whether the DemoVolume is being deleted with `--cascade=orphan`, which keeps
            the claim.
        lost_origin: Data source of an unbound claim that no longer exists, for messages; empty for
            none. Before the copy begins, nothing protects the data source from deletion.
    """

    claim: ClaimView | None = None
    holder: str = ""
    storage_class: StorageClassView | None = None
    users: tuple[ClaimUser, ...] = ()
    snapshots_served: bool = True
    source: SourceView | None = None
    snapshot: VolumeSnapshotView | None = None
    lost_origin: str = ""
    is_orphaning: bool = False

    def without_claim(self) -> Observed:
        """Return a copy without the claim."""
        return replace(self, claim=None)


def belongs_to(uid: str, claim: ClaimView) -> bool:
    """Return whether a claim belongs to the DemoVolume with a UID, and to no other owner.

    Owners that are not the controller count as well: the garbage collector deletes the claim after
    its last owner.
    """
    owners = {reference.get("uid") for reference in claim.owner_references}
    if owners:
        return bool(uid) and owners == {uid}
    return bool(uid) and claim.annotations.get(KEPT_FOR) == uid


def is_ours(volume: DemoVolume, claim: ClaimView) -> bool:
    """Return whether a claim belongs only to this incarnation of a DemoVolume."""
    return belongs_to(volume.metadata.uid, drop_former(claim, volume.key, volume.metadata.uid))


def drop_former(claim: ClaimView, volume: Key, uid: str) -> ClaimView:
    """Return a claim without the references to former incarnations of a DemoVolume.

    Some tools restore a claim with its former owner, which no longer exists. Until the claim is
    adopted, the garbage collector may delete it with its data.
    """
    kept = [
        each
        for each in claim.owner_references
        if each.get("kind") != DEMO_VOLUME.kind
        or str(each.get("apiVersion")).partition("/")[0] != DEMO_VOLUME.group
        or each.get("name") != volume.name
        or each.get("uid") == uid
    ]
    return replace(claim, owner_references=tuple(kept))


def build_labels(volume: DemoVolume) -> dict[str, str]:
    """Build the labels of each child."""
    return {VOLUME_LABEL: label_value(volume.metadata.name)}


def is_restored(volume: DemoVolume, claim: ClaimView) -> bool:
    """Return whether a claim without an owner belonged to a DemoVolume of this name.

    Backup tools restore objects without owner references and UIDs, so only the label is left. A
    claim that a DemoVolume kept when it was deleted has lost the label as well.
    """
    return claim.labels.items() >= build_labels(volume).items() and not claim.deleting


def shares(volume: DemoVolume, claim: ClaimView) -> bool:
    """Return whether this incarnation of a DemoVolume is one of several owners of a claim."""
    held = drop_former(claim, volume.key, volume.metadata.uid)
    owners = {reference.get("uid") for reference in held.owner_references}
    return volume.metadata.uid in owners and len(owners) > 1


def find_policy(volume: DemoVolume, claim: ClaimView | None) -> ReclaimPolicy:
    """Return the reclaim policy in effect.

    An adopted claim contains data from before the adoption, so it is deleted only if the user sets
    reclaimPolicy explicitly.
    """
    if volume.spec.reclaim_policy is not None:
        return volume.spec.reclaim_policy
    if claim is None:
        before = volume.status.reclaim_policy if volume.status is not None else None
        return before or ReclaimPolicy.DELETE
    adopted = claim.annotations.get(ADOPTED_BY) == volume.metadata.uid
    return ReclaimPolicy.RETAIN if adopted else ReclaimPolicy.DELETE


def is_lost(volume: DemoVolume, observed: Observed) -> bool:
    """Return whether the claim was lost and must not be recreated with an empty volume."""
    had = volume.status is not None and volume.status.pvc_ref is not None
    if observed.claim is not None or not had:
        return False
    if volume.spec.on_loss is not None:
        return volume.spec.on_loss is LossPolicy.WAIT
    return find_policy(volume, None) is not ReclaimPolicy.DELETE


def find_ownership(volume: DemoVolume, observed: Observed) -> ClaimOwnership:
    """Return who owns the claim with the name in the spec."""
    claim = observed.claim
    if claim is None:
        return ClaimOwnership.ABSENT
    if is_ours(volume, claim):
        return ClaimOwnership.OURS
    held = drop_former(claim, volume.key, volume.metadata.uid)
    is_foreign = held.owner_references or observed.holder
    return ClaimOwnership.FOREIGN if is_foreign else ClaimOwnership.UNOWNED


def evaluate_conflict(volume: DemoVolume, observed: Observed, refusal: str = "") -> Condition:
    """Build the condition Conflict.

    Args:
        volume: The DemoVolume.
        observed: Observed objects.
        refusal: Error message of the API server for an adoption; empty for none.
    """
    standing = find_ownership(volume, observed)
    match standing:
        case ClaimOwnership.ABSENT | ClaimOwnership.OURS:
            return Condition.false(ConditionType.CONFLICT, Reason.NO_CONFLICT)
        case ClaimOwnership.FOREIGN:
            return _conflict(
                Reason.FOREIGN_CLAIM,
                f"{_claim_of(observed)} belongs to {observed.holder or 'another owner'} and is "
                "not touched; create a DemoVolume with another spec.name, or remove that owner",
            )
        case ClaimOwnership.UNOWNED:
            return _evaluate_unowned(volume, observed, refusal)
        case unknown:
            assert_never(unknown)


def render_selector(selector: LabelSelector) -> Manifest:
    """Render a selector as the API server stores it in a claim: without empty fields."""
    raw = selector.to_manifest()
    rules = [
        {name: value for name, value in rule.items() if value} for rule in raw["matchExpressions"]
    ]
    rendered = {"matchLabels": raw["matchLabels"], "matchExpressions": rules}
    return {name: value for name, value in rendered.items() if value}


def list_mismatches(volume: DemoVolume, observed: Observed) -> list[str]:
    """Return the reasons why a claim without an owner cannot be adopted."""
    claim, spec = observed.claim, volume.spec
    if claim is None:
        return []
    problems = []
    if claim.deleting:
        problems.append("it is being deleted")
    if set(claim.access_modes) != set(spec.access_modes):
        problems.append(_differ("accessModes", ",".join(claim.access_modes)))
    if claim.volume_mode != spec.volume_mode:
        problems.append(_differ("volumeMode", claim.volume_mode))
    if spec.storage_class_name is not None and claim.storage_class != spec.storage_class_name:
        problems.append(_differ("storageClassName", claim.storage_class or "not set"))
    if claim.requested is not None and claim.requested > spec.size_bytes:
        problems.append(f"it has size {render_quantity(claim.requested)}, more than spec.size")
    if spec.volume_name is not None and claim.volume_name != spec.volume_name:
        problems.append(_differ("volumeName", claim.volume_name or "not set"))
    if spec.selector is not None and claim.selector != render_selector(spec.selector):
        problems.append("its selector differs from spec.selector")
    if not _is_filled_from_source(volume, observed, claim):
        origin = "spec.source" if volume.spec.source is not None else "spec.dataSourceRef"
        problems.append(f"it was not populated from {origin}")
    return problems


def has_own_origin(volume: DemoVolume, observed: Observed, claim: ClaimView) -> bool:
    """Return whether a claim gets its volume and data from elsewhere than the spec says.

    A backup tool restores a claim with its snapshot as the data source, or with a selector for the
    volume that it fills. Recreated from the spec, the claim would lose its data.
    """
    spec = volume.spec
    selector = render_selector(spec.selector) if spec.selector is not None else None
    unnamed = spec.source is None and spec.data_source_ref is None
    unnamed &= any((*claim.data_source, *claim.data_source_ref))
    filled = _is_filled_from_source(volume, observed, claim)
    return unnamed or not filled or claim.selector != selector


def find_source_problem(volume: DemoVolume, observed: Observed) -> Condition | None:
    """Return a condition with the cause why a volume cannot be populated yet, or None."""
    wanted, source = volume.spec.source, observed.source
    if wanted is None:
        return None
    if wanted.snapshot is not None and not observed.snapshots_served:
        return _not_ready(Reason.SNAPSHOT_API_MISSING, explain_missing_api("spec.source.snapshot"))
    name = f"VolumeSnapshot {wanted.snapshot}" if wanted.snapshot else f"DemoVolume {wanted.volume}"
    if source is None:
        return _not_ready(Reason.SOURCE_MISSING, f"spec.source: {name} has no volume to copy")
    if not source.ready:
        return _not_ready(Reason.SOURCE_NOT_READY, f"{name}, the spec.source, is not ready")
    problems = []
    if source.size is not None and source.size > volume.spec.size_bytes:
        problems.append(f"it has {render_quantity(source.size)}, which spec.size does not cover")
    if source.volume_mode and source.volume_mode != volume.spec.volume_mode:
        problems.append(
            f"its volumeMode is {source.volume_mode}, which differs from spec.volumeMode"
        )
    if problems:
        return _not_ready(Reason.SOURCE_MISMATCH, f"{name}: {'; '.join(problems)}")
    return None


def explain_missing_api(field: str) -> str:
    """Return the message for a field that needs a kind that the cluster does not serve."""
    return (
        f"{field} needs {VOLUME_SNAPSHOT.resource}, which this cluster does not serve; "
        "install the snapshot CRDs and controller"
    )


def render_blockers(claim: ClaimView) -> str:
    """Return which finalizers of other components delay the deletion of a claim, or no text."""
    others = [each for each in claim.finalizers if each != _PROTECTION]
    if not claim.deleting or not others:
        return ""
    return f", which the finalizers of other components delay: {', '.join(others)}"


def render_users(users: Iterable[ClaimUser], limit: int = 3) -> str:
    """Render the users of a claim for a message: `pods a, b and 2 more`."""
    names = [str(user) for user in users]
    shown = ", ".join(names[:limit])
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{'pod' if len(names) == 1 else 'pods'} {shown}{rest}"


def _evaluate_unowned(volume: DemoVolume, observed: Observed, refusal: str) -> Condition:
    claim, restored = _claim_of(observed), observed.claim
    if restored is not None and is_restored(volume, restored):
        return _conflict(
            Reason.UNOWNED_CLAIM, f"{claim} is not adopted yet: {refusal}".rstrip(": ")
        )
    if volume.spec.adopt is AdoptPolicy.NEVER:
        return _conflict(
            Reason.UNOWNED_CLAIM,
            f"{claim} existed before and is not changed; "
            "set spec.adopt to IfMatching to adopt it, or choose another name in a new DemoVolume",
        )
    problems = list_mismatches(volume, observed)
    if problems:
        return _conflict(Reason.MISMATCH, f"{claim} cannot be adopted: {'; '.join(problems)}")
    return _conflict(Reason.UNOWNED_CLAIM, f"{claim} is not adopted yet: {refusal}".rstrip(": "))


def _is_filled_from_source(volume: DemoVolume, observed: Observed, claim: ClaimView) -> bool:
    wanted, reference = volume.spec.source, volume.spec.data_source_ref
    if reference is not None:
        return claim.data_source_ref == (reference.api_group or "", reference.kind, reference.name)
    if wanted is None:
        return True
    if wanted.snapshot is not None:
        return claim.data_source == (VOLUME_SNAPSHOT.kind, wanted.snapshot)
    kind, name = claim.data_source
    return kind == PVC.kind and (observed.source is None or observed.source.claim == name)


def _claim_of(observed: Observed) -> str:
    assert observed.claim is not None
    return describe(PVC, observed.claim.key)


def _differ(field: str, held: str) -> str:
    return f"it has {field} {held}, which differs from spec.{field}"


def _conflict(reason: Reason, message: str) -> Condition:
    return Condition.true(ConditionType.CONFLICT, reason, message)


def _not_ready(reason: Reason, message: str) -> Condition:
    return Condition.false(ConditionType.READY, reason, message)
