"""Volumes of simulated nodes: what a provisioner and the controllers of claims make of a claim.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from libs.common.kinds import STORAGE_CLASS, Manifest, build_object, key_of, uid_of
from libs.common.quantity import parse_quantity
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.contracts.claims import SELECTED_NODE, WAIT_FOR_FIRST_CONSUMER

PROVISIONER: Final = "nodes.slipway.dev/volumes"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


def build_class(name: str = "standard") -> Manifest:
    """Build the class of the volumes, which is the default of the cluster."""
    return build_object(
        STORAGE_CLASS,
        name,
        metadata={"annotations": {_DEFAULT: "true"}},
        provisioner=PROVISIONER,
        reclaimPolicy="Delete",
        volumeBindingMode=WAIT_FOR_FIRST_CONSUMER,
        allowVolumeExpansion=True,
    )


def find_class(claim: Manifest, classes: Sequence[Manifest]) -> Manifest | None:
    """Return the class of a claim, if its volumes are ours; the default if it names none."""
    name = map_at(claim, "spec").get("storageClassName")
    for each in classes:
        default = text_map_at(each, "metadata", "annotations").get(_DEFAULT) == "true"
        if (key_of(each).name == name) if name is not None else default:
            return each if text_at(each, "provisioner") == PROVISIONER else None
    return None


def waits_for_consumer(claim: Manifest, storage_class: Manifest) -> bool:
    """Return whether no volume is made before a pod uses the claim."""
    notes = text_map_at(claim, "metadata", "annotations")
    waits = text_at(storage_class, "volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER
    return waits and not notes.get(SELECTED_NODE)


def volume_name(claim: Manifest) -> str:
    """Return the name of the volume of a claim."""
    return f"pvc-{uid_of(claim)}"


def build_volume(claim: Manifest, storage_class: Manifest) -> Manifest:
    """Build the volume of a claim."""
    spec, key = map_at(claim, "spec"), key_of(claim)
    name = volume_name(claim)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": text_at(spec, "resources", "requests", "storage")},
            "accessModes": list(spec.get("accessModes") or ()),
            "persistentVolumeReclaimPolicy": text_at(storage_class, "reclaimPolicy"),
            "storageClassName": key_of(storage_class).name,
            "volumeMode": text_at(spec, "volumeMode") or "Filesystem",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid_of(claim),
            },
            # Nothing is ever mounted from there.
            "hostPath": {"path": f"/var/lib/simulated/{name}"},
        },
    }


def is_ours(volume: Mapping[str, Any]) -> bool:
    """Return whether the provisioner made a volume."""
    notes = text_map_at(volume, "metadata", "annotations")
    return notes.get("pv.kubernetes.io/provisioned-by") == PROVISIONER


def bound_status(claim: Manifest) -> Manifest:
    """Return the status of a claim whose volume has the size that it asks for."""
    spec = map_at(claim, "spec")
    size = text_at(spec, "resources", "requests", "storage")
    return {
        "phase": "Bound",
        "accessModes": list(spec.get("accessModes") or ()),
        "capacity": {"storage": size},
    }


def needs_growth(claim: Manifest) -> bool:
    """Return whether a claim asks for more than its volume has."""
    wanted = text_at(claim, "spec", "resources", "requests", "storage")
    held = text_at(claim, "status", "capacity", "storage")
    return bool(wanted and held) and parse_quantity(wanted) > parse_quantity(held)


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the claims that a pod uses."""
    found = (
        text_at(v, "persistentVolumeClaim", "claimName") for v in maps_at(pod, "spec", "volumes")
    )
    return [name for name in found if name]
