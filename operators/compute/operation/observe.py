"""Read the objects of an Operation from the cache, and map changes to Operations."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from libs.common.crd import ParseError
from libs.common.kinds import LEASE, POD, Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_of, controller_uid
from libs.common.reading import condition_at, map_at, text_at, text_map_at, time_at
from libs.common.runtime import Cache, Context
from libs.contracts.compute import FINAL_PHASES
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmCondition,
)
from libs.contracts.launchers import LauncherView
from libs.contracts.machine_snapshots import (
    MACHINE_SNAPSHOT,
    MACHINE_SNAPSHOT_CONTENT,
    MachineSnapshotView,
    find_snapshot_refusals,
    find_volume_snapshots,
)
from libs.contracts.migrations import MigrationView
from operators.compute.api.instance import INSTANCE, ROOT, Instance
from operators.compute.api.instancetypes import Instancetype
from operators.compute.api.operation import OPERATION, Operation, OperationType
from operators.compute.api.reasons import ConditionType, Reason
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.instance.watches import BY_RUN, BY_TARGET
from operators.compute.naming import MADE_IN, lease_name, migration_name
from operators.compute.operation.observed import Lock, Observed, Restorable, Target
from operators.compute.operation.resources import holder_of

_ADDRESS_SECONDS: Final = 30.0


def observe_operation(ctx: Context, operation: Operation) -> Observed:
    """Read everything from the cache on which the next turn of an Operation depends."""
    target = _find_target(ctx, operation)
    place = _locate_size(ctx, operation)
    size = None if place is None or not ctx.is_served(place[0]) else ctx.get(*place)
    migration = _find_migration(ctx, operation)
    return Observed(
        target=target,
        before=tuple(_find_before(ctx, operation)),
        lock=_find_lock(ctx, operation, target),
        migration=migration,
        held_up=_find_held_up(ctx, migration),
        size_known=size is not None,
        snapshot=_find_snapshot(ctx, operation),
        unsavable=_find_unsavable(ctx, operation),
    )


async def is_behind(ctx: Context, operation: Operation, observed: Observed) -> bool:
    """Return whether the cache lacks an existing object whose absence would fail the Operation.

    Each kind has its own watch: an Instance that was created just before its Operation may arrive
    after it. Since the failure of an Operation is final, the absence must be certain.
    """
    status, known = operation.observed, operation.spec.target_ref.uid
    if status.outcome is not None or status.phase in FINAL_PHASES:
        return False
    held = "" if observed.target is None else observed.target.uid
    if not held or known not in (None, held):
        key = Key(ctx.key.namespace, operation.spec.target_ref.name)
        live = await ctx.live_get(INSTANCE, key)
        cached = ctx.get(INSTANCE, key)
        if live is not None and (cached is None or uid_of(cached) != uid_of(live)):
            return True
    place = _locate_size(ctx, operation)
    if place is None or observed.size_known or not ctx.is_served(place[0]):
        return False
    return await ctx.live_get(*place) is not None


async def observe_restorable(ctx: Context, operation: Operation) -> Restorable | None:
    """Read the snapshot that a Restore names and its content; None if it does not exist."""
    wanted = operation.spec.restore
    if wanted is None or not ctx.is_served(MACHINE_SNAPSHOT):
        return None
    held = await ctx.live_get(MACHINE_SNAPSHOT, Key(ctx.key.namespace, wanted.snapshot))
    if held is None:
        return None
    view = MachineSnapshotView.parse(held)
    if not view.ready or not view.content:
        return Restorable(ready=False, volume_snapshot="")
    content = await ctx.live_get(MACHINE_SNAPSHOT_CONTENT, Key(ctx.key.namespace, view.content))
    saved = {} if content is None else find_volume_snapshots(content)
    return Restorable(True, saved.get(ROOT, ""))


async def observe_saved_disks(
    ctx: Context, snapshot: MachineSnapshotView | None
) -> frozenset[str] | None:
    """Read which volumes of the machine a finished snapshot contains; None if unknown."""
    if snapshot is None or not snapshot.ready or not snapshot.content:
        return None
    content = await ctx.live_get(MACHINE_SNAPSHOT_CONTENT, Key(ctx.key.namespace, snapshot.content))
    return None if content is None else frozenset(find_volume_snapshots(content))


def count_newer(ctx: Context, operation: Manifest) -> int:
    """Count the finished Operations on the same Instance that ended after this one."""
    mine = (_ended(operation), uid_of(operation))
    return sum(
        _is_finished(other) and (_ended(other), uid_of(other)) > mine
        for other in _siblings(ctx, operation)
    )


def _locate_size(ctx: Context, operation: Operation) -> tuple[Kind, Key] | None:
    """Return kind and key of the size that a Resize names; None for other types."""
    wanted = operation.spec.resize
    if wanted is None:
        return None
    size = wanted.size_ref
    if isinstance(size, Instancetype):
        return size.matcher.locate(ctx.key.namespace)
    return INSTANCE_SIZE, Key("", size)


def _find_target(ctx: Context, operation: Operation) -> Target | None:
    key = Key(ctx.key.namespace, operation.spec.target_ref.name)
    held = ctx.get(INSTANCE, key)
    if held is None:
        return None
    try:
        instance = Instance.parse(held)
    except ParseError:
        return None
    run = None
    if ctx.is_served(VIRTUAL_MACHINE_INSTANCE):
        run = ctx.get(VIRTUAL_MACHINE_INSTANCE, key)
    if run is None:
        return Target(held, instance)
    wait = seconds_for_address(held, ctx.now())
    return Target(held, instance, uid_of(run), is_deleting(run), find_agent(run), wait)


def seconds_for_address(instance: Manifest, now: datetime) -> float:
    """Return the seconds for which an Operation waits for the public address of a new run.

    They begin when the machine runs and its address is not routed to it yet.
    """
    conditions = [
        condition_at(instance, type_)
        for type_ in (ConditionType.ADDRESS_READY, ConditionType.RUNNING)
    ]
    if text_at(conditions[0], "reason") != Reason.ADDRESS_UNBOUND:
        return 0.0
    begun = [time_at(condition, "lastTransitionTime") or now for condition in conditions]
    return max(_ADDRESS_SECONDS - (now - max(begun)).total_seconds(), 0.0)


def find_agent(run: Manifest) -> datetime | None:
    """Return the time since which the guest agent is connected; None if it is not.

    KubeVirt recreates the condition at each connection and sets lastProbeTime. It does not set
    lastTransitionTime.
    """
    condition = condition_at(run, VmCondition.AGENT_CONNECTED)
    if text_at(condition, "status") != "True":
        return None
    return (
        time_at(condition, "lastTransitionTime")
        or time_at(condition, "lastProbeTime")
        or time_at(run, "metadata", "creationTimestamp")
    )


def _find_before(ctx: Context, operation: Operation) -> Iterable[str]:
    """Return the Operations that come first: Operations in progress, and older waiting ones."""
    mine = ctx.primary
    for other in _siblings(ctx, mine):
        if uid_of(other) == ctx.uid or _is_finished(other):
            continue
        if text_at(other, "status", "startedAt") or _age(other) < _age(mine):
            yield key_of(other).name


def _find_lock(ctx: Context, operation: Operation, target: Target | None) -> Lock | None:
    uid = operation.observed.target_uid or (target.uid if target is not None else "")
    held = ctx.get(LEASE, Key(ctx.key.namespace, lease_name(uid))) if uid else None
    if held is None:
        return None
    holder = holder_of(held)
    alive = any(
        uid_of(other) == holder and not _is_finished(other) for other in _siblings(ctx, ctx.primary)
    )
    return Lock(uid_of(held), holder, alive)


def _find_migration(ctx: Context, operation: Operation) -> MigrationView | None:
    if not ctx.is_served(VIRTUAL_MACHINE_INSTANCE_MIGRATION):
        return None
    name = migration_name(operation.metadata.name, operation.metadata.uid)
    held = ctx.get(VIRTUAL_MACHINE_INSTANCE_MIGRATION, Key(ctx.key.namespace, name))
    if held is None or controller_uid(held) != ctx.uid:
        return None
    return MigrationView.parse(held)


def _find_held_up(ctx: Context, migration: MigrationView | None) -> str | None:
    """Return why a migration does not begin.

    KubeVirt reports in Events alone that no node can run the target pod. The pod has the words of
    the scheduler.
    """
    if migration is None or migration.blocked:
        return None if migration is None else migration.blocked
    run = ctx.get(VIRTUAL_MACHINE_INSTANCE, Key(ctx.key.namespace, migration.vmi_name))
    held = [] if run is None else ctx.indexed(POD, BY_RUN, uid_of(run))
    pods = [LauncherView.parse(each) for each in held]
    targets = [pod for pod in pods if pod.migration == migration.uid and pod.live]
    if not targets:
        return None
    why = targets[0].unscheduled
    return f"no node can run it: {why}" if why else ""


def _find_snapshot(ctx: Context, operation: Operation) -> MachineSnapshotView | None:
    name = operation.observed.facts.snapshot
    if name is None or not ctx.is_served(MACHINE_SNAPSHOT):
        return None
    held = ctx.get(MACHINE_SNAPSHOT, Key(ctx.key.namespace, name))
    return None if held is None else MachineSnapshotView.parse(held)


def _find_unsavable(ctx: Context, operation: Operation) -> dict[str, str]:
    if operation.spec.type is not OperationType.SNAPSHOT or not ctx.is_served(VIRTUAL_MACHINE):
        return {}
    machine = ctx.get(VIRTUAL_MACHINE, Key(ctx.key.namespace, operation.spec.target_ref.name))
    return {} if machine is None else find_snapshot_refusals(machine)


def _siblings(ctx: Context, operation: Manifest) -> list[Manifest]:
    """Return the Operations on the same Instance, including this one."""
    name = text_at(operation, "spec", "targetRef", "name")
    return ctx.indexed(OPERATION, BY_TARGET, str(Key(ctx.key.namespace, name)))


def _is_finished(operation: Manifest) -> bool:
    return text_at(operation, "status", "phase") in FINAL_PHASES


def _age(operation: Manifest) -> tuple[str, str]:
    # Times in RFC 3339 and UTC can be sorted as text; the UID breaks ties within a second.
    return text_at(operation, "metadata", "creationTimestamp"), uid_of(operation)


def _ended(operation: Manifest) -> str:
    return text_at(operation, "status", "finishedAt")


def seconds_left(operation: Operation, now: datetime) -> float | None:
    """Return the remaining time to live of a finished Operation; None for no limit."""
    seconds, ended = operation.spec.ttl_seconds_after_finished, operation.observed.finished_at
    if seconds is None or ended is None:
        return None
    return seconds - (now - ended).total_seconds()


# Mapping of changes to the Operations that they affect.


def map_target(instance: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an Instance to its unfinished Operations."""
    for operation in cache.store(OPERATION).indexed(BY_TARGET, str(key_of(instance))):
        if not _is_finished(operation):
            yield key_of(operation)


