"""Rules of KubeVirt's and CDI's webhooks that need more than one object to be judged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lab.kubevirt_sim.disk import may_adopt
from lab.kubevirt_sim.instancetypes import evaluate_names
from lab.kubevirt_sim.machine import strategy_of
from lab.kubevirt_sim.migration import FINAL
from libs.common.conditions import find_condition
from libs.common.kinds import PVC, Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_of, controller_uid
from libs.common.quantity import parse_quantity
from libs.common.reading import holds_at, map_at, maps_at, text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.instancetypes import Matcher
from libs.contracts.kubevirt import (
    FINAL_PHASES,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.launchers import LauncherView

EVICTABLE: Final = ("LiveMigrate", "LiveMigrateIfPossible", "External")
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a write is refused.

    Attributes:
        code: HTTP status.
        text: Why.
        evacuate: Instance that is marked to leave its node; None for none.
    """

    code: int
    text: str
    evacuate: Manifest | None = None


type Find = Callable[[Kind, Key], Manifest | None]
"""Return an object, or None."""


def evaluate_machine(vm: Manifest, old: Manifest | None, find: Find) -> Refusal | None:
    """Refuse a machine that says twice, or not at all, whether it runs; lock it for a snapshot.

    A machine is refused as well if it has processors or memory besides an instancetype, and if it
    does not meet the requirements of its preference.
    """

    def find_named(matcher: Matcher) -> Manifest | None:
        return find(*matcher.locate(key_of(vm).namespace))

    spec = map_at(vm, "spec")
    if "running" in spec and "runStrategy" in spec:
        text = "Running and RunStrategy are mutually exclusive"
    elif "running" not in spec and "runStrategy" not in spec:
        text = "One of Running or RunStrategy must be specified"
    else:
        text = evaluate_names(vm, find_named) if not is_deleting(vm) else ""
        text = text or (_evaluate_lock(vm, old) if old is not None else "")
    return Refusal(422, _denied("virtualmachine-validator.kubevirt.io", text)) if text else None


def _evaluate_lock(vm: Manifest, old: Manifest) -> str:
    """Return why a machine may not be changed that a snapshot is taken of."""
    name = text_at(vm, "status", "snapshotInProgress")
    volumes = [maps_at(each, "spec", "template", "spec", "volumes") for each in (vm, old)]
    if name and volumes[0] != volumes[1]:
        return f'Cannot update vm disks or volumes until snapshot "{name}" completes'
    if name and strategy_of(vm) != strategy_of(old):
        return f'Cannot update vm running state until snapshot "{name}" completes'
    return ""


def evaluate_migration(
    migration: Manifest, vmi: Manifest | None, others: Sequence[Manifest]
) -> Refusal | None:
    """Refuse a migration of an instance that is not there, has ended, cannot or moves already."""
    name = text_at(migration, "spec", "vmiName")
    ready = find_condition(vmi or {}, "LiveMigratable") or {}
    running = [
        other
        for other in others
        if text_at(other, "spec", "vmiName") == name
        and text_at(other, "status", "phase") not in FINAL
        and uid_of(other) != uid_of(migration)
    ]
    if vmi is None:
        text = f'the VMI "{key_of(migration).namespace}/{name}" does not exist'
    elif text_at(vmi, "status", "phase") in FINAL_PHASES:
        text = "Cannot migrate VMI in finalized state."
    elif ready.get("status") == "False":
        text = f"Cannot migrate VMI, Reason: {ready.get('reason')}, Message: {ready.get('message')}"
    elif running:
        job = uid_of(running[0])
        text = (
            f"in-flight migration detected. Active migration job ({job}) is currently already in "
            f"progress for VMI {name}."
        )
    else:
        return None
    return Refusal(400, _denied("migration-create-validator.kubevirt.io", text))


def evaluate_disk(disk: Manifest, old: Manifest | None, claim: Manifest | None) -> Refusal | None:
    """Refuse a change of a DataVolume, one whose claim exists, and one that asks for nonsense."""
    key = key_of(disk)
    if old is not None:
        text = "Cannot update DataVolume Spec" if disk.get("spec") != old.get("spec") else ""
    elif claim is not None and not _may_be_taken_over(disk, claim):
        text = f"Destination PVC {key} already exists"
    else:
        text = _evaluate_request(map_at(disk, "spec"))
    return Refusal(422, _denied("datavolume-validate.cdi.kubevirt.io", text)) if text else None


def _may_be_taken_over(disk: Manifest, claim: Manifest) -> bool:
    owner = controller_of(claim) or {}
    return may_adopt(disk, claim) or owner.get("kind") == DATA_VOLUME.kind


