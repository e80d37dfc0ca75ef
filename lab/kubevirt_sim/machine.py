"""The VM controller: from a machine and its instance to what is done next. Pure.

It follows `sync` of KubeVirt's VM controller: strategies, requests, start failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from lab.kubevirt_sim.defaults import build_domain, build_first_status
from lab.kubevirt_sim.instancetypes import build_notes, expand
from lab.kubevirt_sim.machine_status import build_status
from lab.kubevirt_sim.printable import StatusInputs
from lab.kubevirt_sim.revisions import (
    GENERATION,
    find_revision,
    generation_of,
    plan_bump,
    plan_revision,
    revision_name,
)
from lab.kubevirt_sim.rollout import Rollout, Strategy, plan_rollout
from libs.common.conditions import find_condition
from libs.common.kinds import Manifest, build_object, is_deleting, key_of, uid_of
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create, Delete, Patch, Step
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.contracts.kubevirt import (
    FINAL_PHASES,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    RunStrategy,
    VmiPhase,
)

INSTANCE_FINALIZER: Final = "kubevirt.io/foregroundDeleteVirtualMachine"
_RERUN: Final = (RunStrategy.ALWAYS, RunStrategy.RERUN_ON_FAILURE, RunStrategy.ONCE)


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """The next actions of the VM controller.

    Attributes:
        steps: Writes, in their order.
        status: Status of the machine from now on.
        wait: Seconds until another look that no event asks for; None for none.
    """

    steps: tuple[Step, ...]
    status: Manifest
    wait: float | None = None


def strategy_of(vm: Mapping[str, Any]) -> str:
    """Return the run strategy, including from the old field `running`."""
    spec = map_at(vm, "spec")
    if strategy := text_at(spec, "runStrategy"):
        return strategy
    return RunStrategy.ALWAYS if spec.get("running") is True else RunStrategy.HALTED


def plan_machine(
    vm: Manifest,
    vmi: Manifest | None,
    disks: Sequence[Mapping[str, Any]],
    revisions: Sequence[Manifest] = (),
    *,
    disks_ready: bool,
    now: datetime,
    rollout: Strategy = "LiveUpdate",
    longest_backoff: float = 300.0,
    chance: Callable[[], float] = lambda: 0.0,
) -> MachinePlan:
    """Plan one step of a machine that is not being deleted.

    Args:
        vm: The machine.
        vmi: Its instance; None for none.
        disks: Data volumes that its template names and that exist.
        revisions: ControllerRevisions of the machine.
        disks_ready: Whether the data volumes of its own templates let it start.
        now: Time.
        rollout: Rollout strategy of the installation.
        longest_backoff: Bound of the back-off of a machine that never comes to run, in seconds.
        chance: Random number in [0, 1) for the jitter of the back-off.
    """
    status = dict(vm.get("status") or {})
    revision = find_revision(vmi, revisions) if vmi is not None else None
    bump = plan_bump(vm, vmi, revision) if vmi is not None else None
    if bump is not None:
        return MachinePlan((bump,), status)
    requests = trim_requests(list(status.get("stateChangeRequests") or ()), vmi)
    failure = count_failures(vm, vmi, now, longest_backoff, chance)
    decision = _decide(vm, vmi, requests, disks_ready=disks_ready)
    wait = _backoff_left(failure, now) if decision.start else 0.0
    starting = decision.start and not wait
    full = {**vm, "spec": expand(vm, map_at(vm, "spec"), revisions)}
    change = None
    if vmi is not None and revision is not None:
        before = {"data": {"spec": expand(vm, map_at(revision, "data", "spec"), revisions)}}
        change = plan_rollout(full, vmi, before, rollout)
    steps: tuple[Step, ...] = ()
    if decision.stop and vmi is not None and not is_deleting(vmi):
        steps = (Delete.of(VIRTUAL_MACHINE_INSTANCE, vmi),)
    elif starting:
        vmi_to_be = Create(VIRTUAL_MACHINE_INSTANCE, build_instance(full))
        steps = (*plan_revision(vm, revisions), vmi_to_be)
    elif vmi is not None and change is not None:
        steps = _plan_change(vmi, change)
    _set(status, "stateChangeRequests", [*requests, *decision.requests])
    _set(status, "startFailure", failure)
    inputs = StatusInputs(
        {**vm, "status": status},
        vmi,
        strategy_of(vm),
        disks,
        starting=starting,
        stopping=decision.stop,
    )
    return MachinePlan(steps, build_status(inputs, change, now), wait or None)


def plan_failure(
    vm: Manifest,
    vmi: Manifest | None,
    disks: Sequence[Mapping[str, Any]],
    failure: tuple[str, str],
    now: datetime,
) -> Manifest:
    """Build the status of a machine that KubeVirt does nothing for, because of a failure."""
    inputs = StatusInputs(vm, vmi, strategy_of(vm), disks, starting=vmi is None)
    held = find_condition(vm, "RestartRequired")
    change = Rollout(restart=text_at(held or {}, "message"), failure=failure)
    return build_status(inputs, change, now)


def _plan_change(vmi: Manifest, change: Rollout) -> tuple[Step, ...]:
    if not change.operations or text_at(vmi, "status", "phase") in FINAL_PHASES:
        return ()
    version = vmi["metadata"]["resourceVersion"]
    kind = VIRTUAL_MACHINE_INSTANCE
    return (Patch(kind, key_of(vmi), uid_of(vmi), change.operations, resource_version=version),)


@dataclass(frozen=True, slots=True)
class _Decision:
    start: bool = False
    stop: bool = False
    requests: tuple[Manifest, ...] = ()


def _decide(
    vm: Mapping[str, Any],
    vmi: Manifest | None,
    requests: Sequence[Mapping[str, Any]],
    *,
    disks_ready: bool,
) -> _Decision:
    strategy = strategy_of(vm)
    if strategy == RunStrategy.HALTED:
        # A machine that is off does not wait for its disks.
        return _Decision(stop=vmi is not None)
    if not disks_ready:
        return _Decision()
    if vmi is None:
        return _Decision(start=_is_start_due(vm, strategy, requests))
    stopped = _is_stop_requested(vmi, requests)
    phase = text_at(vmi, "status", "phase")
    match strategy:
        case RunStrategy.ALWAYS:
            return _Decision(stop=stopped or phase in FINAL_PHASES)
        case RunStrategy.RERUN_ON_FAILURE:
            again = phase == VmiPhase.FAILED and not stopped and not requests
            start: tuple[Manifest, ...] = ({"action": "Start"},) if again else ()
            return _Decision(stop=stopped or phase in FINAL_PHASES, requests=start)
        case _:
            return _Decision(stop=stopped)


def _is_start_due(
    vm: Mapping[str, Any], strategy: str, requests: Sequence[Mapping[str, Any]]
) -> bool:
    if strategy in (RunStrategy.ALWAYS, RunStrategy.ONCE):
        return True
    asked = bool(requests) and requests[0].get("action") == "Start"
    if strategy == RunStrategy.RERUN_ON_FAILURE:
        return asked or text_at(vm, "status", "runStrategy") != strategy
    return strategy == RunStrategy.MANUAL and asked


def _is_stop_requested(vmi: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]) -> bool:
    first = requests[0] if requests else {}
    return first.get("action") == "Stop" and first.get("uid") == uid_of(vmi)


def trim_requests(requests: list[Manifest], vmi: Mapping[str, Any] | None) -> list[Manifest]:
    """Take off the first request once it has come true.

    A stop has when there is no instance of that UID any more, a start when there is a live one.
    """
    if not requests:
        return requests
    first = requests[0]
    if first.get("action") == "Stop":
        done = vmi is None or uid_of(vmi) != first.get("uid")
    else:
        done = vmi is not None and text_at(vmi, "status", "phase") not in FINAL_PHASES
    return requests[1:] if done else requests


def count_failures(
    vm: Mapping[str, Any],
    vmi: Mapping[str, Any] | None,
    now: datetime,
    longest: float,
    chance: Callable[[], float],
) -> Manifest | None:
    """Count the instances in a row that ended without ever having run; None for none."""
    held = map_at(vm, "status", "startFailure")
    if strategy_of(vm) not in _RERUN:
        return None
    if vmi is None:
        return dict(held) or None
    if has_run(vmi):
        return None
    uid = uid_of(vmi)
    if text_at(vmi, "status", "phase") not in FINAL_PHASES or held.get("lastFailedVMIUID") == uid:
        return dict(held) or None
    count = int(held.get("consecutiveFailCount") or 0) + 1
    moment = now + timedelta(seconds=backoff(count, longest, chance()))
    return {
        "consecutiveFailCount": count,
        "lastFailedVMIUID": uid,
        "retryAfterTimestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }


def backoff(count: int, longest: float, chance: float) -> float:
    """Return the seconds to wait after some failed starts in a row.

    `max(10, longest / 30) * n^2`, and up to half of that on top by chance, never more than the
    longest.
    """
    delay = max(10.0, longest / 30.0) * count**2
    return min(delay * (1 + chance / 2), longest)


def _backoff_left(failure: Mapping[str, Any] | None, now: datetime) -> float:
    moment = (failure or {}).get("retryAfterTimestamp")
    if not moment:
        return 0.0
    return max(0.0, (datetime.fromisoformat(moment) - now).total_seconds())


def has_run(vmi: Mapping[str, Any]) -> bool:
    """Return whether an instance has ever been Running."""
    phases = maps_at(vmi, "status", "phaseTransitionTimestamps")
    return any(item.get("phase") == VmiPhase.RUNNING for item in phases)


def build_instance(vm: Manifest) -> Manifest:
    """Build the instance of a machine: its template under its own name, with defaults."""
    template, key = map_at(vm, "spec", "template"), key_of(vm)
    metadata = map_at(template, "metadata")
    spec = dict(map_at(template, "spec"))
    spec["domain"] = build_domain(map_at(spec, "domain"), uid_of(vm))
    return build_object(
        VIRTUAL_MACHINE_INSTANCE,
        key.name,
        key.namespace,
        metadata={
            "labels": dict(map_at(metadata, "labels")),
            "annotations": {
                **text_map_at(metadata, "annotations"),
                **build_notes(vm),
                GENERATION: str(generation_of(vm)),
            },
            "finalizers": [INSTANCE_FINALIZER],
            "ownerReferences": [build_owner_reference(VIRTUAL_MACHINE, vm)],
        },
        spec=spec,
        status=build_first_status(spec["domain"], revision_name(vm)),
    )


def _set(status: Manifest, name: str, value: object) -> None:
    if value:
        status[name] = value
    else:
        status.pop(name, None)
