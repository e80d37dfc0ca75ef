"""What a change of a template does to a running instance. Pure.

Under the rollout strategy LiveUpdate, KubeVirt's default, sockets, memory, node selector, affinity
and tolerations reach the instance. New sockets and memory reach its guest only with a live
migration: until then `HotVCPUChange` or `HotMemoryChange` is true. Every other change, and every
change under Stage, waits for a restart (vm.go, `syncRestartRequired`, `handleCPUChangeRequest`,
`handleAffinityChangeRequest`, `handleMemoryHotplugRequest`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from lab.kubevirt_sim.defaults import check_memory, complete_cpu
from lab.kubevirt_sim.revisions import is_same, template_of
from libs.common.kinds import Manifest
from libs.common.quantity import parse_quantity
from libs.common.reading import holds_at, map_at, text_at

type Strategy = Literal["LiveUpdate", "Stage"]

NOT_LIVE: Final = "a non-live-updatable field was changed in the template spec"
_PLACEMENT: Final = ("affinity", "nodeSelector", "tolerations")
"""Fields of the spec that an instance takes over as they are."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a template change comes to.

    Attributes:
        restart: Message of the condition `RestartRequired`; empty if no restart is needed.
        failure: Reason and message of the condition `Failure`; None for none.
        operations: JSON patch of the instance.
    """

    restart: str = ""
    failure: tuple[str, str] | None = None
    operations: tuple[Manifest, ...] = ()


def plan_rollout(
    vm: Mapping[str, Any],
    vmi: Mapping[str, Any],
    revision: Mapping[str, Any],
    strategy: Strategy,
) -> Rollout:
    """Plan how the template reaches a running instance.

    Args:
        vm: The machine.
        vmi: Its instance.
        revision: Revision that the instance was started from.
        strategy: Rollout strategy of the installation.
    """
    wanted = map_at(vm, "spec", "template", "spec")
    before = map_at(template_of(revision), "spec")
    if not is_same(_fixed(before, strategy), _fixed(wanted, strategy)):
        return Rollout(restart=NOT_LIVE)
    deleting = "deletionTimestamp" in map_at(vmi, "metadata")
    if strategy == "Stage" or deleting:
        return Rollout()
    cpu = _plan_cpu(wanted, vmi)
    if cpu.failure is not None:
        return cpu
    memory = _plan_memory(wanted, vmi)
    return Rollout(
        cpu.restart or memory.restart,
        memory.failure,
        (*cpu.operations, *_plan_placement(wanted, vmi), *memory.operations),
    )


def _fixed(spec: Mapping[str, Any], strategy: Strategy) -> Manifest:
    """Return the part of a spec whose change needs a restart."""
    domain = dict(map_at(spec, "domain"))
    # KubeVirt itself writes the UUID of an instance into a template without one.
    firmware = {name: part for name, part in map_at(domain, "firmware").items() if name != "uuid"}
    domain = {**domain, "firmware": firmware}
    if strategy == "Stage":
        return {**spec, "domain": domain}
    for name, live in (("cpu", "sockets"), ("memory", "guest")):
        domain[name] = {key: part for key, part in map_at(domain, name).items() if key != live}
    kept = {name: part for name, part in spec.items() if name not in _PLACEMENT}
    return {**kept, "domain": domain}


def _plan_cpu(wanted: Mapping[str, Any], vmi: Mapping[str, Any]) -> Rollout:
    template, running = map_at(wanted, "domain", "cpu"), map_at(vmi, "spec", "domain", "cpu")
    sockets, held = complete_cpu(template)["sockets"], complete_cpu(running)["sockets"]
    if not template or not running or sockets == held:
        return Rollout()
    if holds_at(vmi, "HotVCPUChange"):
        return _fail("HotPlugCPUError", "CPU", "another CPU hotplug is in progress")
    if _is_migrating(vmi):
        return _fail("HotPlugCPUError", "CPU", "CPU hotplug is not allowed while VMI is migrating")
    if sockets > int(running.get("maxSockets") or 0):
        text = "CPU sockets updated in template spec to a value higher than what's available"
        return Rollout(restart=text)
    if sockets < held:
        return Rollout(restart="Reduction of CPU socket count requires a restart")
    path = "/spec/domain/cpu/sockets"
    return Rollout(operations=({"op": "replace", "path": path, "value": sockets},))


def _plan_placement(wanted: Mapping[str, Any], vmi: Mapping[str, Any]) -> list[Manifest]:
    operations: list[Manifest] = []
    for name in _PLACEMENT:
        value, held = wanted.get(name), map_at(vmi, "spec").get(name)
        if (value or None) == (held or None) or _is_migrating(vmi):
            continue
        op = {"op": "add", "value": value} if value else {"op": "remove"}
        operations.append({**op, "path": f"/spec/{name}"})
    return operations


def _plan_memory(wanted: Mapping[str, Any], vmi: Mapping[str, Any]) -> Rollout:
    guest = text_at(wanted, "domain", "memory", "guest")
    running = map_at(vmi, "spec", "domain", "memory")
    held, longest = text_at(running, "guest"), text_at(running, "maxGuest")
    if not guest or not held or parse_quantity(guest) == parse_quantity(held):
        return Rollout()
    prefix = "memory updated in template spec"
    if not holds_at(vmi, "LiveMigratable"):
        text = f"{prefix}. Memory-hotplug is only available for migratable VMs"
        return Rollout(restart=text)
    if not longest:
        text = f"{prefix}. Memory-hotplug is not available for this VM configuration"
        return Rollout(restart=text)
    if holds_at(vmi, "HotMemoryChange"):
        return _fail("HotPlugMemoryError", "memory", "another memory hotplug is in progress")
    if _is_migrating(vmi):
        text = "memory hotplug is not allowed while VMI is migrating"
        return _fail("HotPlugMemoryError", "memory", text)
    if fault := check_memory(guest, longest):
        return Rollout(restart=f"memory hotplug not supported, {fault}")
    boot = text_at(vmi, "status", "memory", "guestAtBoot")
    if boot and parse_quantity(guest) < parse_quantity(boot):
        return Rollout(restart=f"{prefix} to a value lower than what the VM started with")
    path = "/spec/domain/memory/guest"
    return Rollout(operations=({"op": "replace", "path": path, "value": guest},))


def _fail(reason: str, what: str, text: str) -> Rollout:
    begin = "Error" if what == "CPU" else "error"
    words = "CPU change request" if what == "CPU" else "memory hotplug requests"
    return Rollout(failure=(reason, f"{begin} encountered while handling {words}: {text}"))


def _is_migrating(vmi: Mapping[str, Any]) -> bool:
    state = map_at(vmi, "status", "migrationState")
    return bool(state.get("migrationUid")) and state.get("completed") is not True


# What an instance reports of changes that have not reached its guest.


def pending_changes(vmi: Mapping[str, Any]) -> list[str]:
    """Return the conditions of the changes that the guest does not have yet."""
    found = []
    cpu, current = map_at(vmi, "spec", "domain", "cpu"), map_at(vmi, "status", "currentCPUTopology")
    if cpu.get("maxSockets") and current and _count(cpu) != _count(current):
        found.append("HotVCPUChange")
    memory = map_at(vmi, "spec", "domain", "memory")
    asked, messages = text_at(memory, "guest"), text_at(vmi, "status", "memory", "guestRequested")
    if memory.get("maxGuest") and messages and parse_quantity(asked) != parse_quantity(messages):
        found.append("HotMemoryChange")
    return found


def adopt_changes(vmi: Mapping[str, Any], status: Manifest) -> None:
    """Write into the status of an instance that its guest has what its spec says."""
    domain = map_at(vmi, "spec", "domain")
    if "currentCPUTopology" in status:
        status["currentCPUTopology"] = _topology(map_at(domain, "cpu"))
    guest = text_at(domain, "memory", "guest")
    if "memory" in status and guest:
        status["memory"] = {**status["memory"], "guestCurrent": guest, "guestRequested": guest}


def _count(cpu: Mapping[str, Any]) -> int:
    full = complete_cpu(cpu)
    return int(full["cores"] * full["sockets"] * full["threads"])


def _topology(cpu: Mapping[str, Any]) -> Manifest:
    full = complete_cpu(cpu)
    return {name: full[name] for name in ("cores", "sockets", "threads")}
