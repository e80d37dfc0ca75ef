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
    key_of,
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
from operators.compute.api.instance import INSTANCE
from operators.compute.api.size import INSTANCE_SIZE
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
        yield f"{PVC.kind}/{text_at(volume, 'claim') or text_at(volume, 'demoVolume')}"


def map_used(kind: Kind) -> Mapper:
    """Return a mapper from an object of a kind to the Instances that refer to it."""

    def map_object(manifest: Manifest, cache: Cache) -> Iterable[Key]:
        namespace, name = key_of(manifest)
        for instance in cache.store(INSTANCE).indexed(BY_USE, f"{kind.kind}/{name}"):
            key = key_of(instance)
            if not namespace or key.namespace == namespace:
                yield key

    return map_object


def map_machine(machine: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a machine or its run to its Instance, and to all others that want one of its disks."""
    yield key_of(machine)
    yield from _map_claims(key_of(machine), disk_claims_of(machine), cache)


def map_rivals(instance: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an Instance to all others that want one of its disks."""
    prefix = f"{PVC.kind}/"
    uses = [use for use in index_by_use(instance) if use.startswith(prefix)]
    yield from _map_claims(key_of(instance), (use.removeprefix(prefix) for use in uses), cache)


def _map_claims(user: Key, claims: Iterable[str], cache: Cache) -> Iterable[Key]:
    for claim in claims:
        for instance in cache.store(INSTANCE).indexed(BY_USE, f"{PVC.kind}/{claim}"):
            key = key_of(instance)
            if claim and key.namespace == user.namespace and key != user:
                yield key


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
    """Reduce a node to its condition Ready; the full status is large and changes often."""
    ready = condition_at(node, "Ready")
    return {
        "apiVersion": node.get("apiVersion"),
        "kind": node.get("kind"),
        "metadata": _shrink_metadata(node),
        "status": {"conditions": [{"type": "Ready", "status": ready.get("status")}]},
    }


def shrink_claim(claim: Manifest) -> Manifest:
    """Reduce a claim to its owner, its access modes and its phase."""
    metadata = _shrink_metadata(claim)
    for name in ("labels", "annotations", "ownerReferences", "deletionTimestamp"):
        if name in claim["metadata"]:
            metadata[name] = claim["metadata"][name]
    return {
        "apiVersion": claim.get("apiVersion"),
        "kind": claim.get("kind"),
        "metadata": metadata,
        "spec": {"accessModes": claim.get("spec", {}).get("accessModes")},
        "status": {"phase": text_at(claim, "status", "phase")},
    }


def _shrink_metadata(manifest: Manifest) -> Manifest:
    kept = ("name", "namespace", "uid", "resourceVersion")
    return {name: value for name, value in manifest["metadata"].items() if name in kept}


INSTANCE_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_USE: index_by_use}
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
