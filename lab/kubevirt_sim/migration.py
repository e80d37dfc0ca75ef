"""The controller of live migrations: two launcher pods, and the guest in exactly one. Pure.

    "" -> Pending -> Scheduling -> Scheduled -> PreparingTarget -> TargetReady -> Running
       -> Succeeded | Failed

`status.migrationState` of the instance is written first, the phase follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lab.kubevirt_sim.behavior import Copy
from lab.kubevirt_sim.instance import Watch
from lab.kubevirt_sim.launcher import are_containers_ready, find_launcher, is_finished
from lab.kubevirt_sim.rollout import adopt_changes
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from libs.common.conditions import render_time
from libs.common.kinds import Manifest, is_deleting, uid_of, version_of
from libs.common.plan import escape_pointer
from libs.common.reading import map_at, text_at, text_map_at
from libs.contracts.kubevirt import FINAL_PHASES, NODE_NAME, VmiPhase
from libs.contracts.migrations import MIGRATION_JOB, MigrationPhase

FINAL: Final = (MigrationPhase.SUCCEEDED, MigrationPhase.FAILED)
CLUSTER_LIMIT: Final = 5
"""Migrations at a time in a cluster; KubeVirt's default."""
NODE_LIMIT: Final = 2
"""Migrations at a time away from one node; KubeVirt's default."""
KEPT: Final = 5
"""Finished migrations of an instance that KubeVirt keeps (migration.go, garbage collection)."""


