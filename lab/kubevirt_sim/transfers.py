"""Controller of live migrations: what is watched, and its writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lab.kubevirt_sim.behavior import Copy, is_silent
from lab.kubevirt_sim.edge import (
    SimulatorContext,
    TurnResult,
    patch_status,
    sibling_key,
    take_turns,
)
from lab.kubevirt_sim.instances import BY_INSTANCE, end_pod
from lab.kubevirt_sim.launcher import build_launcher
from lab.kubevirt_sim.migration import (
    FINAL,
    MigrationInputs,
    MigrationPlan,
    is_superfluous,
    is_under_way,
    label_of,
    plan_migration,
)
from libs.common.kinds import NODE, POD, Key, Manifest, is_deleting, key_of, uid_of
from libs.common.plan import Create, Delete, Step
from libs.common.reading import map_at, text_at, text_map_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.kubevirt import (
    CREATED_BY,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.migrations import MIGRATION_FINALIZER

BY_STATE: Final = "state"
"""Index of migrations that have not ended."""
OPEN: Final = "open"
_KIND: Final = VIRTUAL_MACHINE_INSTANCE_MIGRATION


def index_state(migration: Manifest) -> Iterable[str]:
    """Index a migration that has not ended."""
    return [] if text_at(migration, "status", "phase") in FINAL else [OPEN]


def map_instance(vmi: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the migrations of an instance."""
    return map(key_of, cache.store(_KIND).indexed(BY_INSTANCE, str(key_of(vmi))))


def map_pod(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the migrations of the instance that a pod belongs to."""
    uid = text_map_at(pod, "metadata", "labels").get(CREATED_BY, "")
    namespace = key_of(pod).namespace
    for migration in cache.store(_KIND).list(namespace):
        vmi = cache.store(VIRTUAL_MACHINE_INSTANCE).get(
            Key(namespace, text_at(migration, "spec", "vmiName"))
        )
        if vmi is not None and uid_of(vmi) == uid:
            yield key_of(migration)


def map_waiting(migration: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the migrations that may wait for another one to end."""
    for other in cache.store(_KIND).list():
        if not is_under_way(other) and uid_of(other) != uid_of(migration):
            yield key_of(other)


def map_node(_: Manifest, cache: Cache) -> Iterable[Key]:
    """Name all migrations: each may go from or to the node."""
    return list(cache.store(_KIND))


def build_migration_controller(simulator: SimulatorContext) -> Controller:
    """Build the controller of VirtualMachineInstanceMigration."""

    async def reconcile(ctx: Context) -> Result:
        result, _ = await _take(ctx, simulator)
        return result

    async def finalize(ctx: Context) -> Result | None:
        result, done = await _take(ctx, simulator)
        if done and result.error is None:
            simulator.watches.forget(ctx.uid)
            simulator.granted.discard(ctx.uid)
            return None
        return result

    return (
        Controller(
            "sim-virt-controller-migration",
            primary=_KIND,
            reconcile=reconcile,
            finalize=finalize,
            finalizer=MIGRATION_FINALIZER,
            source="reflector",
        )
        .watches(VIRTUAL_MACHINE_INSTANCE, map_instance)
        .watches(POD, map_pod)
        .watches(NODE, map_node)
        .watches(_KIND, map_waiting, indexes={BY_STATE: index_state})
    )


async def _take(ctx: Context, simulator: SimulatorContext) -> tuple[Result, bool]:
    async def turn(migration: Manifest) -> TurnResult:
        inputs = _look(ctx, migration, simulator)
        plan = plan_migration(migration, inputs)
        if plan.create_target:
            simulator.granted.add(uid_of(migration))
        steps = _build_steps(ctx, migration, inputs, plan, simulator)
        if not steps and is_superfluous(migration, ctx.list(_KIND, ctx.key.namespace)):
            steps = [Delete.of(_KIND, migration)]
        return TurnResult(steps, plan.wait, plan.done and not steps and is_deleting(migration))

    return await take_turns(ctx, _KIND, turn)


def _look(ctx: Context, migration: Manifest, simulator: SimulatorContext) -> MigrationInputs:
    vmi = ctx.get(VIRTUAL_MACHINE_INSTANCE, sibling_key(ctx, text_at(migration, "spec", "vmiName")))
    state = map_at(vmi or {}, "status", "migrationState")
    nodes = [ctx.get(NODE, Key("", text_at(state, side))) for side in ("sourceNode", "targetNode")]
    others = [
        other
        for other in ctx.indexed(_KIND, BY_STATE, OPEN)
        if uid_of(other) != uid_of(migration)
        # One that was let begin counts before the cache shows it.
        and (is_under_way(other) or uid_of(other) in simulator.granted)
    ]
    return MigrationInputs(
        vmi=vmi,
        pods=ctx.indexed(POD, BY_INSTANCE, uid_of(vmi)) if vmi is not None else [],
        others=others,
        leaving=sum(
            _leaves(ctx, other, text_at(vmi or {}, "status", "nodeName")) for other in others
        ),
        copy=Copy.parse(migration, vmi or {}, simulator.timing),
        left=simulator.watch(uid_of(migration)),
        pending_limit=simulator.timing.migration_pending,
        silent=any(node is not None and is_silent(node) for node in nodes),
        now=ctx.now(),
    )


def _leaves(ctx: Context, migration: Manifest, node: str) -> bool:
    """Return whether a migration moves an instance away from a node."""
    key = Key(key_of(migration).namespace, text_at(migration, "spec", "vmiName"))
    status = map_at(ctx.get(VIRTUAL_MACHINE_INSTANCE, key) or {}, "status")
    return node in (text_at(status, "nodeName"), text_at(status, "migrationState", "sourceNode"))


def _build_steps(
    ctx: Context,
    migration: Manifest,
    inputs: MigrationInputs,
    plan: MigrationPlan,
    simulator: SimulatorContext,
) -> list[Step]:
    steps: list[Step] = []
    if plan.vmi_status is not None and inputs.vmi is not None:
        labels = [label_of(plan.node)] if plan.node else []
        steps.append(
            patch_status(
                VIRTUAL_MACHINE_INSTANCE, inputs.vmi, plan.vmi_status, *labels, subresource=""
            )
        )
    if plan.create_target and inputs.vmi is not None:
        pod = build_launcher(
            inputs.vmi, image=simulator.image, simulated=simulator.simulated, migration=migration
        )
        steps.append(Create(POD, pod, ours=lambda _: True))
    steps += [end_pod(pod, simulator, ctx, well=well) for pod, well in plan.pods_ended]
    if plan.status is not None:
        steps.append(patch_status(_KIND, migration, plan.status))
    return steps