def map_sibling(operation: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an Operation to the others on the same Instance.

    Unfinished ones may be next. Finished ones may exceed the history limit, but only after this one
    has finished: without this condition, each status of an Operation would wake the whole history.
    """
    key = key_of(operation)
    name = text_at(operation, "spec", "targetRef", "name")
    finished = _is_finished(operation)
    for other in cache.store(OPERATION).indexed(BY_TARGET, str(Key(key.namespace, name))):
        if key_of(other) != key and (finished or not _is_finished(other)):
            yield key_of(other)


def map_launcher_to_operation(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Map the target pod of a migration to the Operation that asked for the migration."""
    view = LauncherView.parse(pod)
    if view.migration:
        for migration in cache.store(VIRTUAL_MACHINE_INSTANCE_MIGRATION).list(view.key.namespace):
            owner = controller_of(migration)
            if uid_of(migration) == view.migration and owner is not None:
                yield Key(view.key.namespace, text_at(owner, "name"))


def map_lease(lease: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a Lease to the Operations that wait for its Instance."""
    holder = holder_of(lease)
    namespace = key_of(lease).namespace
    for operation in cache.store(OPERATION).list(namespace):
        mine = uid_of(operation) == holder
        if mine or not _is_finished(operation):
            yield key_of(operation)


def map_snapshot(snapshot: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a snapshot to the Operation that created it."""
    name = text_map_at(snapshot, "metadata", "annotations").get(MADE_IN, "")
    return (Key(key_of(snapshot).namespace, name),) if name else ()


def shrink_lease(lease: Manifest) -> Manifest:
    """Reduce a Lease to its holder."""
    return {
        "apiVersion": lease.get("apiVersion"),
        "kind": lease.get("kind"),
        "metadata": dict(lease["metadata"]),
        "spec": {"holderIdentity": text_at(map_at(lease, "spec"), "holderIdentity")},
    }
