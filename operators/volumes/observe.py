"""Read the objects of a DemoVolume from the cache, and map changes to DemoVolumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from libs.common.kinds import (
    POD,
    PVC,
    STORAGE_CLASS,
    Key,
    Manifest,
    describe,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.reading import text_at
from libs.common.runtime import Cache, Context, IndexFunction
from libs.contracts.claims import ClaimUser, ClaimView, StorageClassView, claims_of, holds_claims
from libs.contracts.snapshots import VOLUME_SNAPSHOT, VolumeSnapshotView
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume
from operators.volumes.naming import KEPT_FOR, SNAPSHOT_OF, last_snapshot_name
from operators.volumes.observed import Observed, SourceView, belongs_to, drop_former

BY_CLAIM: Final = "claim"
"""Index of DemoVolumes by the name of their claim, and of pods by the claims that they mount."""
BY_SOURCE: Final = "source"
"""Index of DemoVolumes by the snapshot or DemoVolume in spec.source."""


def observe(ctx: Context, volume: DemoVolume) -> Observed:
    """Read everything from the cache on which the plan and the status of a DemoVolume depend."""
    key = Key(ctx.key.namespace, volume.claim_name)
    held = ctx.get(PVC, key)
    source = _observe_source(ctx, volume)
    served = ctx.is_served(VOLUME_SNAPSHOT)
    if held is None:
        return Observed(snapshots_served=served, source=source)
    return observe_claim(ctx, held, Observed(snapshots_served=served, source=source))


def observe_claim(ctx: Context, held: Manifest, around: Observed) -> Observed:
    """Observe a given version of the claim, which may be newer than the version in the cache.

    Args:
        ctx: Context of the reconcile.
        held: The claim.
        around: Observed objects other than the claim.
    """
    claim = ClaimView.parse(held)
    name = Key(claim.key.namespace, last_snapshot_name(claim))
    snapshot = ctx.get(VOLUME_SNAPSHOT, name)
    return Observed(
        claim=claim,
        holder=_find_holder(ctx, claim),
        storage_class=_observe_class(ctx, claim),
        users=tuple(
            ClaimUser.parse(pod)
            for pod in ctx.indexed(POD, BY_CLAIM, str(claim.key))
            if holds_claims(pod)
        ),
        snapshots_served=around.snapshots_served,
        source=around.source,
        snapshot=None if snapshot is None else VolumeSnapshotView.parse(snapshot),
        lost_origin=_find_lost_origin(ctx, claim),
        is_orphaning=around.is_orphaning,
    )


def _find_holder(ctx: Context, claim: ClaimView) -> str:
    known = drop_former(claim, ctx.key, ctx.uid).owner_references
    if others := [each for each in known if each.get("uid") != ctx.uid]:
        return " and ".join(f"{each.get('kind')} {each.get('name')}" for each in others)
    uid = claim.annotations.get(KEPT_FOR)
    for volume in ctx.indexed(DEMO_VOLUME, BY_CLAIM, str(claim.key)):
        if uid_of(volume) == uid and uid != ctx.uid:
            return f"DemoVolume {volume['metadata']['name']}"
    # The DemoVolume in the annotation no longer exists, so nobody owns the claim.
    return ""


def _find_lost_origin(ctx: Context, claim: ClaimView) -> str:
    kind, name = claim.data_source
    origin = Key(claim.key.namespace, name)
    for known in (PVC, VOLUME_SNAPSHOT) if ctx.is_served(VOLUME_SNAPSHOT) else (PVC,):
        if known.kind == kind and not claim.volume_name and ctx.get(known, origin) is None:
            return describe(known, origin)
    return ""


def _observe_class(ctx: Context, claim: ClaimView) -> StorageClassView | None:
    manifest = ctx.get(STORAGE_CLASS, Key("", claim.storage_class)) if claim.storage_class else None
    return None if manifest is None else StorageClassView.parse(manifest)


def _observe_source(ctx: Context, volume: DemoVolume) -> SourceView | None:
    source, namespace = volume.spec.source, ctx.key.namespace
    if source is None:
        return None
    if source.snapshot is not None:
        snapshot = ctx.get(VOLUME_SNAPSHOT, Key(namespace, source.snapshot))
        return (
            None if snapshot is None else SourceView.of_snapshot(VolumeSnapshotView.parse(snapshot))
        )
    other = ctx.get(DEMO_VOLUME, Key(namespace, source.volume or ""))
    held = None if other is None else ctx.get(PVC, _claim_key(other))
    if other is None or held is None:
        return None
    claim = ClaimView.parse(held)
    # If the other DemoVolume has a conflict, the claim belongs to another owner: do not clone it.
    return SourceView.of_claim(claim) if belongs_to(uid_of(other), claim) else None


# Indexes, and the mapping of changes to the DemoVolumes that they affect.


def index_volume_by_claim(volume: Manifest) -> Iterable[str]:
    """Index a DemoVolume by its claim."""
    return (str(_claim_key(volume)),)


def index_volume_by_source(volume: Manifest) -> Iterable[str]:
    """Index a DemoVolume by its source."""
    namespace = key_of(volume).namespace
    for kind in ("snapshot", "volume"):
        name = text_at(volume, "spec", "source", kind)
        if name:
            yield f"{kind} {namespace}/{name}"


def index_pod_by_claim(pod: Manifest) -> Iterable[str]:
    """Index a pod by the claims that it mounts."""
    namespace = key_of(pod).namespace
    return [str(Key(namespace, name)) for name in claims_of(pod)]


def map_claim(claim: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a claim to the DemoVolumes that name it, and to the DemoVolumes cloned from those."""
    return _map_key(key_of(claim), cache)


