"""Manifests and patches of the claim and the last snapshot of a DemoVolume. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import orjson

from libs.common.kinds import PVC, Manifest, build_object
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import label_value
from libs.common.ownership import build_owner_reference
from libs.common.plan import escape_pointer
from libs.common.quantity import canonicalize_quantity, parse_quantity, render_quantity
from libs.contracts.claims import ClaimView
from libs.contracts.snapshots import SNAPSHOT_GROUP, VOLUME_SNAPSHOT
from operators.volumes.api.parts import is_reserved_key
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume, ReclaimPolicy
from operators.volumes.naming import (
    ADOPTED_BY,
    CLAIM_METADATA,
    KEPT_FOR,
    NO_PRUNING,
    OPERATOR_ID,
    OUTDATED_SNAPSHOT,
    REQUESTED,
    SNAPSHOT_OF,
    SYNC_OPTIONS,
    last_snapshot_name,
)
from operators.volumes.observed import (
    build_labels,
    drop_former,
    find_policy,
    is_ours,
    is_restored,
    render_selector,
    shares,
)


def build_claim(volume: DemoVolume, source_claim: str = "") -> Manifest:
    """Build the claim of a DemoVolume.

    Args:
        volume: The DemoVolume.
        source_claim: Name of the claim to clone; empty for none.
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
    spec |= _build_choices(volume)
    asked = volume.spec.claim_metadata
    metadata: Manifest = {"labels": {**asked.labels, **build_labels(volume)}}
    annotations = {REQUESTED: render_size(volume)}
    if find_policy(volume, None) is ReclaimPolicy.DELETE:
        metadata["ownerReferences"] = [build_reference(volume)]
    else:
        annotations |= {KEPT_FOR: volume.metadata.uid, SYNC_OPTIONS: NO_PRUNING}
    metadata["annotations"] = annotations | asked.annotations | _record_metadata(volume)
    place = volume.metadata.namespace
    return build_object(PVC, volume.claim_name, place, metadata=metadata, spec=spec)


def _build_choices(volume: DemoVolume) -> Manifest:
    """Build the fields of a claim that only choose or describe its volume."""
    spec = volume.spec
    choices: Manifest = {}
    if spec.data_source_ref is not None:
        choices["dataSourceRef"] = spec.data_source_ref.to_manifest()
    if spec.volume_name is not None:
        choices["volumeName"] = spec.volume_name
    if spec.selector is not None:
        choices["selector"] = render_selector(spec.selector)
    if spec.volume_attributes_class_name is not None:
        choices["volumeAttributesClassName"] = spec.volume_attributes_class_name
    return choices


def build_data_source(volume: DemoVolume, source_claim: str) -> Manifest | None:
    """Build the data source of a claim; None for an empty volume."""
    source = volume.spec.source
    if source is None:
        return None
    if source.snapshot is not None:
        return {"apiGroup": SNAPSHOT_GROUP, "kind": VOLUME_SNAPSHOT.kind, "name": source.snapshot}
    return {"kind": PVC.kind, "name": source_claim}


def build_snapshot(volume: DemoVolume, claim: ClaimView) -> Manifest:
    """Build the last snapshot of a claim; it has no owner, so it is never garbage collected."""
    spec: Manifest = {"source": {"persistentVolumeClaimName": claim.key.name}}
    if volume.spec.snapshot_class_name is not None:
        spec["volumeSnapshotClassName"] = volume.spec.snapshot_class_name
    return build_object(
        VOLUME_SNAPSHOT,
        last_snapshot_name(claim),
        claim.key.namespace,
        metadata={
            "labels": build_labels(volume),
            "annotations": {SNAPSHOT_OF: claim.uid, SYNC_OPTIONS: NO_PRUNING},
        },
        spec=spec,
    )


def build_reference(volume: DemoVolume) -> Manifest:
    """Build the controller reference of a claim under reclaimPolicy Delete."""
    metadata = {"name": volume.metadata.name, "uid": volume.metadata.uid}
    return build_owner_reference(DEMO_VOLUME, {"metadata": metadata})


def build_metadata_patch(
    volume: DemoVolume, claim: ClaimView, *, outdated: str = ""
) -> list[Manifest]:
    """Build the operations that set the labels, annotations and owner of a claim.

    Args:
        volume: The DemoVolume.
        claim: The claim.
        outdated: Name of a last snapshot to record as outdated; empty for none.

    Returns:
        The operations; empty if the claim needs no change.
    """
    owned = find_policy(volume, claim) is ReclaimPolicy.DELETE
    asked = volume.spec.claim_metadata
    former = _read_record(claim)
    marks = dict.fromkeys(former["annotations"], "")
    marks |= {CLAIM_METADATA: "", KEPT_FOR: "" if owned else volume.metadata.uid}
    if not owned and SYNC_OPTIONS not in claim.annotations:
        marks[SYNC_OPTIONS] = NO_PRUNING
    marks |= {**asked.annotations, **_record_metadata(volume)}
    if outdated:
        marks[OUTDATED_SNAPSHOT] = outdated
    labels = dict.fromkeys(former["labels"], "") | _former_labels(volume, claim)
    labels |= {**asked.labels, **build_labels(volume)}
    return [
        *_set_references(claim, [build_reference(volume)] if owned else [], volume),
        *_set_entries("annotations", claim.annotations, marks),
        *_set_entries("labels", claim.labels, labels),
    ]


