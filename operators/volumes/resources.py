"""Manifests and patches of what a DemoVolume makes; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from libs.common.contracts.claims import ClaimView
from libs.common.contracts.snapshots import SNAPSHOT_GROUP, VOLUME_SNAPSHOT
from libs.common.kinds import PVC, Manifest, build_object
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import label_value
from libs.common.ownership import build_owner_reference
from libs.common.plan import escape_pointer
from libs.common.quantity import canonicalize_quantity, parse_quantity, render_quantity
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume, ReclaimPolicy
from operators.volumes.naming import (
    KEPT_FOR,
    OPERATOR,
    OUTDATED_SNAPSHOT,
    SNAPSHOT_OF,
    last_snapshot_name,
)


def build_labels(volume: DemoVolume) -> dict[str, str]:
    """Build the labels that each child carries."""
    return {MANAGED_BY: OPERATOR, INSTANCE: label_value(volume.metadata.name)}


def build_claim(volume: DemoVolume, source_claim: str = "") -> Manifest:
    """Build the claim of a DemoVolume.

    Args:
        volume: What is asked for.
        source_claim: Name of the claim of the DemoVolume to clone, if one is.
    """
    spec: Manifest = {
        "accessModes": [str(mode) for mode in volume.spec.access_modes],
        "volumeMode": str(volume.spec.volume_mode),
        "resources": {"requests": {"storage": render_size(volume)}},
    }
    if volume.spec.storage_class_name is not None:
        spec["storageClassName"] = volume.spec.storage_class_name
    source = build_data_source(volume, source_claim)
    if source is not None:
        spec["dataSource"] = source
    metadata: Manifest = {"labels": build_labels(volume)}
    if volume.spec.reclaim_policy is ReclaimPolicy.DELETE:
        metadata["ownerReferences"] = [build_reference(volume)]
    else:
        metadata["annotations"] = {KEPT_FOR: volume.metadata.uid}
    place = volume.metadata.namespace
    return build_object(PVC, volume.claim_name, place, metadata=metadata, spec=spec)


def build_data_source(volume: DemoVolume, source_claim: str) -> Manifest | None:
    """Build what a claim is filled from; None for an empty volume."""
    source = volume.spec.source
    if source is None:
        return None
    if source.snapshot is not None:
        return {
            "apiGroup": SNAPSHOT_GROUP,
            "kind": VOLUME_SNAPSHOT.kind,
            "name": source.snapshot,
        }
    return {"kind": PVC.kind, "name": source_claim}


def build_snapshot(volume: DemoVolume, claim: ClaimView) -> Manifest:
    """Build the last snapshot of a claim; it has no owner, so that it outlives everything."""
    spec: Manifest = {"source": {"persistentVolumeClaimName": claim.key.name}}
    if volume.spec.snapshot_class_name is not None:
        spec["volumeSnapshotClassName"] = volume.spec.snapshot_class_name
    return build_object(
        VOLUME_SNAPSHOT,
        last_snapshot_name(claim),
        claim.key.namespace,
        metadata={"labels": build_labels(volume), "annotations": {SNAPSHOT_OF: claim.uid}},
        spec=spec,
    )


def build_reference(volume: DemoVolume) -> Manifest:
    """Build the controller reference of a claim under reclaimPolicy Delete."""
    metadata = {"name": volume.metadata.name, "uid": volume.metadata.uid}
    return build_owner_reference(DEMO_VOLUME, {"metadata": metadata})


def build_metadata_patch(
    volume: DemoVolume, claim: ClaimView, *, outdated: str = ""
) -> list[Manifest]:
    """Build the operations that give a claim its labels and the mark of its owner.

    Args:
        volume: What is asked for.
        claim: The claim.
        outdated: Name of a last snapshot to be noted as outdated; empty for none.

    Returns:
        Operations; empty when the claim has it all.
    """
    owned = volume.spec.reclaim_policy is ReclaimPolicy.DELETE
    marks = {KEPT_FOR: "" if owned else volume.metadata.uid}
    if outdated:
        marks[OUTDATED_SNAPSHOT] = outdated
    return [
        *_set_references(claim, [build_reference(volume)] if owned else [], volume.metadata.uid),
        *_set_entries("annotations", claim.annotations, marks),
        *_set_entries("labels", claim.labels, build_labels(volume)),
    ]


def build_release_patch(volume: DemoVolume, claim: ClaimView) -> list[Manifest]:
    """Build the operations that make a claim belong to nobody; empty when it does already."""
    kept = claim.annotations.get(KEPT_FOR) == volume.metadata.uid
    return [
        *_set_references(claim, [], volume.metadata.uid),
        *(_set_entries("annotations", claim.annotations, {KEPT_FOR: ""}) if kept else ()),
    ]


def build_outdated_patch(claim: ClaimView, snapshot: str) -> list[Manifest]:
    """Build the operations that note on a claim which last snapshot is older than its last use."""
    return _set_entries("annotations", claim.annotations, {OUTDATED_SNAPSHOT: snapshot})


def build_request_patch(claim: ClaimView, size: Fraction) -> list[Manifest]:
    """Build the operations that change the size a claim asks for.

    The size that was looked at is tested first: what was decided on for another one is not written.
    """
    path = "/spec/resources/requests/storage"
    return [
        {"op": "test", "path": path, "value": claim.requested_text},
        {"op": "replace", "path": path, "value": render_quantity(size)},
    ]


def render_size(volume: DemoVolume) -> str:
    """Render the size of a spec as Kubernetes writes it: 5 becomes `5Gi`, and `1e9` stays."""
    size, exact = volume.spec.size, volume.spec.size_bytes
    if isinstance(size, int):
        return f"{size}Gi"
    canonical = canonicalize_quantity(size)
    return canonical if parse_quantity(canonical) == exact else render_quantity(exact)


def _set_references(claim: ClaimView, wanted: Sequence[Manifest], uid: str) -> list[Manifest]:
    """Make `wanted` the references that have our UID, and leave those of others alone."""
    held = [dict(reference) for reference in claim.owner_references]
    if [reference for reference in held if reference.get("uid") == uid] == list(wanted):
        return []
    others = [reference for reference in held if reference.get("uid") != uid]
    return [{"op": "add", "path": "/metadata/ownerReferences", "value": [*others, *wanted]}]


def _set_entries(field: str, held: Mapping[str, str], wanted: Mapping[str, str]) -> list[Manifest]:
    """Set entries of a metadata map; an empty value takes an entry out."""
    path = f"/metadata/{field}"
    if not held:
        new = {name: value for name, value in wanted.items() if value}
        return [{"op": "add", "path": path, "value": new}] if new else []
    operations: list[Manifest] = []
    for name, value in wanted.items():
        place = f"{path}/{escape_pointer(name)}"
        if held.get(name, "") == value:
            continue
        operations.append(
            {"op": "add", "path": place, "value": value}
            if value
            else {"op": "remove", "path": place}
        )
    return operations
