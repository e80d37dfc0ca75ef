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
from libs.contracts.claims import (
    ClaimUser,
    ClaimView,
    StorageClassView,
    claims_of,
    holds_claims,
)
from libs.contracts.snapshots import VOLUME_SNAPSHOT, VolumeSnapshotView
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume
from operators.volumes.naming import (
    KEPT_FOR,
    SNAPSHOT_OF,
    last_snapshot_name,
)
from operators.volumes.observed import Observed, SourceView, belongs_to

BY_CLAIM: Final = "claim"
"""Index of DemoVolumes by the claim they ask for, and of pods by the claims they mount."""
BY_SOURCE: Final = "source"
"""Index of DemoVolumes by what they are filled from."""


def observe(ctx: Context, volume: DemoVolume) -> Observed:
    """Look at everything that the plan and the status of a DemoVolume depend on."""
    key = Key(ctx.key.namespace, volume.claim_name)
    held = ctx.get(PVC, key)
    source = _observe_source(ctx, volume)
    served = ctx.is_served(VOLUME_SNAPSHOT)
    if held is None:
        return Observed(snapshots_served=served, source=source)
    return observe_claim(ctx, held, Observed(snapshots_served=served, source=source))


def observe_claim(ctx: Context, held: Manifest, around: Observed) -> Observed:
    """Look at a claim, which may be newer than that in the cache.

    Args:
        ctx: What is known.
        held: The claim.
        around: What is known apart from the claim.
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
    )


def _find_holder(ctx: Context, claim: ClaimView) -> str:
    others = [each for each in claim.owner_references if each.get("uid") != ctx.uid]
    if others:
        return " and ".join(f"{each.get('kind')} {each.get('name')}" for each in others)
    uid = claim.annotations.get(KEPT_FOR)
    for volume in ctx.indexed(DEMO_VOLUME, BY_CLAIM, str(claim.key)):
        if uid_of(volume) == uid and uid != ctx.uid:
            return f"DemoVolume {volume['metadata']['name']}"
    # The mark of a DemoVolume that is gone: the claim belongs to nobody.
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
    # Only a claim of that DemoVolume: one that it is in conflict with belongs to somebody else.
    return SourceView.of_claim(claim) if belongs_to(uid_of(other), claim) else None


# Whose business a change is.


def index_volume_by_claim(volume: Manifest) -> Iterable[str]:
    """Index a DemoVolume by the claim that it asks for."""
    return (str(_claim_key(volume)),)


def index_volume_by_source(volume: Manifest) -> Iterable[str]:
    """Index a DemoVolume by what it is filled from."""
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
    """Name the DemoVolumes that ask for a claim, and those that are cloned from it."""
    return _map_key(key_of(claim), cache)


def map_pod(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the DemoVolumes whose claims a pod mounts."""
    store = cache.store(DEMO_VOLUME)
    for value in index_pod_by_claim(pod):
        yield from map(key_of, store.indexed(BY_CLAIM, value))


def map_volume(volume: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the DemoVolumes that ask for the same claim, and the clones of a DemoVolume."""
    own = key_of(volume)
    yield from (key for key in _map_key(_claim_key(volume), cache) if key != own)
    # One that is gone is not found by its claim any more.
    yield from map(key_of, cache.store(DEMO_VOLUME).indexed(BY_SOURCE, f"volume {own}"))


def map_snapshot(snapshot: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the DemoVolumes that are filled from a snapshot, or that wait for it."""
    store, key = cache.store(DEMO_VOLUME), key_of(snapshot)
    yield from map(key_of, store.indexed(BY_SOURCE, f"snapshot {key}"))
    if text_at(snapshot, "metadata", "annotations", SNAPSHOT_OF):
        claim = text_at(snapshot, "spec", "source", "persistentVolumeClaimName")
        yield from map(key_of, store.indexed(BY_CLAIM, str(Key(key.namespace, claim))))
    else:
        # One of somebody else may have the name of a last snapshot, or have given it free.
        yield from _find_waiting(key, cache)


def _find_waiting(snapshot: Key, cache: Cache) -> Iterable[Key]:
    """Name the DemoVolumes that are being deleted and whose last snapshot has a name."""
    for volume in filter(is_deleting, cache.store(DEMO_VOLUME).list(snapshot.namespace)):
        claim = cache.store(PVC).get(_claim_key(volume))
        if claim is not None and last_snapshot_name(ClaimView.parse(claim)) == snapshot.name:
            yield key_of(volume)


def map_class(storage_class: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the DemoVolumes of a storage class, and those that have none yet."""
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
