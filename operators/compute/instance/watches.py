"""Mapping of changes to Instances, indexes, and transforms of cached objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from libs.common.kinds import (
    NODE,
    PVC,
    Key,
    Kind,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import controller_of
from libs.common.reading import condition_at, maps_at, text_at, text_map_at
from libs.common.runtime import Cache, IndexFunction
from libs.common.runtime.controller import Mapper
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE_LABEL, INSTANCE_UID_LABEL
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE, disk_claims_of
from libs.contracts.launchers import LauncherView
from libs.contracts.network import FIREWALL, NETWORK
from libs.contracts.volumes import DEMO_VOLUME
from operators.compute.api.instance import INSTANCE, VolumeSharing
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.instance.record import read_recorded_disk
from operators.compute.naming import private_claim_name, public_claim_name, root_disk_name

BY_UID: Final = "instance-uid"
"""Index of disks by the UID of their Instance."""
BY_INSTANCE: Final = "instance-name"
"""Index of disks by the namespace and label of their Instance."""
BY_RUN: Final = "run"
"""Index of launcher pods by the UID of their VirtualMachineInstance."""
BY_CLAIM: Final = "claim"
"""Index of machines and their runs by the claims that they mount."""
BY_TARGET: Final = "target"
"""Index of Operations by their Instance."""
BY_USE: Final = "use"
"""Index of Instances by the objects that they refer to, as `Kind/name`."""
BY_DISK: Final = "disk"
"""Index of Instances by the claims that their machines use or may use."""


def instance_uid(manifest: Mapping[str, Any]) -> str:
    """Return the UID of the Instance in the labels of an object; empty for none."""
    return text_at(manifest, "metadata", "labels", INSTANCE_UID_LABEL)


def index_by_uid(manifest: Manifest) -> Iterable[str]:
    """Index a disk by the UID of its Instance."""
    uid = instance_uid(manifest)
    return (uid,) if uid else ()


def index_by_instance(manifest: Manifest) -> Iterable[str]:
    """Index a disk by its Instance."""
    name = text_at(manifest, "metadata", "labels", INSTANCE_LABEL)
    return (str(Key(key_of(manifest).namespace, name)),) if name else ()


def index_by_run(pod: Manifest) -> Iterable[str]:
    """Index a launcher pod by its owner, the VirtualMachineInstance.

    The owner reference is used and not the label, because anyone who can label pods could set the
    latter.
    """
    uid = LauncherView.parse(pod).owner_uid
    return (uid,) if uid else ()


def index_by_claim(machine: Manifest) -> Iterable[str]:
    """Index a machine, or a run of one, by the claims that it mounts."""
    namespace = key_of(machine).namespace
    return [str(Key(namespace, claim)) for claim in disk_claims_of(machine)]


def index_by_target(operation: Manifest) -> Iterable[str]:
    """Index an Operation by its Instance."""
    return (str(Key(key_of(operation).namespace, text_at(operation, "spec", "targetRef", "name"))),)


def index_by_use(instance: Manifest) -> Iterable[str]:
    """Index an Instance by the objects that it refers to."""
    spec, name = instance.get("spec") or {}, key_of(instance).name
    yield f"{INSTANCE_SIZE.kind}/{text_at(spec, 'size')}"
    for field in ("instancetype", "preference"):
        yield f"{text_at(spec, field, 'kind')}/{text_at(spec, field, 'name')}"
    yield f"{NETWORK.kind}/{text_at(spec, 'networkRef', 'name')}"
    yield f"{FIREWALL.kind}/{text_at(spec, 'firewallRef', 'name')}"
    yield f"{IP_CLAIM.kind}/{text_at(spec, 'publicIP', 'claimName')}"
    yield f"{IP_CLAIM.kind}/{public_claim_name(name)}"
    yield f"{IP_CLAIM.kind}/{private_claim_name(name)}"
    yield f"{NODE.kind}/{text_at(instance, 'status', 'nodeName')}"
    disks = [text_at(held, "disk") for held in maps_at(spec, "directives")]
    for disk in {root_disk_name(name), text_at(instance, "status", "rootDisk", "name"), *disks}:
        yield f"{DATA_VOLUME.kind}/{disk}"
        yield f"{PVC.kind}/{disk}"
    for volume in maps_at(spec, "volumes"):
        yield f"{DEMO_VOLUME.kind}/{text_at(volume, 'demoVolume')}"
        yield f"{PVC.kind}/{claim_of(volume)}"


def claim_of(volume: Mapping[str, Any]) -> str:
    """Return the claim of an entry of spec.volumes; a DemoVolume has the name of its claim."""
    return text_at(volume, "claim") or text_at(volume, "demoVolume")


def list_claims(instance: Manifest) -> dict[str, bool]:
    """Return the claims that an Instance names, and whether it shares them.

    It is read from the manifest, because an Instance is compared with all others that name one of
    its claims, of which a tenant can create many.
    """
    spec = instance.get("spec") or {}
    root = text_at(instance, "status", "rootDisk", "name") or read_recorded_disk(instance)
    directives = maps_at(spec, "directives")
    named = [text_at(each, field) for each in directives for field in ("disk", "attach")]
    claims = {
        claim_of(volume): text_at(volume, "sharing") == VolumeSharing.SHARED
        for volume in maps_at(spec, "volumes")
    }
    claims |= dict.fromkeys([root or root_disk_name(key_of(instance).name), *named], False)
    claims.pop("", None)
    return claims


def index_by_disk(instance: Manifest) -> Iterable[str]:
    """Index an Instance by its claims."""
    namespace = key_of(instance).namespace
    return [str(Key(namespace, claim)) for claim in list_claims(instance)]


def rank(instance: Manifest, claim: str) -> tuple[bool, str, str]:
    """Return the rank of an Instance among those that name a claim; the lowest one gets it."""
    created = text_at(instance, "metadata", "creationTimestamp") or "9999"
    return is_volume(instance, claim), created, key_of(instance).name


def is_volume(instance: Manifest, claim: str) -> bool:
    """Return whether spec.volumes of an Instance names a claim."""
    return any(claim_of(volume) == claim for volume in maps_at(instance, "spec", "volumes"))


def map_used(kind: Kind) -> Mapper:
    """Return a mapper from an object of a kind to the Instances that refer to it."""

    def map_object(manifest: Manifest, cache: Cache) -> Iterable[Key]:
        namespace, name = key_of(manifest)
        for instance in cache.store(INSTANCE).indexed(BY_USE, f"{kind.kind}/{name}"):
            key = key_of(instance)
            if not namespace or key.namespace == namespace:
                yield key

    return map_object


def map_self(machine: Manifest, _: Cache) -> Iterable[Key]:
    """Map a machine or its run to its Instance."""
    yield key_of(machine)


def map_mounted(machine: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a machine or its run to the Instances that come next for its disks."""
    held = cache.store(INSTANCE).get(key_of(machine))
    for claim, shared in disk_claims_of(machine).items():
        yield from _map_next(key_of(machine), held, claim, cache, shared=shared)


