"""Answers of `subresources.kubevirt.io`: what virt-api refuses, and what it writes. Pure.

The codes and texts are virt-api's own, spelling included. The server wraps what is a conflict:
`Operation cannot be fulfilled on virtualmachine.kubevirt.io "web": VM is not running`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.machine import strategy_of
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from libs.common.kinds import Kind, Manifest, uid_of
from libs.common.plan import escape_pointer
from libs.common.reading import holds_at, map_at, maps_at, text_at, text_map_at
from libs.contracts.kubevirt import (
    FINAL_PHASES,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    RunStrategy,
    VmiPhase,
)

_ACCEPTED: Final = 202
_OK: Final = 200
_GUEST: Final = escape_pointer(PREFIX) + "guest"
_REBOOTS: Final = escape_pointer(PREFIX) + "reboots"


@dataclass(frozen=True, slots=True)
class Write:
    """A JSON patch of the machine or the instance.

    Attributes:
        kind: Which of the two.
        operations: The patch; a `test` that loses is answered by 409.
        subresource: `status`, or empty for the object itself.
    """

    kind: Kind
    operations: tuple[Manifest, ...]
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, and the writes before it.

    Attributes:
        code: HTTP status.
        text: Why it is refused; empty for a success.
        writes: Patches, in their order.
        create: Migration to create; None for none.
        body: Body of the response; None for an empty one.
    """

    code: int
    text: str = ""
    writes: tuple[Write, ...] = ()
    create: Manifest | None = None
    body: Manifest | None = None


type _Action = Callable[[Manifest | None, Manifest | None, Mapping[str, Any], datetime], Answer]


def decide(
    plural: str,
    action: str,
    vm: Manifest | None,
    vmi: Manifest | None,
    body: Mapping[str, Any],
    moment: datetime,
) -> Answer | None:
    """Decide what becomes of an action; None for one that is not simulated.

    Args:
        plural: `virtualmachines` or `virtualmachineinstances`.
        action: Subresource, such as `restart`.
        vm: Machine of that name.
        vmi: Instance of that name.
        body: Options that were sent.
        moment: Time.
    """
    found = _ACTIONS.get((plural, action))
    if found is None:
        return None
    subject = vm if plural == VIRTUAL_MACHINE.plural else vmi
    if subject is None:
        return Answer(404, "not found")
    return found(vm, vmi, body, moment)


def _start(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], _: datetime
) -> Answer:
    assert vm is not None
    strategy, phase = strategy_of(vm), text_at(vmi or {}, "status", "phase")
    if vmi is not None and phase not in (*FINAL_PHASES, VmiPhase.UNSET, VmiPhase.UNKNOWN):
        return Answer(409, "VM is already running")
    if holds_at(vm, "ManualRecoveryRequired"):
        return Answer(409, "VM recovery required")
    if strategy in (RunStrategy.ALWAYS, RunStrategy.ONCE):
        return Answer(409, f"{strategy} does not support manual start requests")
    if strategy == RunStrategy.RERUN_ON_FAILURE and phase == VmiPhase.FAILED:
        return Answer(409, f"{strategy} does not support starting VM from failed state")
    if strategy == RunStrategy.HALTED and not body.get("paused"):
        return Answer(_ACCEPTED, writes=(_set_strategy(vm, RunStrategy.ALWAYS),))
    data = {"data": {"paused": "true"}} if body.get("paused") else {}
    return _request(vm, {"action": "Start", **data})


def _stop(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], _: datetime
) -> Answer:
    assert vm is not None
    strategy = strategy_of(vm)
    if not _is_live(vmi):
        return Answer(409, "VM is not running")
    assert vmi is not None
    grace = body.get("gracePeriod")
    held = map_at(vmi, "spec").get("terminationGracePeriodSeconds")
    if strategy == RunStrategy.HALTED and (grace is None or (held is not None and grace >= held)):
        text = "Halted only supports manual stop requests with a shorter graceperiod"
        return Answer(409, text)
    shorten = (_set_grace(vmi, int(grace)),) if isinstance(grace, int) else ()
    if strategy == RunStrategy.HALTED:
        return Answer(_ACCEPTED, writes=shorten)
    if strategy in (RunStrategy.ALWAYS, RunStrategy.ONCE):
        return Answer(_ACCEPTED, writes=(*shorten, _set_strategy(vm, RunStrategy.HALTED)))
    # A single stop takes the place of whatever was asked before.
    requests = [{"action": "Stop", "uid": uid_of(vmi)}]
    return Answer(_ACCEPTED, writes=(*shorten, _set_requests(vm, requests)))