def map_pod(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a pod to the DemoVolumes whose claims it mounts."""
    store = cache.store(DEMO_VOLUME)
    for value in index_pod_by_claim(pod):
        yield from map(key_of, store.indexed(BY_CLAIM, value))


def map_volume(volume: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a DemoVolume to the DemoVolumes with the same claim, and to its clones."""
    own = key_of(volume)
    yield from (key for key in _map_key(_claim_key(volume), cache) if key != own)
    # The index by claim no longer contains a deleted DemoVolume, so its clones are added here.
    yield from map(key_of, cache.store(DEMO_VOLUME).indexed(BY_SOURCE, f"volume {own}"))


def map_snapshot(snapshot: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a snapshot to the DemoVolumes that it populates, and to those that wait for it."""
    store, key = cache.store(DEMO_VOLUME), key_of(snapshot)
    yield from map(key_of, store.indexed(BY_SOURCE, f"snapshot {key}"))
    if text_at(snapshot, "metadata", "annotations", SNAPSHOT_OF):
        claim = text_at(snapshot, "spec", "source", "persistentVolumeClaimName")
        yield from map(key_of, store.indexed(BY_CLAIM, str(Key(key.namespace, claim))))
    else:
        # A snapshot of another owner may use the name of a last snapshot, or have been deleted, so
        # that the name is free again.
        yield from _find_waiting(key, cache)


def _find_waiting(snapshot: Key, cache: Cache) -> Iterable[Key]:
    """Return the DemoVolumes that are being deleted and whose last snapshot has this name."""
    for volume in filter(is_deleting, cache.store(DEMO_VOLUME).list(snapshot.namespace)):
        claim = cache.store(PVC).get(_claim_key(volume))
        if claim is not None and last_snapshot_name(ClaimView.parse(claim)) == snapshot.name:
            yield key_of(volume)


def map_class(storage_class: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a StorageClass to the DemoVolumes that use it, and to those without a class."""
    name = key_of(storage_class).name
    for volume in cache.store(DEMO_VOLUME).list():
        if text_at(volume, "status", "storageClassName") in (name, ""):
            yield key_of(volume)


VOLUME_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_CLAIM: index_volume_by_claim,
    BY_SOURCE: index_volume_by_source,
}
"""Indexes of the DemoVolumes in the cache."""
POD_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_CLAIM: index_pod_by_claim}
"""Indexes of the pods in the cache."""


def _claim_key(volume: Manifest) -> Key:
    key = key_of(volume)
    return Key(key.namespace, text_at(volume, "spec", "name") or key.name)


def _map_key(claim: Key, cache: Cache) -> Iterable[Key]:
    store = cache.store(DEMO_VOLUME)
    for volume in store.indexed(BY_CLAIM, str(claim)):
        key = key_of(volume)
        yield key
        yield from map(key_of, store.indexed(BY_SOURCE, f"volume {key}"))