def build_adoption_patch(
    volume: DemoVolume, claim: ClaimView, *, outdated: str = ""
) -> list[Manifest]:
    """Build the operations that make a DemoVolume the owner of a claim without an owner.

    Args:
        volume: The DemoVolume.
        claim: The claim.
        outdated: Name of a last snapshot to record as outdated; empty for none.
    """
    # A restored claim that was adopted once still contains data from before the adoption.
    is_own = is_restored(volume, claim) and ADOPTED_BY not in claim.annotations
    mark = {} if is_own else {ADOPTED_BY: volume.metadata.uid}
    adopted = replace(claim, annotations={**claim.annotations, **mark})
    return [
        *_set_entries("annotations", claim.annotations, mark),
        *build_metadata_patch(volume, adopted, outdated=outdated),
    ]


def _record_metadata(volume: DemoVolume) -> dict[str, str]:
    """Build the annotation that records which entries come from spec.claimMetadata."""
    asked = volume.spec.claim_metadata
    if not asked.labels and not asked.annotations:
        return {}
    record = {"annotations": sorted(asked.annotations), "labels": sorted(asked.labels)}
    return {CLAIM_METADATA: json.dumps(record, separators=(",", ":"))}


def _read_record(claim: ClaimView) -> dict[str, list[str]]:
    """Return the keys that were set from spec.claimMetadata, except those of the operator.

    Anyone who can edit the claim can edit the record, so keys that spec.claimMetadata could not
    have set are ignored.
    """
    try:
        held = orjson.loads(claim.annotations.get(CLAIM_METADATA, "") or "{}")
    except ValueError:
        held = {}
    found: dict[str, list[str]] = {}
    for field in ("annotations", "labels"):
        keys = held.get(field) if isinstance(held, dict) else None
        texts = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
        found[field] = [key for key in texts if not is_reserved_key(key)]
    return found


def _former_labels(volume: DemoVolume, claim: ClaimView) -> dict[str, str]:
    """Return labels to remove that version 0.1 has set; none if other clients changed them."""
    former = {MANAGED_BY: OPERATOR_ID, INSTANCE: label_value(volume.metadata.name)}
    held = {name: claim.labels.get(name) for name in former}
    return dict.fromkeys(former, "") if held == former else {}


def build_release_patch(volume: DemoVolume, claim: ClaimView) -> list[Manifest]:
    """Build the operations that remove the owner from a claim; empty if it has no owner."""
    uid = volume.metadata.uid
    marks = {name: "" for name in (KEPT_FOR, ADOPTED_BY) if claim.annotations.get(name) == uid}
    if is_ours(volume, claim) or shares(volume, claim):
        # The labels and annotations of spec.claimMetadata remain, so that backup tools still find
        # the claim. Only the record of their keys is removed.
        marks |= {CLAIM_METADATA: "", REQUESTED: ""}
    return [
        *_set_references(claim, [], volume),
        *(_set_entries("annotations", claim.annotations, marks) if marks else ()),
        *_set_entries("labels", claim.labels, dict.fromkeys(build_labels(volume), "")),
    ]


def build_outdated_patch(claim: ClaimView, snapshot: str) -> list[Manifest]:
    """Build the operations that record the outdated last snapshot on a claim."""
    return _set_entries("annotations", claim.annotations, {OUTDATED_SNAPSHOT: snapshot})


def build_attributes_patch(name: str) -> list[Manifest]:
    """Build the operation that changes the VolumeAttributesClass of a claim."""
    return [{"op": "add", "path": "/spec/volumeAttributesClassName", "value": name}]


def build_request_patch(claim: ClaimView, size: Fraction) -> list[Manifest]:
    """Build the operations that change the requested size of a claim.

    The patch tests the observed size first, so that a decision based on another size is not
    written.
    """
    path, wanted = "/spec/resources/requests/storage", render_quantity(size)
    return [
        {"op": "test", "path": path, "value": claim.requested_text},
        {"op": "replace", "path": path, "value": wanted},
        *_set_entries("annotations", claim.annotations, {REQUESTED: wanted}),
    ]


def render_size(volume: DemoVolume) -> str:
    """Render the size of a spec as a quantity: 5 becomes `5Gi`, and `1e9` is unchanged."""
    size, exact = volume.spec.size, volume.spec.size_bytes
    if isinstance(size, int):
        return f"{size}Gi"
    canonical = canonicalize_quantity(size)
    return canonical if parse_quantity(canonical) == exact else render_quantity(exact)


def _set_references(
    claim: ClaimView, wanted: Sequence[Manifest], volume: DemoVolume
) -> list[Manifest]:
    """Replace the references to a DemoVolume by `wanted`, and keep the references to others."""
    uid = volume.metadata.uid
    known = drop_former(claim, volume.key, uid).owner_references
    others = [dict(reference) for reference in known if reference.get("uid") != uid]
    held = [dict(reference) for reference in claim.owner_references]
    if [reference for reference in held if reference not in others] == list(wanted):
        return []
    return [{"op": "add", "path": "/metadata/ownerReferences", "value": [*others, *wanted]}]


def _set_entries(field: str, held: Mapping[str, str], wanted: Mapping[str, str]) -> list[Manifest]:
    """Set entries of a metadata map; an empty value removes an entry."""
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