def _restart(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], _: datetime
) -> Answer:
    assert vm is not None
    grace = body.get("gracePeriodSeconds")
    if isinstance(grace, int) and grace > 0:
        return Answer(400, ">0: For force restart, only gracePeriod=0 is supported for now")
    strategy = strategy_of(vm)
    if strategy in (RunStrategy.HALTED, RunStrategy.ONCE):
        return Answer(409, f"RunStategy {strategy} does not support manual restart requests")
    if not _is_live(vmi):
        return Answer(409, "VM is not running: Halted")
    assert vmi is not None
    if holds_at(vmi, "VolumesChange"):
        return Answer(409, "VM recovery required: volumes are being changed")
    if maps_at(vm, "status", "stateChangeRequests"):
        return Answer(500, "unable to complete request: stop/start already underway")
    requests = [{"action": "Stop", "uid": uid_of(vmi)}, {"action": "Start"}]
    force = (_set_grace(vmi, 1),) if grace == 0 and grace is not False else ()
    return Answer(_ACCEPTED, writes=(*force, _set_requests(vm, requests)))


def _migrate(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], _: datetime
) -> Answer:
    assert vm is not None
    if text_at(vmi or {}, "status", "phase") != VmiPhase.RUNNING:
        return Answer(409, "VM is not running")
    kind, metadata = VIRTUAL_MACHINE_INSTANCE_MIGRATION, vm["metadata"]
    added = text_map_at(body, "addedNodeSelector")
    return Answer(
        _ACCEPTED,
        create={
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "generateName": "kubevirt-migrate-vm-",
                "namespace": metadata["namespace"],
            },
            "spec": {
                "vmiName": metadata["name"],
                **({"addedNodeSelector": added} if added else {}),
            },
        },
    )


def _cancel_evacuation(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], _: datetime
) -> Answer:
    if vmi is None or not text_at(vmi, "status", "evacuationNodeName"):
        return Answer(_OK)
    operations = ({"op": "remove", "path": "/status/evacuationNodeName"},)
    return Answer(_OK, writes=(Write(VIRTUAL_MACHINE_INSTANCE, operations),))


def _pause(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], moment: datetime
) -> Answer:
    assert vmi is not None
    if text_at(vmi, "status", "phase") != VmiPhase.RUNNING:
        return Answer(409, "VM is not running")
    if holds_at(vmi, "Paused"):
        return Answer(409, "VMI is already paused")
    paused = build_condition("Paused", True, "PausedByUser", "VMI was paused by user")
    return Answer(_OK, writes=(_set_conditions(vmi, moment, paused),))


def _unpause(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], moment: datetime
) -> Answer:
    assert vmi is not None
    if text_at(vmi, "status", "phase") != VmiPhase.RUNNING:
        return Answer(409, "VM is not running")
    if not holds_at(vmi, "Paused"):
        return Answer(409, "VMI is not paused")
    return Answer(_OK, writes=(_set_conditions(vmi, moment, without="Paused"),))


def _soft_reboot(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], moment: datetime
) -> Answer:
    assert vmi is not None
    if text_at(vmi, "status", "phase") != VmiPhase.RUNNING:
        return Answer(409, "VM is not running")
    if holds_at(vmi, "Paused"):
        return Answer(409, "VMI is paused")
    acpi = map_at(vmi, "spec", "domain", "features", "acpi").get("enabled") is not False
    agent = holds_at(vmi, "AgentConnected")
    if not agent and not acpi:
        text = "VMI neither have the agent connected nor the ACPI feature enabled"
        return Answer(409, text)
    ignored = "ignores-reboot" if agent else "ignores-acpi"
    if text_map_at(vmi, "metadata", "annotations").get(PREFIX + ignored) == "true":
        # The guest is asked, or the button is pressed, and nothing happens.
        return Answer(_OK)
    if text_at(vmi, "spec", "domain", "rebootPolicy") == "Terminate":
        return Answer(_OK, writes=(_annotate_guest(vmi, "shutdown"),))
    if not agent:
        return Answer(_OK)
    reboots = text_map_at(vmi, "metadata", "annotations").get(PREFIX + "reboots", "0")
    count = str(int(reboots) + 1 if reboots.isdecimal() else 1)
    gone = _set_conditions(vmi, moment, without="AgentConnected")
    note = _annotate_guest(vmi, count, name=_REBOOTS)
    return Answer(_OK, writes=(replace(gone, operations=(*gone.operations, *note.operations)),))