@dataclass(frozen=True, slots=True)
class MigrationInputs:
    """The inputs from which the state of a migration is computed.

    Attributes:
        vmi: Its instance; None when there is none.
        pods: Launcher pods of the instance.
        others: Other migrations that are under way.
        leaving: How many of them leave the node of the instance.
        copy: How the copy goes.
        left: Returns the remaining time of a step.
        pending_limit: Seconds that it waits for a node.
        silent: Whether one of the two nodes has stopped.
        now: Time.
    """

    vmi: Manifest | None
    pods: Sequence[Manifest]
    others: Sequence[Manifest]
    leaving: int
    copy: Copy
    left: Watch
    pending_limit: float
    silent: bool
    now: datetime


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The plan for a migration; each part is one write, in this order.

    Attributes:
        vmi_status: Status of the instance from now on; None to leave it.
        node: Node label of the instance from now on; empty to leave it.
        create_target: Whether the target pod is made.
        pods_ended: Pods whose containers have ended, and whether well.
        status: Status of the migration from now on; None to leave it.
        done: Whether a migration that is being deleted can go.
        wait: Seconds until another look; None for none.
    """

    vmi_status: Manifest | None = None
    node: str = ""
    create_target: bool = False
    pods_ended: tuple[tuple[Manifest, bool], ...] = ()
    status: Manifest | None = None
    done: bool = False
    wait: float | None = None


_NOTHING: Final = MigrationPlan()


def plan_migration(migration: Manifest, inputs: MigrationInputs) -> MigrationPlan:
    """Plan one step of a migration. The deletion of a migration aborts it."""
    phase = text_at(migration, "status", "phase")
    if phase in FINAL:
        return _finish(migration, inputs)
    vmi = inputs.vmi
    if vmi is None or text_at(vmi, "status", "phase") in FINAL_PHASES:
        return _fail(migration, inputs, "VMI is gone or has ended")
    if is_deleting(migration) and phase != MigrationPhase.RUNNING:
        return _fail(migration, inputs, "Migration is aborted", aborted=True)
    if phase == MigrationPhase.UNSET:
        source = find_launcher(vmi, inputs.pods)
        status = _move(migration, MigrationPhase.PENDING, inputs)
        if source is not None:
            status["migrationState"] = {"sourcePod": source["metadata"]["name"]}
        return MigrationPlan(status=status)
    if phase == MigrationPhase.PENDING:
        return _plan_pending(migration, vmi, inputs)
    target = find_target(migration, inputs.pods)
    if target is None or is_finished(target) or is_deleting(target):
        return _fail(migration, inputs, "Target pod is down")
    if phase == MigrationPhase.SCHEDULING:
        return _plan_scheduling(migration, inputs, target)
    if phase == MigrationPhase.SCHEDULED:
        return _hand_over(migration, vmi, inputs, target)
    if phase == MigrationPhase.PREPARING_TARGET:
        return _prepare(migration, vmi, inputs)
    if phase == MigrationPhase.TARGET_READY:
        return _start(migration, vmi, inputs)
    return _plan_copy(migration, vmi, inputs, target)


def find_target(migration: Mapping[str, Any], pods: Sequence[Manifest]) -> Manifest | None:
    """Return the pod that was made for a migration."""
    uid = uid_of(migration)
    for pod in pods:
        if text_map_at(pod, "metadata", "labels").get(MIGRATION_JOB) == uid:
            return pod
    return None


def is_superfluous(migration: Mapping[str, Any], all_migrations: Sequence[Manifest]) -> bool:
    """Return whether a finished migration has enough younger ones of its instance to be deleted."""
    if text_at(migration, "status", "phase") not in FINAL or is_deleting(migration):
        return False
    younger = [
        other
        for other in all_migrations
        if text_at(other, "spec", "vmiName") == text_at(migration, "spec", "vmiName")
        and text_at(other, "status", "phase") in FINAL
        and not is_deleting(other)
        and _age_of(other) > _age_of(migration)
    ]
    return len(younger) >= KEPT


def _age_of(migration: Mapping[str, Any]) -> tuple[str, int]:
    # Creation times are whole seconds.
    return text_at(migration, "metadata", "creationTimestamp"), version_of(migration)


def is_under_way(migration: Mapping[str, Any]) -> bool:
    """Return whether a migration counts against the limits: it has a pod and has not ended."""
    phase = text_at(migration, "status", "phase")
    return phase not in (*FINAL, MigrationPhase.UNSET, MigrationPhase.PENDING)


def _plan_pending(migration: Manifest, vmi: Manifest, inputs: MigrationInputs) -> MigrationPlan:
    if find_target(migration, inputs.pods) is not None:
        return MigrationPlan(status=_move(migration, MigrationPhase.SCHEDULING, inputs))
    if text_at(vmi, "status", "phase") != VmiPhase.RUNNING:
        return _NOTHING
    name = text_at(migration, "spec", "vmiName")
    same = [other for other in inputs.others if text_at(other, "spec", "vmiName") == name]
    if same or len(inputs.others) >= CLUSTER_LIMIT or inputs.leaving >= NODE_LIMIT:
        # Its turn comes with the end of another one, which is an event.
        return _NOTHING
    return MigrationPlan(create_target=True)


def _plan_scheduling(
    migration: Manifest, inputs: MigrationInputs, target: Manifest
) -> MigrationPlan:
    if are_containers_ready(target):
        return MigrationPlan(status=_move(migration, MigrationPhase.SCHEDULED, inputs))
    left = inputs.left("pending", inputs.pending_limit)
    unplaced = not text_at(target, "spec", "nodeName")
    if unplaced and not left:
        if not text_at(target, "status", "phase"):
            return _NOTHING
        placed = [
            item
            for item in (target.get("status") or {}).get("conditions") or ()
            if item.get("type") == "PodScheduled" and item.get("status") == "False"
        ]
        if placed:
            # KubeVirt deletes the pod, and fails the migration once the pod is gone.
            return MigrationPlan(pods_ended=((target, False),))
    return MigrationPlan(wait=left or None)


def _hand_over(
    migration: Manifest, vmi: Manifest, inputs: MigrationInputs, target: Manifest
) -> MigrationPlan:
    source = find_launcher(vmi, inputs.pods)
    held = map_at(vmi, "status", "migrationState")
    if text_at(held, "migrationUid") == uid_of(migration):
        return MigrationPlan(status=_move(migration, MigrationPhase.PREPARING_TARGET, inputs))
    state = {
        "migrationUid": uid_of(migration),
        "sourceNode": text_at(vmi, "status", "nodeName"),
        "sourcePod": source["metadata"]["name"] if source is not None else "",
        "targetNode": text_at(target, "spec", "nodeName"),
        "targetPod": target["metadata"]["name"],
        "mode": "PreCopy",
        "migrationConfiguration": {"parallelMigrationsPerCluster": CLUSTER_LIMIT},
    }
    active = {
        **text_map_at(vmi, "status", "activePods"),
        uid_of(target): text_at(target, "spec", "nodeName"),
    }
    return MigrationPlan(
        vmi_status={**(vmi.get("status") or {}), "migrationState": state, "activePods": active}
    )


def _prepare(migration: Manifest, vmi: Manifest, inputs: MigrationInputs) -> MigrationPlan:
    if inputs.silent:
        return _NOTHING
    state = map_at(vmi, "status", "migrationState")
    if state.get("targetNodeDomainDetected"):
        return MigrationPlan(status=_move(migration, MigrationPhase.TARGET_READY, inputs))
    target = find_target(migration, inputs.pods)
    address = text_at(target or {}, "status", "podIP")
    return _change_state(
        vmi, targetNodeDomainDetected=True, targetNodeAddress=address or "127.0.0.1"
    )


def _start(migration: Manifest, vmi: Manifest, inputs: MigrationInputs) -> MigrationPlan:
    if inputs.silent:
        return _NOTHING
    if map_at(vmi, "status", "migrationState").get("startTimestamp"):
        return MigrationPlan(status=_move(migration, MigrationPhase.RUNNING, inputs))
    return _change_state(vmi, startTimestamp=render_time(inputs.now))


def _plan_copy(
    migration: Manifest, vmi: Manifest, inputs: MigrationInputs, target: Manifest
) -> MigrationPlan:
    state = map_at(vmi, "status", "migrationState")
    if state.get("completed") is True:
        phase = MigrationPhase.FAILED if state.get("failed") else MigrationPhase.SUCCEEDED
        aborted = bool(state.get("abortRequested"))
        return MigrationPlan(status=_move(migration, phase, inputs, aborted=aborted))
    if is_deleting(migration):
        if not state.get("abortRequested"):
            return _change_state(vmi, abortRequested=True, abortStatus="Aborting")
        return _fail(migration, inputs, "Live migration aborted", aborted=True)
    if inputs.silent or inputs.copy.outcome == "stall":
        return _NOTHING
    left = inputs.left("copy", inputs.copy.seconds)
    if left:
        return MigrationPlan(wait=left)
    if inputs.copy.outcome == "fail":
        return _fail(migration, inputs, "Live migration failed: injected")
    return _arrive(vmi, inputs, target)


def _arrive(vmi: Manifest, inputs: MigrationInputs, target: Manifest) -> MigrationPlan:
    """Move the guest: node, label and end of the migration in one write."""
    status = dict(vmi.get("status") or {})
    now, node = render_time(inputs.now), text_at(target, "spec", "nodeName")
    status["migrationState"] = {
        **map_at(status, "migrationState"),
        "completed": True,
        "endTimestamp": now,
        "targetNodeDomainReadyTimestamp": now,
    }
    status["nodeName"] = node
    status.pop("evacuationNodeName", None)
    adopt_changes(vmi, status)
    return MigrationPlan(vmi_status=status, node=node)


def _finish(migration: Manifest, inputs: MigrationInputs) -> MigrationPlan:
    """Copy the state of the instance, then end the pod that the guest is not in.

    KubeVirt copies the state only here, so a migration that has just failed gives no reason yet.
    """
    vmi, state = inputs.vmi, map_at(migration, "status", "migrationState")
    found = map_at(vmi or {}, "status", "migrationState")
    if text_at(found, "migrationUid") == uid_of(migration) and found != state:
        return MigrationPlan(status={**migration["status"], "migrationState": dict(found)})
    well = text_at(migration, "status", "phase") == MigrationPhase.SUCCEEDED
    if well:
        name = text_at(state, "sourcePod")
        left = [pod for pod in inputs.pods if pod["metadata"]["name"] == name]
    else:
        target = find_target(migration, inputs.pods)
        left = [target] if target is not None and not _holds_guest(vmi, target) else []
    ended = tuple((pod, well) for pod in left if not is_finished(pod) and not is_deleting(pod))
    return MigrationPlan(pods_ended=ended, done=not ended)


def _holds_guest(vmi: Manifest | None, target: Manifest) -> bool:
    """Return whether the guest has come to the target of a migration all the same."""
    state = map_at(vmi or {}, "status", "migrationState")
    arrived = state.get("completed") is True and state.get("failed") is not True
    return arrived and text_at(state, "targetPod") == target["metadata"]["name"]


def _fail(
    migration: Manifest, inputs: MigrationInputs, reason: str, *, aborted: bool = False
) -> MigrationPlan:
    """Plan the failure of a migration; the status of the instance is written first.

    Before the instance knows of the migration, nothing but an Event gives the reason.
    """
    vmi = inputs.vmi
    held = map_at(vmi or {}, "status", "migrationState")
    ours = text_at(held, "migrationUid") == uid_of(migration)
    if vmi is not None and ours and held.get("completed") is not True:
        end: Manifest = {"completed": True, "failed": True, "failureReason": reason}
        end["endTimestamp"] = render_time(inputs.now)
        if not held.get("startTimestamp"):
            end["startTimestamp"] = end["endTimestamp"]
        if aborted:
            end |= {"abortRequested": True, "abortStatus": "Succeeded"}
        return _change_state(vmi, **end)
    return MigrationPlan(status=_move(migration, MigrationPhase.FAILED, inputs, aborted=aborted))


def _change_state(vmi: Manifest, **fields: object) -> MigrationPlan:
    status = vmi.get("status") or {}
    state = {**map_at(status, "migrationState"), **fields}
    return MigrationPlan(vmi_status={**status, "migrationState": state})


def _move(
    migration: Manifest,
    phase: MigrationPhase,
    inputs: MigrationInputs,
    *,
    aborted: bool = False,
) -> Manifest:
    status = dict(migration.get("status") or {})
    times = [
        *(status.get("phaseTransitionTimestamps") or ()),
        {"phase": str(phase), "phaseTransitionTimestamp": render_time(inputs.now)},
    ]
    if aborted:
        held = status.get("conditions") or ()
        conditions = [build_condition("migrationAbortRequested", True)]
        status["conditions"] = merge_conditions(held, conditions, inputs.now)
    return {**status, "phase": str(phase), "phaseTransitionTimestamps": times}


def label_of(node: str) -> Manifest:
    """Build the JSON patch operation that names the node in the label of an instance."""
    path = f"/metadata/labels/{escape_pointer(NODE_NAME)}"
    return {"op": "add", "path": path, "value": node}
