"""Names that the operator gives, one function each, and the marks that it leaves on claims.

Which claim belongs to a DemoVolume
-----------------------------------
The manifests that must keep working say `spec.name` and promise "a claim of the same name", so the
claim is named by `spec.name`; without it, by the DemoVolume. Two DemoVolumes may thus name one
claim: anyone who creates it has it, the other shows the condition Conflict.

A claim says whose it is by UID, in one of two ways:

* reclaimPolicy Delete: a controller reference. Kubernetes' garbage collector deletes the claim with
  its owner, even if this operator is no longer installed.
* reclaimPolicy Retain or Snapshot: the annotation `storage.slipway.dev/kept-for`, and *no* owner
  reference. A reference would put the data at the mercy of the garbage collector: a foreground
  deletion (the default of some GitOps tools) deletes what refers to an owner before a finalizer of
  the owner can say no, and so does a restore from backup, after which the UID of the owner differs.
  StatefulSets keep the references of their claims by the same rule.

Anyone who can write either mark can delete the claim anyway, so neither is stronger than the other.
"""

from __future__ import annotations

from typing import Final

from libs.common.naming import DNS_SUBDOMAIN_LIMIT, build_name, short_hash
from libs.contracts.claims import ClaimView
from operators.volumes.api.v1alpha1 import GROUP

OPERATOR: Final = "volumes"
"""Id of the operator: package, chart, release, field manager, value of the managed-by label."""
FINALIZER: Final = f"{GROUP}/finalizer"
"""Finalizer on each DemoVolume."""
KEPT_FOR: Final = f"{GROUP}/kept-for"
"""Annotation on a claim without owner reference: UID of the DemoVolume that it belongs to."""
ADOPTED_BY: Final = f"{GROUP}/adopted-by"
"""Annotation on a claim that existed before: UID of the DemoVolume that adopted it."""
VOLUME_LABEL: Final = f"{GROUP}/demovolume"
"""Label on claims and last snapshots: name of the DemoVolume. Labels of the form
app.kubernetes.io/... are left to others: some GitOps tools take an object with the label `instance`
and without an owner for a part of the application of that name, and delete it."""
SYNC_OPTIONS: Final = "argocd.argoproj.io/sync-options"
"""Annotation with the sync options of Argo CD."""
NO_PRUNING: Final = "Prune=false"
"""Value of `SYNC_OPTIONS` on what is kept after its DemoVolume."""
CLAIM_METADATA: Final = f"{GROUP}/claim-metadata"
"""Annotation on a claim: keys of the labels and annotations that come from spec.claimMetadata, in
JSON, so that an entry which is removed from the spec is removed from the claim."""
SNAPSHOT_OF: Final = f"{GROUP}/snapshot-of"
"""Annotation on a last snapshot: UID of the claim that it was taken of."""

OUTDATED_SNAPSHOT: Final = f"{GROUP}/outdated-snapshot"
"""Annotation on a claim: name of a last snapshot after which the claim was used again."""


def snapshot_name(claim: str, claim_uid: str, outdated: str = "") -> str:
    """Name the last snapshot of a claim; another incarnation of the claim gets another name.

    Args:
        claim: Name of the claim.
        claim_uid: Its incarnation.
        outdated: Name of the snapshot that this one takes the place of; empty for none.
    """
    return build_name(claim, "final", short_hash(claim_uid + outdated), limit=DNS_SUBDOMAIN_LIMIT)


def last_snapshot_name(claim: ClaimView) -> str:
    """Name the last snapshot that counts for a claim as it is: after one that is outdated."""
    outdated = claim.annotations.get(OUTDATED_SNAPSHOT, "")
    return snapshot_name(claim.key.name, claim.uid, outdated)
