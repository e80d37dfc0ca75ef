"""What a running instance reports itself: readiness, agent, addresses, pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lab.kubevirt_sim.behavior import Guest
from lab.kubevirt_sim.launcher import is_finished
from lab.kubevirt_sim.migratable import (
    build_migratable,
    build_volume_status,
    find_method,
)
from lab.kubevirt_sim.rollout import pending_changes
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from libs.common.conditions import find_condition
from libs.common.kinds import Manifest, is_deleting, uid_of
from libs.common.reading import holds_at, map_at, maps_at, text_at

PAUSED_BY_USER = "PausedByUser"


def build_running_status(
    vmi: Manifest,
    pods: Sequence[Manifest],
    pod: Manifest,
    claims: Mapping[str, Manifest],
    guest: Guest,
    agent: bool,
    addressed: bool,
    now: datetime,
) -> Manifest:
    """Build the status of an instance whose guest runs.

    Args:
        vmi: The instance, in phase Running.
        pods: Its launcher pods.
        pod: Pod that runs the guest.
        claims: Claims of its disks, by name.
        guest: How the guest behaves.
        agent: Whether the guest agent is connected.
        addressed: Whether the addresses are known.
        now: Time.
    """
    status = dict(vmi.get("status") or {})
    wanted = [_build_ready(pod), *_build_others(vmi, claims, guest, agent)]
    return {
        **status,
        "activePods": {
            uid_of(each): text_at(each, "spec", "nodeName")
            for each in pods
            if not is_finished(each) and text_at(each, "spec", "nodeName")
        },
        "interfaces": build_interfaces(vmi, pod, agent, addressed),
        "migrationMethod": find_method(vmi, claims),
        "migrationTransport": "Unix",
        "volumeStatus": build_volume_status(vmi, claims),
        "conditions": merge_conditions(status.get("conditions") or (), wanted, now),
    }


def _build_ready(pod: Manifest) -> Manifest:
    if is_deleting(pod):
        text = "virt-launcher pod is terminating"
        return build_condition("Ready", False, "PodTerminating", text)
    ready = find_condition(pod, "Ready")
    if ready is None:
        text = "virt-launcher pod is missing the Ready condition"
        return build_condition("Ready", False, "PodConditionMissing", text)
    return build_condition(
        "Ready", str(ready["status"]), text_at(ready, "reason"), text_at(ready, "message")
    )


def _build_others(
    vmi: Mapping[str, Any], claims: Mapping[str, Manifest], guest: Guest, agent: bool
) -> list[Manifest]:
    found = []
    disks = find_condition(vmi, "DataVolumesReady")
    if disks is not None:
        # virt-controller says so again once the importer has ended (recording `05-vmi`).
        text = "All of the VMI's DVs are bound and ready"
        found.append(build_condition("DataVolumesReady", True, "AllDVsReady", text))
    found += build_migratable(vmi, claims, guest)
    if agent:
        found.append(build_condition("AgentConnected", True))
    found += [build_condition(name, True) for name in pending_changes(vmi)]
    if holds_at(vmi, "Paused"):
        found.append(build_condition("Paused", True, PAUSED_BY_USER, "VMI was paused by user"))
    evicting = find_condition(vmi, "EvictionRequested")
    if evicting is not None and text_at(vmi, "status", "evacuationNodeName"):
        found.append(dict(evicting))
    return found


def build_interfaces(
    vmi: Mapping[str, Any], pod: Mapping[str, Any], agent: bool, addressed: bool
) -> list[Manifest]:
    """Build what is known of the network interfaces of a guest.

    The first one on the pod network has the address of the pod, as masquerade shows it. What only a
    DHCP server of another network would know is not made up.
    """
    networks = {text_at(item, "name"): item for item in maps_at(vmi, "spec", "networks")}
    found = []
    for index, item in enumerate(maps_at(vmi, "spec", "domain", "devices", "interfaces")):
        name = text_at(item, "name")
        entry: Manifest = {"name": name, "queueCount": 1, "infoSource": "domain"}
        entry["mac"] = text_at(item, "macAddress") or derive_mac(uid_of(vmi), index)
        if agent:
            entry["interfaceName"] = f"eth{index}"
            entry["infoSource"] = "domain, guest-agent"
        if "pod" in networks.get(name, {}):
            entry["podInterfaceName"] = "eth0"
            address = text_at(pod, "status", "podIP")
            if addressed and address:
                others = [text_at(each, "ip") for each in maps_at(pod, "status", "podIPs")]
                entry["ipAddress"] = address
                entry["ipAddresses"] = others or [address]
        found.append(entry)
    return found or _build_default_interface(vmi, pod, addressed)


def _build_default_interface(
    vmi: Mapping[str, Any], pod: Mapping[str, Any], addressed: bool
) -> list[Manifest]:
    """Build the interface that KubeVirt adds to a machine that names none."""
    devices = map_at(vmi, "spec", "domain", "devices")
    address = text_at(pod, "status", "podIP")
    if devices.get("autoattachPodInterface") is False or not address or not addressed:
        return []
    return [
        {
            "name": "default",
            "mac": derive_mac(uid_of(vmi), 0),
            "ipAddress": address,
            "ipAddresses": [address],
            "podInterfaceName": "eth0",
            "infoSource": "domain",
            "queueCount": 1,
        }
    ]


def derive_mac(uid: str, index: int) -> str:
    """Return a MAC address of an interface that is given none: another one at each start."""
    digits = uid.replace("-", "")[-8:].rjust(8, "0")
    pairs = [digits[place : place + 2] for place in range(0, 8, 2)]
    return ":".join(["02", f"{index % 256:02x}", *pairs])
