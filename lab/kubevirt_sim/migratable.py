"""Whether an instance can be migrated, as virt-handler judges it. Pure.

`calculateLiveMigrationCondition` in virt-handler/vm.go: first the interface on the pod network,
then the disks, which must all be ReadWriteMany (recording `05-vmi`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lab.kubevirt_sim.behavior import Guest
from lab.kubevirt_sim.launcher import claim_of
from lab.kubevirt_sim.statuses import build_condition
from libs.common.kinds import Manifest
from libs.common.reading import map_at, maps_at, text_at, text_map_at

BRIDGE_ALLOWED: Final = "kubevirt.io/allow-pod-bridge-network-live-migration"
"""Annotation by which a bridge on the pod network does not prevent migrations."""
_CLOUD_INIT_SIZE: Final = 1 << 20


def build_migratable(
    vmi: Mapping[str, Any], claims: Mapping[str, Manifest], guest: Guest
) -> list[Manifest]:
    """Build the conditions that say whether an instance can be migrated."""
    reason, text = guest.not_migratable, f"cannot migrate VMI: {guest.not_migratable}"
    storage = not reason
    if not reason:
        reason, text = _evaluate_interfaces(vmi)
    if not reason:
        reason, text = _evaluate_disks(vmi, claims)
    live = build_condition("LiveMigratable", not reason, reason, text if reason else "")
    return [live, build_condition("StorageLiveMigratable", storage)]


def find_method(vmi: Mapping[str, Any], claims: Mapping[str, Manifest]) -> str:
    """Return how an instance would be migrated: with its disks, or without."""
    local = any(not claim_of(volume) for volume in maps_at(vmi, "spec", "volumes"))
    reason, _ = _evaluate_disks(vmi, claims)
    return "BlockMigration" if local or reason else "LiveMigration"


def build_volume_status(vmi: Mapping[str, Any], claims: Mapping[str, Manifest]) -> list[Manifest]:
    """Build what is known of the volumes of an instance, ordered by name."""
    disks = [text_at(each, "name") for each in maps_at(vmi, "spec", "domain", "devices", "disks")]
    found = []
    for volume in maps_at(vmi, "spec", "volumes"):
        name, claim = text_at(volume, "name"), claims.get(claim_of(volume))
        entry: Manifest = {"name": name}
        if name in disks:
            entry["target"] = f"vd{chr(ord('a') + disks.index(name) % 26)}"
        if claim is not None:
            entry["persistentVolumeClaimInfo"] = _describe(claim)
        elif "cloudInitNoCloud" in volume:
            entry["size"] = _CLOUD_INIT_SIZE
        found.append(entry)
    return sorted(found, key=lambda each: str(each["name"]))


def _describe(claim: Manifest) -> Manifest:
    spec, mode = map_at(claim, "spec"), text_at(claim, "spec", "volumeMode") or "Filesystem"
    return {
        "accessModes": list(spec.get("accessModes") or ()),
        "capacity": dict(map_at(claim, "status", "capacity")),
        "claimName": claim["metadata"]["name"],
        **({"filesystemOverhead": "0.06"} if mode == "Filesystem" else {}),
        "requests": dict(map_at(spec, "resources", "requests")),
        "volumeMode": mode,
    }


def _evaluate_disks(vmi: Mapping[str, Any], claims: Mapping[str, Manifest]) -> tuple[str, str]:
    for volume in maps_at(vmi, "spec", "volumes"):
        name = claim_of(volume)
        claim = claims.get(name)
        if claim is None or "ReadWriteMany" in (map_at(claim, "spec").get("accessModes") or ()):
            continue
        text = (
            f"cannot migrate VMI: PVC {name} is not shared, live migration requires that all PVCs "
            "must be shared (using ReadWriteMany access mode)"
        )
        return "DisksNotLiveMigratable", text
    return "", ""


def _evaluate_interfaces(vmi: Mapping[str, Any]) -> tuple[str, str]:
    networks = [text_at(each, "name") for each in maps_at(vmi, "spec", "networks") if "pod" in each]
    interfaces = maps_at(vmi, "spec", "domain", "devices", "interfaces")
    primary = next((each for each in interfaces if text_at(each, "name") in networks), None)
    if primary is None or "masquerade" in primary or "passtBinding" in primary:
        return "", ""
    if "bridge" in primary and BRIDGE_ALLOWED in text_map_at(vmi, "metadata", "annotations"):
        return "", ""
    text = (
        "cannot migrate VMI which does not use masquerade or a migratable plugin to connect to the "
        "pod network"
    )
    return "InterfaceNotLiveMigratable", text