def _evaluate_request(spec: Mapping[str, Any]) -> str:
    """Return why a DataVolume asks for a disk that cannot be (datavolume-validate.go)."""
    word, asked = ("PVC", spec["pvc"]) if "pvc" in spec else ("Storage", map_at(spec, "storage"))
    modes = map_at({"asked": asked}, "asked").get("accessModes") or ()
    if word == "PVC" and not modes:
        return "Required value: at least 1 access mode is required"
    if word == "PVC" and len(modes) > 1:
        return "PVC multiple accessModes"
    size = map_at({"asked": asked}, "asked", "resources", "requests").get("storage")
    source = map_at(spec, "source")
    clones = "sourceRef" in spec or "pvc" in source or "snapshot" in source
    if size is None:
        return "" if word == "Storage" and clones else f"{word} size is missing"
    if parse_quantity(size) <= 0:
        return f"{word} size can't be equal or less than zero"
    return f"{word} size should be at least 1MiB" if parse_quantity(size) < _MIB else ""


# Clones from other namespaces.


def find_foreign_source(disk: Manifest) -> Key | None:
    """Return the claim in another namespace that a DataVolume is cloned from; None for none."""
    for path in (("source", "pvc"), ("source", "snapshot"), ("sourceRef",)):
        source = map_at(disk, "spec", *path)
        namespace = text_at(source, "namespace")
        if namespace and namespace != key_of(disk).namespace:
            return Key(namespace, text_at(source, "name"))
    return None


def build_access_reviews(source: Key, user: Mapping[str, Any]) -> list[Manifest]:
    """Build the questions whether a user may clone: one yes is enough (authorize_utils.go)."""
    clone = {"group": DATA_VOLUME.group, "resource": "datavolumes", "subresource": "source"}
    who = {
        "user": text_at(user, "username"),
        "groups": list(user.get("groups") or ()),
        "uid": text_at(user, "uid"),
        "extra": dict(map_at(user, "extra")),
    }
    return [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                **who,
                "resourceAttributes": {
                    "namespace": source.namespace,
                    "name": source.name,
                    "verb": "create",
                    **attributes,
                },
            },
        }
        for attributes in (clone, {"resource": "pods"})
    ]


def refuse_clone(source: Key, user: Mapping[str, Any]) -> Refusal:
    """Build the refusal of a clone that a user has no right to."""
    text = (
        f"User {text_at(user, 'username')} has insufficient permissions in clone source namespace "
        f"{source.namespace}"
    )
    return Refusal(422, _denied("datavolume-mutate.cdi.kubevirt.io", text))


def evaluate_eviction(pod: Manifest, vmi: Manifest | None) -> Refusal | None:
    """Refuse the eviction of a launcher pod; the instance may be marked to leave instead."""
    view = LauncherView.parse(pod)
    if not view.created_by or vmi is None or controller_uid(pod) != uid_of(vmi):
        return None
    if text_at(vmi, "status", "nodeName") != view.node_name:
        # A target that the guest has not come to, or a source that it has left.
        return None
    strategy = text_at(vmi, "spec", "evictionStrategy")
    if strategy not in EVICTABLE:
        return None
    key, webhook = key_of(vmi), "virt-launcher-eviction-interceptor.kubevirt.io"
    if not holds_at(vmi, "LiveMigratable") and strategy != "External":
        if strategy == "LiveMigrateIfPossible":
            return None
        text = f"VMI {key.name} is configured with an eviction strategy but is not live-migratable"
        return Refusal(429, _denied(webhook, text))
    text = f"Eviction triggered evacuation of VMI {key}"
    return Refusal(429, _denied(webhook, text), evacuate=vmi)


def evaluate(
    kind: Kind,
    subresource: str,
    new: Manifest,
    old: Manifest | None,
    key: Key,
    find: Find,
    migrations: Callable[[str], Sequence[Manifest]],
) -> Refusal | None:
    """Judge a write by the rule of its kind; None lets it pass.

    Args:
        kind: Kind of the object.
        subresource: Such as `eviction`; empty for the object itself.
        new: Object as it would be stored.
        old: Object as it is; None for a creation.
        key: Namespace and name.
        find: Returns other objects.
        migrations: Returns the migrations of a namespace.
    """
    if subresource == "eviction":
        pod = find(kind, key) or {}
        owner = _owner_name(pod)
        vmi = find(VIRTUAL_MACHINE_INSTANCE, Key(key.namespace, owner)) if owner else None
        return evaluate_eviction(pod, vmi) if pod else None
    if subresource:
        return None
    if kind == VIRTUAL_MACHINE:
        return evaluate_machine(new, old, find)
    if kind == DATA_VOLUME:
        return evaluate_disk(new, old, find(PVC, key))
    if kind == VIRTUAL_MACHINE_INSTANCE_MIGRATION and old is None:
        name = Key(key.namespace, text_at(new, "spec", "vmiName"))
        vmi = find(VIRTUAL_MACHINE_INSTANCE, name)
        return evaluate_migration(new, vmi, migrations(key.namespace))
    return None


def _owner_name(pod: Mapping[str, Any]) -> str:
    for reference in map_at(pod, "metadata").get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == VIRTUAL_MACHINE_INSTANCE.kind:
            return str(reference.get("name"))
    return ""


def _denied(webhook: str, text: str) -> str:
    return f'admission webhook "{webhook}" denied the request: {text}'
