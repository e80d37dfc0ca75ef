"""Objects for the tests of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import PVC, STORAGE_CLASS, Manifest, build_object
from libs.contracts.claims import ClaimView, StorageClassView
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume
from operators.volumes.naming import KEPT_FOR, REQUESTED
from operators.volumes.observed import Observed
from operators.volumes.resources import build_claim

UID: Final = "11111111-1111-4111-8111-111111111111"
"""UID of the DemoVolume that `build_volume` builds."""
EXPANDABLE: Final = StorageClassView("standard", expandable=True, waits_for_consumer=False)
"""A class whose claims may grow."""
RIGID: Final = StorageClassView("rigid", expandable=False, waits_for_consumer=False)
"""A class whose claims may not grow."""


def build_volume(name: str = "data", /, **spec: Any) -> Manifest:
    """Build a DemoVolume of 10 GiB, as the API server would return it."""
    return build_object(
        DEMO_VOLUME,
        name,
        "default",
        metadata={"uid": UID, "generation": 1},
        spec={"size": 10, **spec},
    )


def parse_volume(name: str = "data", /, **spec: Any) -> DemoVolume:
    """Build a parsed DemoVolume."""
    return DemoVolume.parse(build_volume(name, **spec))


def build_bound_claim(
    volume: DemoVolume,
    *,
    requested: str = "10Gi",
    recorded: str | None = None,
    capacity: str = "10Gi",
    **status: Any,
) -> Manifest:
    """Build the claim of a DemoVolume, bound to a volume.

    Args:
        volume: The DemoVolume.
        requested: Size that the claim asks for.
        recorded: Size that the operator requested last; None if it is `requested`.
        capacity: Size of the volume.
        status: Further fields of the status.
    """
    claim = build_claim(volume)
    claim["metadata"] |= {"uid": "claim-uid", "resourceVersion": "7"}
    claim["spec"] |= {"volumeName": "pv-1", "storageClassName": "standard"}
    claim["spec"]["resources"] = {"requests": {"storage": requested}}
    claim["metadata"]["annotations"][REQUESTED] = recorded or requested
    claim["status"] = {"phase": "Bound", "capacity": {"storage": capacity}, **status}
    return claim


def build_foreign_claim(owner: Mapping[str, Any] | None = None) -> Manifest:
    """Build a claim named `data` that no DemoVolume created."""
    metadata: Manifest = {
        "name": "data",
        "namespace": "default",
        "uid": "foreign-uid",
        "resourceVersion": "3",
    }
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    return {
        "apiVersion": "v1",
        "kind": PVC.kind,
        "metadata": metadata,
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Filesystem",
            "storageClassName": "standard",
            "volumeName": "pv-1",
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
    }


def observe(claim: Manifest | None, **around: Any) -> Observed:
    """Build the observed state with a claim, by default with a class that allows expansion."""
    view = None if claim is None else ClaimView.parse(claim)
    return Observed(claim=view, **{"storage_class": EXPANDABLE, **around})


def build_class(
    name: str = "standard", *, expandable: bool = True, waits: bool = False
) -> Manifest:
    """Build a storage class."""
    return build_object(
        STORAGE_CLASS,
        name,
        provisioner="test.slipway.dev/none",
        allowVolumeExpansion=expandable,
        volumeBindingMode="WaitForFirstConsumer" if waits else "Immediate",
    )


def build_statefulset_owner() -> Manifest:
    """Build a controller reference to a StatefulSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "db",
        "uid": "db-uid",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_kept_for(claim: Mapping[str, Any], uid: str = UID) -> bool:
    """Return whether a claim has the annotation of a DemoVolume, and no owner reference."""
    annotations = claim["metadata"].get("annotations") or {}
    return bool(annotations.get(KEPT_FOR) == uid)