def map_named(instance: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an Instance to the others that come next for its disks."""
    for claim, shared in list_claims(instance).items():
        yield from _map_next(key_of(instance), instance, claim, cache, shared=shared)


def _map_next(
    user: Key, held: Manifest | None, claim: str, cache: Cache, *, shared: bool
) -> Iterable[Key]:
    """Return the first Instances that want a claim, and the first ones after its user.

    Each of the others waits for the one before it, so it is not affected.
    """
    named = cache.store(INSTANCE).indexed(BY_DISK, str(Key(user.namespace, claim)))
    ranks = {rank(each, claim): each for each in named if key_of(each) != user}
    starts = [(False, "", "")] if held is None else [(False, "", ""), rank(held, claim)]
    for start in starts:
        for each in sorted(found for found in ranks if found > start):
            shares = list_claims(ranks[each])[claim]
            if not (shared and shares):
                yield key_of(ranks[each])
            if not shares:
                break


def mounts_change(old: Manifest | None, new: Manifest | None) -> bool:
    """Return whether a machine was created or deleted, or its disks have changed."""
    if old is None or new is None:
        return True
    return disk_claims_of(old) != disk_claims_of(new)


def names_change(old: Manifest | None, new: Manifest | None) -> bool:
    """Return whether an Instance began or ended to name a claim."""
    if old is None or new is None or is_deleting(old) != is_deleting(new):
        return True
    if uid_of(old) != uid_of(new) or list_claims(old) != list_claims(new):
        return True
    return any(is_volume(old, claim) != is_volume(new, claim) for claim in list_claims(new))


def map_disk(kind: Kind) -> Mapper:
    """Return a mapper from a disk to the Instances that use or own it."""
    map_named_disk = map_used(kind)

    def map_object(disk: Manifest, cache: Cache) -> Iterable[Key]:
        yield from map_named_disk(disk, cache)
        instance = text_map_at(disk, "metadata", "labels").get(INSTANCE_LABEL, "")
        if instance:
            yield Key(key_of(disk).namespace, instance)

    return map_object


def map_launcher(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a launcher pod to the Instance whose guest runs in it."""
    owner = controller_of(pod) or {}
    name = owner.get("name") if owner.get("kind") == VIRTUAL_MACHINE_INSTANCE.kind else None
    return (Key(key_of(pod).namespace, str(name)),) if name else ()


def map_operation(operation: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an Operation to its Instance."""
    return (Key(key_of(operation).namespace, text_at(operation, "spec", "targetRef", "name")),)


def shrink_node(node: Manifest) -> Manifest:
    """Reduce a node to what decides about disks; the full status is large and changes often."""
    ready = condition_at(node, "Ready")
    return {
        "apiVersion": node.get("apiVersion"),
        "kind": node.get("kind"),
        "metadata": _shrink_metadata(node) | {"labels": text_map_at(node, "metadata", "labels")},
        "spec": {"taints": list(maps_at(node, "spec", "taints"))},
        "status": {"conditions": [{"type": "Ready", "status": ready.get("status")}]},
    }


def shrink_claim(claim: Manifest) -> Manifest:
    """Reduce a claim to its owner, its volume, its access modes and its phase."""
    metadata = _shrink_metadata(claim)
    for name in ("labels", "annotations", "ownerReferences", "deletionTimestamp"):
        if name in claim["metadata"]:
            metadata[name] = claim["metadata"][name]
    return {
        "apiVersion": claim.get("apiVersion"),
        "kind": claim.get("kind"),
        "metadata": metadata,
        "spec": {
            "accessModes": claim.get("spec", {}).get("accessModes"),
            "volumeName": text_at(claim, "spec", "volumeName"),
        },
        "status": {"phase": text_at(claim, "status", "phase")},
    }


def _shrink_metadata(manifest: Manifest) -> Manifest:
    kept = ("name", "namespace", "uid", "resourceVersion")
    return {name: value for name, value in manifest["metadata"].items() if name in kept}


INSTANCE_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_USE: index_by_use,
    BY_DISK: index_by_disk,
}
"""Indexes of the Instances in the cache."""
POD_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_RUN: index_by_run}
"""Indexes of the launcher pods in the cache."""
DISK_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_UID: index_by_uid,
    BY_INSTANCE: index_by_instance,
}
"""Indexes of the disks in the cache."""
MACHINE_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_CLAIM: index_by_claim}
"""Indexes of the machines and runs in the cache."""
OPERATION_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_TARGET: index_by_target}
"""Indexes of the Operations in the cache."""
