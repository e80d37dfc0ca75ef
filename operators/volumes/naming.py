"""Names of the claims and snapshots of a DemoVolume, and the labels and annotations on claims.

Which claim belongs to a DemoVolume
-----------------------------------
Manifests of earlier versions contain `spec.name`, so the claim has the name in `spec.name`, or the
name of the DemoVolume if the field is unset. Two DemoVolumes can therefore name the same claim. The
DemoVolume that creates the claim owns it; the other one gets the condition Conflict.

A claim records the UID of its DemoVolume in one of two ways:

* reclaimPolicy Delete: a controller reference. The garbage collector of Kubernetes deletes the
  claim together with its owner, even if this operator is no longer installed.
* reclaimPolicy Retain or Snapshot: the annotation `storage.slipway.dev/kept-for`, and *no* owner
  reference. With an owner reference, the garbage collector could delete the data: a foreground
  deletion (the default of some GitOps tools) deletes dependents before the owner's finalizer can
  prevent it, and after a restore from backup the owner has another UID, so the reference is
  dangling. StatefulSets set the owner references of their claims by the same rule.

Anyone who can write the reference or the annotation can delete the claim as well, so the annotation
protects the claim no less than the reference.
"""

from __future__ import annotations

from typing import Final

from libs.common.naming import DNS_SUBDOMAIN_LIMIT, build_name, short_hash
from libs.contracts.claims import ClaimView
from operators.volumes.api.v1alpha1 import GROUP

OPERATOR_ID: Final = "volumes"
"""Id of the operator: package, chart, release, field manager, value of the managed-by label."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each DemoVolume."""
KEPT_FOR: Final = f"{GROUP}/kept-for"
"""Annotation on a claim without owner reference: UID of the DemoVolume to which it belongs."""
ADOPTED_BY: Final = f"{GROUP}/adopted-by"
"""Annotation on a claim that existed before: UID of the DemoVolume that adopted it."""
VOLUME_LABEL: Final = f"{GROUP}/demovolume"
"""Label on claims and last snapshots: name of the DemoVolume. The operator does not set any label
under app.kubernetes.io: some GitOps tools treat an object with the label `instance` and without an
owner as a part of the application of that name, and delete it."""
SYNC_OPTIONS: Final = "argocd.argoproj.io/sync-options"
"""Annotation with the sync options of Argo CD."""
NO_PRUNING: Final = "Prune=false"
"""Value of `SYNC_OPTIONS` on claims and snapshots that are kept after their DemoVolume."""
CLAIM_METADATA: Final = f"{GROUP}/claim-metadata"
"""Annotation on a claim: JSON with the keys of the labels and annotations from spec.claimMetadata,
so that the operator removes an entry from the claim if it is removed from the spec."""
REQUESTED: Final = f"{GROUP}/requested"
"""Annotation on a claim: the size that the operator requested last. A larger request is somebody
else's, for example of an autoresizer, and is never reduced."""
SNAPSHOT_OF: Final = f"{GROUP}/snapshot-of"
"""Annotation on a last snapshot: UID of the claim from which it was taken."""

OUTDATED_SNAPSHOT: Final = f"{GROUP}/outdated-snapshot"
"""Annotation on a claim: name of a last snapshot that is outdated because the claim was used after
it."""


def snapshot_name(claim: str, claim_uid: str, outdated: str = "") -> str:
    """Return the name of the last snapshot of a claim.

    The name contains a hash of the UID, so that a recreated claim gets another snapshot.

    Args:
        claim: Name of the claim.
        claim_uid: UID of the claim.
        outdated: Name of the outdated snapshot that this one replaces; empty for none.
    """
    return build_name(claim, "final", short_hash(claim_uid + outdated), limit=DNS_SUBDOMAIN_LIMIT)


def last_snapshot_name(claim: ClaimView) -> str:
    """Return the name of the current last snapshot of a claim, ignoring an outdated one."""
    outdated = claim.annotations.get(OUTDATED_SNAPSHOT, "")
    return snapshot_name(claim.key.name, claim.uid, outdated)
