"""Storage classes as CDI sees them: StorageProfiles, and the claims that are made by them. Pure.

CDI makes a StorageProfile for each StorageClass. It fills in the access modes of provisioners that
it knows. A DataVolume that names no access mode on another class gets no claim: its phase stays
empty and its conditions say `ErrClaimNotValid` (datavolume/util.go, `renderPvcSpec`; recordings
`01-dv-no-accessmode` and `05-dv`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lab.kubevirt_sim.behavior import PREFIX
from libs.common.conditions import render_time
from libs.common.kinds import STORAGE_CLASS, Kind, Manifest, build_object, key_of
from libs.common.quantity import parse_quantity
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.contracts.cdi import CDI_GROUP

STORAGE_PROFILE: Final = Kind(
    CDI_GROUP, "v1beta1", "StorageProfile", "storageprofiles", namespaced=False
)
CLASS_NAME: Final = "sim-disks"
"""Name of the class of the disks that the simulator provides."""
PROVISIONER: Final = PREFIX + "disks"
DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
VIRT_DEFAULT: Final = "storageclass.kubevirt.io/is-default-virt-class"
OVERHEAD: Final = 0.06
"""Part of a file system that CDI leaves to the file system itself."""
_BLOCK: Final = 1 << 20
_RWO, _RWX = ["ReadWriteOnce"], ["ReadWriteMany"]

_KNOWN: Final[Mapping[str, Sequence[tuple[list[str], str]]]] = {
    PROVISIONER: ((_RWX, "Filesystem"), (_RWO, "Filesystem")),
    "cephfs.csi.ceph.com": ((_RWX, "Filesystem"), (_RWO, "Filesystem")),
    "driver.longhorn.io": ((_RWO, "Block"),),
    "ebs.csi.aws.com": ((_RWO, "Block"),),
    "kubevirt.io.hostpath-provisioner": ((_RWO, "Filesystem"),),
    "nfs.csi.k8s.io": ((_RWX, "Filesystem"),),
    "rbd.csi.ceph.com": ((_RWX, "Block"), (_RWO, "Block"), (_RWO, "Filesystem")),
}
"""Some of the provisioners that CDI knows (storagecapabilities.go); `rancher.io/local-path`, the
provisioner of kind, is not among them."""


_NODE_LOCAL: Final = frozenset({"rancher.io/local-path"})
"""Provisioners of volumes that only one node can use; each volume names it in its node affinity."""


class ClaimNotValid(ValueError):
    """CDI cannot make a claim of a DataVolume; the text is CDI's."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage that a cluster offers.

    Attributes:
        classes: StorageClasses by name.
        profiles: StorageProfiles by name.
    """

    classes: Mapping[str, Manifest]
    profiles: Mapping[str, Manifest]

    def find_class(self, name: str) -> Manifest | None:
        """Return a class, or the default class if no name is given."""
        if name:
            return self.classes.get(name)
        for mark in (VIRT_DEFAULT, DEFAULT):
            for manifest in self.classes.values():
                if text_map_at(manifest, "metadata", "annotations").get(mark) == "true":
                    return manifest
        return None

    def property_sets(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the access and volume modes of a class, the preferred ones first.

        Raises:
            ClaimNotValid: The class has no profile yet.
        """
        profile = self.profiles.get(name)
        if profile is None:
            kind = f"{STORAGE_PROFILE.kind}.{STORAGE_PROFILE.group}"
            raise ClaimNotValid(f'cannot get StorageProfile: {kind} "{name}" not found')
        return maps_at(profile, "status", "claimPropertySets")


def is_node_local(storage_class: Manifest | None) -> bool:
    """Return whether each volume of a class can be used on one node only."""
    return text_at(storage_class or {}, "provisioner") in _NODE_LOCAL


def build_class(*, default: bool) -> Manifest:
    """Build the class of the disks that the simulator provides.

    CDI prefers it for disks of machines, even if the cluster has another default.
    """
    annotations = {VIRT_DEFAULT: "true", **({DEFAULT: "true"} if default else {})}
    return build_object(
        STORAGE_CLASS,
        CLASS_NAME,
        metadata={"annotations": annotations},
        provisioner=PROVISIONER,
        reclaimPolicy="Delete",
        volumeBindingMode="Immediate",
    )