def _accept_running(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], _: datetime
) -> Answer:
    assert vmi is not None
    if text_at(vmi, "status", "phase") != VmiPhase.RUNNING:
        return Answer(409, "VM is not running")
    return Answer(_OK)


def _describe_guest(
    vm: Manifest | None, vmi: Manifest | None, body: Mapping[str, Any], _: datetime
) -> Answer:
    assert vmi is not None
    if text_at(vmi, "status", "phase") != VmiPhase.RUNNING:
        return Answer(409, "VMI is not running")
    if not holds_at(vmi, "AgentConnected"):
        return Answer(409, "VMI does not have guest agent connected")
    name = text_at(vmi, "metadata", "name")
    return Answer(
        _OK,
        body={
            "apiVersion": "subresources.kubevirt.io/v1",
            "kind": "VirtualMachineInstanceGuestAgentInfo",
            "guestAgentVersion": "0 (simulated)",
            "hostname": text_at(vmi, "spec", "hostname") or name,
            "os": {"name": "Simulated", "id": "simulated"},
        },
    )


_ACTIONS: Final[Mapping[tuple[str, str], _Action]] = {
    ("virtualmachines", "start"): _start,
    ("virtualmachines", "stop"): _stop,
    ("virtualmachines", "restart"): _restart,
    ("virtualmachines", "migrate"): _migrate,
    ("virtualmachines", "evacuate/cancel"): _cancel_evacuation,
    ("virtualmachineinstances", "evacuate/cancel"): _cancel_evacuation,
    ("virtualmachineinstances", "pause"): _pause,
    ("virtualmachineinstances", "unpause"): _unpause,
    ("virtualmachineinstances", "softreboot"): _soft_reboot,
    ("virtualmachineinstances", "reset"): _accept_running,
    ("virtualmachineinstances", "freeze"): _accept_running,
    ("virtualmachineinstances", "unfreeze"): _accept_running,
    ("virtualmachineinstances", "guestosinfo"): _describe_guest,
}
READS: Final = frozenset({"guestosinfo"})
"""Actions that are asked for with GET; the others are PUT."""


def _is_live(vmi: Mapping[str, Any] | None) -> bool:
    return vmi is not None and text_at(vmi, "status", "phase") not in FINAL_PHASES


def _request(vm: Manifest, request: Manifest) -> Answer:
    if maps_at(vm, "status", "stateChangeRequests"):
        return Answer(500, "unable to complete request: stop/start already underway")
    return Answer(_ACCEPTED, writes=(_set_requests(vm, [request]),))


def _set_requests(vm: Manifest, requests: list[Manifest]) -> Write:
    version = vm["metadata"]["resourceVersion"]
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    status = {**map_at(vm, "status"), "stateChangeRequests": requests}
    change = {"op": "add", "path": "/status", "value": status}
    return Write(VIRTUAL_MACHINE, (guard, change), "status")


def _set_strategy(vm: Manifest, strategy: RunStrategy) -> Write:
    spec, version = map_at(vm, "spec"), vm["metadata"]["resourceVersion"]
    operations: list[Manifest] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/runStrategy", "value": str(strategy)},
    ]
    if "running" in spec:
        operations.append({"op": "remove", "path": "/spec/running"})
    return Write(VIRTUAL_MACHINE, tuple(operations))


def _set_grace(vmi: Manifest, seconds: int) -> Write:
    path = "/spec/terminationGracePeriodSeconds"
    return Write(
        VIRTUAL_MACHINE_INSTANCE,
        (
            {"op": "test", "path": "/metadata/uid", "value": uid_of(vmi)},
            {"op": "add", "path": path, "value": seconds},
        ),
    )


def _set_conditions(vmi: Manifest, moment: datetime, *added: Manifest, without: str = "") -> Write:
    held = maps_at(vmi, "status", "conditions")
    kept = [dict(item) for item in held if item.get("type") != without]
    version = vmi["metadata"]["resourceVersion"]
    return Write(
        VIRTUAL_MACHINE_INSTANCE,
        (
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {
                "op": "add",
                "path": "/status/conditions",
                "value": [*kept, *merge_conditions(held, added, moment)],
            },
        ),
    )


def _annotate_guest(vmi: Manifest, word: str, name: str = _GUEST) -> Write:
    operations: list[Manifest] = [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(vmi)},
        {"op": "add", "path": f"/metadata/annotations/{name}", "value": word},
    ]
    if not map_at(vmi, "metadata", "annotations"):
        operations.insert(1, {"op": "add", "path": "/metadata/annotations", "value": {}})
    return Write(VIRTUAL_MACHINE_INSTANCE, tuple(operations))
