"""Defaults that KubeVirt's webhook gives to an instance. Pure.

`pkg/defaults/defaults.go`: the CPU topology, room for hot-plug (four times the sockets and the
memory), and the status that shows a hot-plug. Memory can be hot-plugged from 1 GiB on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.quantity import parse_quantity, render_quantity
from libs.common.reading import map_at, text_at

HOTPLUG_RATIO: Final = 4
"""How much more than it starts with an instance can be given."""
_MOST_VCPUS: Final = 512
_GIBIBYTE: Final = 1 << 30
_BLOCK: Final = 2 << 20


def complete_cpu(cpu: Mapping[str, Any]) -> dict[str, Any]:
    """Return a CPU topology with what it leaves out: one of each."""
    return {"cores": 1, "sockets": 1, "threads": 1, **cpu}


def check_memory(guest: str, longest: str) -> str:
    """Return why memory cannot be hot-plugged up to a size; empty if it can."""
    wanted = parse_quantity(guest)
    if wanted > parse_quantity(longest):
        return "Guest memory is greater than the configured maxGuest memory"
    if wanted % _BLOCK:
        return "Guest memory must be 2Mi aligned"
    if wanted < _GIBIBYTE:
        return "Memory hotplug is only available for VMs with at least 1Gi of guest memory"
    return ""


def build_domain(domain: Mapping[str, Any], uuid: str) -> Manifest:
    """Build the domain of an instance from the domain of a template."""
    firmware = {"uuid": uuid, **map_at(domain, "firmware")}
    cpu = complete_cpu(map_at(domain, "cpu"))
    each = cpu["cores"] * cpu["threads"]
    most = min(cpu["sockets"] * HOTPLUG_RATIO, max(_MOST_VCPUS // each, cpu["sockets"]))
    built = {**domain, "firmware": firmware, "cpu": {"maxSockets": most, **cpu}}
    memory = map_at(domain, "memory")
    guest = text_at(memory, "guest")
    if guest and not memory.get("maxGuest"):
        longest = render_quantity(int(parse_quantity(guest)) * HOTPLUG_RATIO)
        if not check_memory(guest, longest):
            built["memory"] = {**memory, "maxGuest": longest}
    return built


def build_first_status(domain: Mapping[str, Any], revision: str) -> Manifest:
    """Build the status that an instance is created with."""
    cpu = map_at(domain, "cpu")
    status: Manifest = {
        "virtualMachineRevisionName": revision,
        "currentCPUTopology": {name: cpu[name] for name in ("cores", "sockets", "threads")},
    }
    if guest := text_at(domain, "memory", "guest"):
        names = ("guestAtBoot", "guestCurrent", "guestRequested")
        status["memory"] = dict.fromkeys(names, guest)
    return status