def build_profile(storage_class: Manifest) -> Manifest:
    """Build the profile of a class, without its status."""
    name = key_of(storage_class).name
    labels = {"app": "containerized-data-importer", "cdi.kubevirt.io": ""}
    return build_object(STORAGE_PROFILE, name, metadata={"labels": labels}, spec={})


def build_profile_status(storage_class: Manifest, profile: Manifest, now: datetime) -> Manifest:
    """Build the status of a profile: what its spec says, or what CDI knows of the provisioner."""
    provisioner = text_at(storage_class, "provisioner")
    known = _KNOWN.get(provisioner, ())
    sets = list(map_at(profile, "spec").get("claimPropertySets") or ())
    sets = sets or [{"accessModes": list(modes), "volumeMode": mode} for modes, mode in known]
    held = next(iter(maps_at(profile, "status", "conditions")), {})
    since = held.get("lastTransitionTime") or render_time(now)
    recognized = {
        "type": "Recognized",
        "status": str(bool(known)),
        "reason": "RecognizedProvisioner" if known else "UnrecognizedProvisioner",
        "message": "Provisioner is recognized" if known else "Provisioner is not recognized",
        "lastHeartbeatTime": since,
        "lastTransitionTime": since,
    }
    status: Manifest = {
        "storageClass": key_of(storage_class).name,
        "provisioner": provisioner,
        "cloneStrategy": "copy",
        "conditions": [recognized],
    }
    return {**status, "claimPropertySets": sets} if sets else status


def render_claim(disk: Mapping[str, Any], storage: Storage) -> Manifest:
    """Build the spec of the claim of a DataVolume.

    Raises:
        ClaimNotValid: CDI cannot tell the access mode, or the size is missing.
    """
    plain = map_at(disk, "spec", "pvc")
    if plain:
        return dict(plain)
    asked = map_at(disk, "spec", "storage")
    spec: Manifest = {"accessModes": list(asked.get("accessModes") or ())}
    for name in ("storageClassName", "volumeMode"):
        if isinstance(asked.get(name), str):
            spec[name] = asked[name]
    found = storage.find_class(text_at(asked, "storageClassName"))
    if found is not None:
        name = spec["storageClassName"] = key_of(found).name
        _fill_modes(spec, name, storage)
    elif not spec["accessModes"]:
        text = "PVC spec is missing accessMode and no storageClass to choose profile"
        raise ClaimNotValid(text)
    spec["resources"] = _render_size(disk, asked, spec)
    return spec


def _fill_modes(spec: Manifest, name: str, storage: Storage) -> None:
    if spec["accessModes"] and "volumeMode" in spec:
        return
    if spec["accessModes"]:
        sets = storage.property_sets(name) if name in storage.profiles else ()
        wanted = set(spec["accessModes"])
        fits = [each for each in sets if wanted & set(each.get("accessModes") or ())]
        if fits and fits[0].get("volumeMode"):
            spec["volumeMode"] = fits[0]["volumeMode"]
        return
    sets, mode = storage.property_sets(name), spec.get("volumeMode")
    if mode:
        sets = [each for each in sets if each.get("volumeMode") == mode]
    if not sets or not sets[0].get("accessModes"):
        matching = "matching " if mode else ""
        text = f"no {matching}accessMode specified in StorageProfile {name}"
        raise ClaimNotValid(text)
    spec["accessModes"] = list(sets[0]["accessModes"])
    spec.setdefault("volumeMode", sets[0].get("volumeMode") or "Filesystem")


def _render_size(
    disk: Mapping[str, Any], asked: Mapping[str, Any], spec: Mapping[str, Any]
) -> Manifest:
    request = map_at(asked, "resources", "requests").get("storage")
    if request is None:
        source = map_at(disk, "spec", "source")
        if "pvc" not in source and "snapshot" not in source:
            raise ClaimNotValid("PVC Spec is not valid - missing storage size")
        # CDI measures the source, which nobody fills here.
        return {"requests": {"storage": "1Gi"}}
    size = int(parse_quantity(request))
    if size < _BLOCK:
        text = "PVC Spec is not valid - storage size should be at least 1MiB"
        raise ClaimNotValid(text)
    if spec.get("volumeMode", "Filesystem") == "Filesystem":
        aligned = -(-size // _BLOCK) * _BLOCK
        size = math.ceil(aligned * (1 + OVERHEAD))
        return {"requests": {"storage": str(size)}}
    return {"requests": {"storage": request}}
