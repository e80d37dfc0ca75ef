"""The controller of instances: virt-controller and virt-handler in one. Pure.

    ""  ->  Pending  ->  Scheduling  ->  Scheduled  ->  Running  ->  Succeeded | Failed

Each step is one write, so that anyone who watches sees each phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Protocol

from lab.kubevirt_sim.behavior import Guest
from lab.kubevirt_sim.launcher import (
    are_containers_ready,
    claim_of,
    find_launcher,
    is_finished,
    waiting_reason,
)
from lab.kubevirt_sim.reports import build_running_status
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from libs.common.conditions import find_condition, render_time
from libs.common.kinds import Manifest, is_deleting, uid_of
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.contracts.cdi import DataVolumePhase
from libs.contracts.claims import SELECTED_NODE
from libs.contracts.kubevirt import FINAL_PHASES, VmiPhase

UNRESPONSIVE: Final = "NodeUnresponsive"
"""Reason of an instance whose node has been silent for too long."""
_USABLE: Final = (DataVolumePhase.SUCCEEDED,)


class Watch(Protocol):
    """A function that returns the remaining time of a step, as `StepTimers` do for one object."""

    def __call__(self, step: str, seconds: float) -> float:
        """Return the seconds until a step has taken so long, 0 when it has."""


@dataclass(frozen=True, slots=True)
class InstanceInputs:
    """The inputs from which the state of an instance is computed.

    Attributes:
        pods: Its launcher pods, those on their way out too.
        disks: Data volumes by name, of those that it names and that exist.
        claims: Claims by name, likewise.
        guest: How the guest behaves.
        boots: Whether its disk can be booted from. QEMU runs all the same, and the instance is
            ready: only an agent never connects (recording `7-noboot`).
        left: Returns the remaining time of a step.
        silent: Whether the node of the guest has stopped.
        lost: Whether it has been silent for longer than KubeVirt waits.
        now: Time.
        grace: Seconds until a guest that ignores its power button is killed.
    """

    pods: Sequence[Manifest]
    disks: Mapping[str, Manifest]
    claims: Mapping[str, Manifest]
    guest: Guest
    boots: bool
    left: Watch
    silent: bool
    lost: bool
    now: datetime
    grace: float

    @property
    def has_agent(self) -> bool:
        """Whether an agent will connect."""
        return self.guest.agent and self.boots


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """The plan for an instance.

    Attributes:
        status: Status from now on; None to leave it.
        node: Value of the node label from now on; empty to leave it.
        create_launcher: Whether it gets its first pod.
        delete_pods: Pods to delete.
        pods_ended: Pods whose containers have ended, and whether well.
        select_claims: Claims that wait for a consumer, to be given a node.
        gone: Whether nothing is left of an instance that is being deleted.
        wait: Seconds until another look; None for none.
    """

    status: Manifest | None = None
    node: str = ""
    create_launcher: bool = False
    delete_pods: tuple[Manifest, ...] = ()
    pods_ended: tuple[tuple[Manifest, bool], ...] = ()
    select_claims: tuple[Manifest, ...] = ()
    gone: bool = False
    wait: float | None = field(default=None)


_NOTHING: Final = InstancePlan()


def plan_instance(vmi: Manifest, inputs: InstanceInputs) -> InstancePlan:
    """Plan one step of an instance that is not being deleted."""
    phase = text_at(vmi, "status", "phase")
    if phase in FINAL_PHASES:
        return _end_pods(vmi, inputs, phase == VmiPhase.SUCCEEDED)
    if phase == VmiPhase.UNSET:
        conditions = [
            build_condition("Ready", False, "PodNotExists", "virt-launcher pod has not yet been")
        ]
        return InstancePlan(status=move(vmi, VmiPhase.PENDING, inputs.now, conditions))
    if phase == VmiPhase.PENDING:
        return _plan_pending(vmi, inputs)
    return _plan_placed(vmi, inputs, phase)


def plan_end(vmi: Manifest, inputs: InstanceInputs) -> InstancePlan:
    """Plan one step of an instance that is being deleted."""
    phase = text_at(vmi, "status", "phase")
    if phase in (VmiPhase.UNSET, VmiPhase.PENDING):
        return InstancePlan(status=move(vmi, VmiPhase.FAILED, inputs.now))
    if phase in FINAL_PHASES:
        remove = tuple(pod for pod in inputs.pods if not is_deleting(pod))
        return InstancePlan(delete_pods=remove, gone=not inputs.pods)
    pod = find_launcher(vmi, inputs.pods)
    if pod is None or is_finished(pod):
        return _fail(vmi, inputs, pod)
    if inputs.silent:
        # Nobody is there to end the guest.
        return _NOTHING
    if phase != VmiPhase.RUNNING:
        return InstancePlan(status=move(vmi, VmiPhase.FAILED, inputs.now))
    return _power_off(vmi, inputs)


def move(
    vmi: Mapping[str, Any],
    phase: VmiPhase,
    now: datetime,
    conditions: Sequence[Mapping[str, Any]] | None = None,
    **fields: Any,
) -> Manifest:
    """Build the status of an instance that goes to another phase."""
    status = dict(vmi.get("status") or {})
    held = status.get("conditions") or ()
    times = [
        *(status.get("phaseTransitionTimestamps") or ()),
        {"phase": str(phase), "phaseTransitionTimestamp": render_time(now)},
    ]
    wanted = held if conditions is None else conditions
    return {
        **status,
        **fields,
        "phase": str(phase),
        "phaseTransitionTimestamps": times,
        "conditions": merge_conditions(held, wanted, now),
    }


def _plan_pending(vmi: Manifest, inputs: InstanceInputs) -> InstancePlan:
    missing, failed, waiting = _look_at_disks(vmi, inputs)
    if failed:
        return InstancePlan(status=move(vmi, VmiPhase.FAILED, inputs.now))
    conditions = [item for item in (find_condition(vmi, "Ready"),) if item is not None]
    if missing:
        text = f"failed to find PVC {missing}"
        conditions.append(build_condition("Synchronized", False, "FailedPvcNotFound", text))
    elif waiting:
        text = "Not all of the VMI's DVs are ready"
        conditions.append(build_condition("DataVolumesReady", False, "NotAllDVsReady", text))
    else:
        if any(name in inputs.disks for name in _claims_of(vmi)):
            text = "All of the VMI's DVs are bound and not running"
            conditions.append(build_condition("DataVolumesReady", True, "AllDVsReady", text))
        launcher = find_launcher(vmi, inputs.pods)
        if launcher is None:
            return InstancePlan(create_launcher=True)
        return InstancePlan(status=move(vmi, VmiPhase.SCHEDULING, inputs.now, conditions))
    plan = InstancePlan(select_claims=_find_unselected(waiting, inputs))
    return _with_conditions(plan, vmi, conditions, inputs.now)


def _look_at_disks(vmi: Manifest, inputs: InstanceInputs) -> tuple[str, bool, list[str]]:
    """Return the claim that is missing, whether an import has failed, and what is unfinished."""
    waiting = []
    for name in _claims_of(vmi):
        disk = inputs.disks.get(name)
        if disk is None:
            if name not in inputs.claims:
                return name, False, []
            continue
        phase = text_at(disk, "status", "phase")
        if phase == DataVolumePhase.FAILED:
            return "", True, []
        if phase not in _USABLE:
            waiting.append(name)
    return "", False, waiting


def _claims_of(vmi: Mapping[str, Any]) -> list[str]:
    return [claim for item in maps_at(vmi, "spec", "volumes") if (claim := claim_of(item))]


def _find_unselected(names: Sequence[str], inputs: InstanceInputs) -> tuple[Manifest, ...]:
    waiting = (DataVolumePhase.WAIT_FOR_FIRST_CONSUMER, DataVolumePhase.PENDING_POPULATION)
    return tuple(
        inputs.claims[name]
        for name in names
        if text_at(inputs.disks[name], "status", "phase") in waiting
        and name in inputs.claims
        and SELECTED_NODE not in text_map_at(inputs.claims[name], "metadata", "annotations")
    )


def _plan_placed(vmi: Manifest, inputs: InstanceInputs, phase: str) -> InstancePlan:
    pod = find_launcher(vmi, inputs.pods)
    if pod is None or is_finished(pod):
        return _fail(vmi, inputs, pod)
    if inputs.silent:
        return _NOTHING
    if phase == VmiPhase.SCHEDULING:
        return _plan_scheduling(vmi, inputs, pod)
    if phase == VmiPhase.SCHEDULED:
        return _plan_scheduled(vmi, inputs, pod)
    return _plan_running(vmi, inputs, pod)


def _plan_scheduling(vmi: Manifest, inputs: InstanceInputs, pod: Manifest) -> InstancePlan:
    conditions = [item for item in (find_condition(vmi, "Ready"),) if item is not None]
    ready = find_condition(vmi, "DataVolumesReady")
    conditions += [ready] if ready else []
    placed = find_condition(pod, "PodScheduled")
    if placed is not None and placed.get("status") == "False":
        text = text_at(placed, "message")
        conditions.append(build_condition("PodScheduled", False, text_at(placed, "reason"), text))
    reason = waiting_reason(pod)
    if reason in ("ErrImagePull", "ImagePullBackOff"):
        text = "back-off pulling image" if reason == "ImagePullBackOff" else "cannot pull image"
        conditions.append(build_condition("Synchronized", False, reason, text))
    if not are_containers_ready(pod):
        return _with_conditions(_NOTHING, vmi, conditions, inputs.now)
    node = text_at(pod, "spec", "nodeName")
    conditions = [item for item in conditions if item["type"] in ("Ready", "DataVolumesReady")]
    status = move(
        vmi,
        VmiPhase.SCHEDULED,
        inputs.now,
        conditions,
        nodeName=node,
        activePods={uid_of(pod): node},
    )
    return InstancePlan(status=status, node=node)


def _plan_scheduled(vmi: Manifest, inputs: InstanceInputs, pod: Manifest) -> InstancePlan:
    if is_deleting(pod):
        return _NOTHING
    left = inputs.left("boot", inputs.guest.boot)
    if left:
        return InstancePlan(wait=left)
    if inputs.guest.crash == "boot":
        status = move(vmi, VmiPhase.FAILED, inputs.now)
        return InstancePlan(status=status, pods_ended=((pod, False),))
    status = move(vmi, VmiPhase.RUNNING, inputs.now)
    vmi = {**vmi, "status": status}
    agent = inputs.has_agent and not inputs.guest.agent_delay
    return InstancePlan(status=_build_running(vmi, inputs, pod, agent, True))


def _plan_running(vmi: Manifest, inputs: InstanceInputs, pod: Manifest) -> InstancePlan:
    guest = inputs.guest
    if guest.crash == "run" or guest.power == "shutdown":
        phase = VmiPhase.FAILED if guest.crash else VmiPhase.SUCCEEDED
        status = move(vmi, phase, inputs.now, _not_running(vmi))
        return InstancePlan(status=status, pods_ended=((pod, phase == VmiPhase.SUCCEEDED),))
    # After each reboot the guest boots again before its agent answers.
    boot = 0.0 if guest.reboots == "0" else guest.boot
    since = f"agent {guest.reboots}"
    agent_left = inputs.left(since, boot + guest.agent_delay) if inputs.has_agent else 0.0
    state = map_at(vmi, "status", "migrationState")
    moved = state.get("completed") is True and state.get("failed") is not True
    hidden = (
        inputs.left(f"address {state.get('migrationUid')}", guest.address_delay) if moved else 0
    )
    agent = inputs.has_agent and not agent_left
    status = _build_running(vmi, inputs, pod, agent, not hidden)
    waits = [left for left in (agent_left, hidden) if left]
    return InstancePlan(
        status=status if status != vmi.get("status") else None,
        wait=min(waits) if waits else None,
    )


def _build_running(
    vmi: Manifest, inputs: InstanceInputs, pod: Manifest, agent: bool, addressed: bool
) -> Manifest:
    return build_running_status(
        vmi, inputs.pods, pod, inputs.claims, inputs.guest, agent, addressed, inputs.now
    )


def _fail(vmi: Manifest, inputs: InstanceInputs, pod: Manifest | None) -> InstancePlan:
    """Plan for an instance whose pod is gone or has ended under it."""
    conditions = _not_running(vmi)
    reason = {"reason": UNRESPONSIVE} if inputs.lost else {}
    if inputs.silent and not inputs.lost:
        return _NOTHING
    well = pod is not None and text_at(pod, "status", "phase") == "Succeeded"
    phase = VmiPhase.SUCCEEDED if well else VmiPhase.FAILED
    return InstancePlan(status=move(vmi, phase, inputs.now, conditions, **reason))


def _power_off(vmi: Manifest, inputs: InstanceInputs) -> InstancePlan:
    """Plan for a guest whose power button was pressed."""
    stubborn = inputs.guest.ignores_acpi
    seconds = inputs.grace if stubborn else min(inputs.guest.shutdown, inputs.grace)
    killed = stubborn or inputs.guest.shutdown > inputs.grace
    left = inputs.left("power-off", seconds)
    if left:
        return InstancePlan(wait=left)
    phase = VmiPhase.FAILED if killed else VmiPhase.SUCCEEDED
    return InstancePlan(status=move(vmi, phase, inputs.now, _not_running(vmi)))


def _end_pods(vmi: Manifest, inputs: InstanceInputs, well: bool) -> InstancePlan:
    live = tuple(
        (pod, well) for pod in inputs.pods if not is_finished(pod) and not is_deleting(pod)
    )
    return InstancePlan(pods_ended=live)


def _not_running(vmi: Mapping[str, Any]) -> list[Manifest]:
    rest = [
        dict(item)
        for item in maps_at(vmi, "status", "conditions")
        if item.get("type") not in ("Ready", "AgentConnected")
    ]
    text = "Guest VM is not reported as running"
    return [build_condition("Ready", False, "GuestNotRunning", text), *rest]


def _with_conditions(
    plan: InstancePlan, vmi: Manifest, wanted: Sequence[Mapping[str, Any]], now: datetime
) -> InstancePlan:
    held = map_at(vmi, "status").get("conditions") or []
    merged = merge_conditions(held, wanted, now)
    if merged == held:
        return plan
    return replace(plan, status={**(vmi.get("status") or {}), "conditions": merged})
