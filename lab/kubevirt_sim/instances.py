"""Controller of instances: what is watched for virt-controller and virt-handler, and its writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from lab.kubevirt_sim.behavior import Copy, Guest, Import
from lab.kubevirt_sim.edge import SimulatorContext, TurnResult, patch_status, take_turns
from lab.kubevirt_sim.evacuation import build_evacuation
from lab.kubevirt_sim.instance import InstanceInputs, InstancePlan, plan_end, plan_instance
from lab.kubevirt_sim.kubelet import build_ended_status
from lab.kubevirt_sim.launcher import UNPAUSED, build_launcher, claim_of
from lab.kubevirt_sim.machine import INSTANCE_FINALIZER
from lab.kubevirt_sim.machines import BY_CLAIM
from lab.kubevirt_sim.migration import label_of
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from libs.common.conditions import find_condition
from libs.common.kinds import NODE, POD, PVC, Key, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.plan import Create, Delete, Patch, Step, escape_pointer
from libs.common.reading import holds_at, map_at, maps_at, text_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.claims import SELECTED_NODE
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)

BY_NODE: Final = "node"
"""Index of instances and pods by node."""
BY_INSTANCE: Final = "instance"
"""Index of launcher pods by the UID of the instance that controls them, and of migrations by the
name of their instance."""


def index_claims(vmi: Manifest) -> Iterable[str]:
    """Index an instance by its claims."""
    namespace = key_of(vmi).namespace
    volumes = maps_at(vmi, "spec", "volumes")
    return [f"{namespace}/{claim}" for volume in volumes if (claim := claim_of(volume))]


def index_node(vmi: Manifest) -> Iterable[str]:
    """Index an instance by its node."""
    node = text_at(vmi, "status", "nodeName")
    return [node] if node else []


def index_owner(pod: Manifest) -> Iterable[str]:
    """Index a pod by what controls it."""
    uid = controller_uid(pod)
    return [uid] if uid else []


def index_migration(migration: Manifest) -> Iterable[str]:
    """Index a migration by its instance."""
    return [f"{key_of(migration).namespace}/{text_at(migration, 'spec', 'vmiName')}"]


def map_claim(manifest: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the instances that name a claim or the data volume of that name."""
    store = cache.store(VIRTUAL_MACHINE_INSTANCE)
    return map(key_of, store.indexed(BY_CLAIM, str(key_of(manifest))))


def map_node(node: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the instances on a node."""
    store = cache.store(VIRTUAL_MACHINE_INSTANCE)
    return map(key_of, store.indexed(BY_NODE, key_of(node).name))


def map_migration(migration: Manifest, _: Cache) -> Iterable[Key]:
    """Name the instance of a migration."""
    name = text_at(migration, "spec", "vmiName")
    return [Key(key_of(migration).namespace, name)] if name else []


def build_instance_controller(simulator: SimulatorContext) -> Controller:
    """Build the controller of VirtualMachineInstance."""

    async def reconcile(ctx: Context) -> Result:
        result, _ = await _take(ctx, simulator, plan_instance)
        return result

    async def finalize(ctx: Context) -> Result | None:
        result, done = await _take(ctx, simulator, plan_end)
        if done and result.error is None:
            simulator.watches.forget(ctx.uid)
            return None
        return result

    return (
        Controller(
            "sim-virt-controller-vmi",
            primary=VIRTUAL_MACHINE_INSTANCE,
            reconcile=reconcile,
            finalize=finalize,
            finalizer=INSTANCE_FINALIZER,
            source="reflector",
        )
        .owns(POD, source="reflector", indexes={BY_INSTANCE: index_owner})
        .reads(
            VIRTUAL_MACHINE_INSTANCE,
            indexes={BY_CLAIM: index_claims, BY_NODE: index_node},
        )
        .watches(DATA_VOLUME, map_claim)
        .watches(PVC, map_claim, source="reflector")
        .watches(NODE, map_node, source="reflector")
        .watches(
            VIRTUAL_MACHINE_INSTANCE_MIGRATION,
            map_migration,
            source="reflector",
            indexes={BY_INSTANCE: index_migration},
        )
    )


type _Planner = Callable[[Manifest, InstanceInputs], InstancePlan]


async def _take(
    ctx: Context, simulator: SimulatorContext, planner: _Planner
) -> tuple[Result, bool]:
    async def turn(vmi: Manifest) -> TurnResult:
        pods = ctx.indexed(POD, BY_INSTANCE, uid_of(vmi))
        gates = _plan_gates(ctx, vmi, pods, simulator)
        if gates is not None:
            return TurnResult([gates])
        inputs, lost_in = _look(ctx, vmi, pods, simulator)
        plan = planner(vmi, inputs)
        steps = _build_steps(ctx, vmi, plan, simulator)
        if not steps and not plan.gone and not is_deleting(vmi):
            evacuation = build_evacuation(vmi, _migrations_of(ctx, vmi))
            steps = [evacuation] if evacuation is not None else []
        waits = [wait for wait in (plan.wait, lost_in) if wait]
        return TurnResult(steps, min(waits) if waits else None, plan.gone)

    return await take_turns(ctx, VIRTUAL_MACHINE_INSTANCE, turn)


def _look(
    ctx: Context, vmi: Manifest, pods: Sequence[Manifest], simulator: SimulatorContext
) -> tuple[InstanceInputs, float | None]:
    names = [claim.split("/", 1)[1] for claim in index_claims(vmi)]
    namespace = ctx.key.namespace
    disks = {name: disk for name in names if (disk := ctx.get(DATA_VOLUME, Key(namespace, name)))}
    claims = {name: claim for name in names if (claim := ctx.get(PVC, Key(namespace, name)))}
    node = text_at(vmi, "status", "nodeName")
    left = simulator.silence_left(ctx.get(NODE, Key("", node)) if node else None)
    grace = map_at(vmi, "spec").get("terminationGracePeriodSeconds")
    inputs = InstanceInputs(
        pods=pods,
        disks=disks,
        claims=claims,
        guest=Guest.parse(vmi, simulator.timing),
        boots=_can_boot(names, disks, simulator),
        left=simulator.watch(uid_of(vmi)),
        silent=left is not None,
        lost=left == 0,
        now=ctx.now(),
        grace=float(grace) if isinstance(grace, int) else simulator.timing.grace,
    )
    return inputs, left


def _can_boot(
    names: Sequence[str], disks: Mapping[str, Manifest], simulator: SimulatorContext
) -> bool:
    """Return whether the first disk of an instance, if it boots from, can be booted from."""
    first = disks.get(names[0]) if names else None
    return first is None or Import.parse(first, simulator.timing).boots


def _build_steps(
    ctx: Context, vmi: Manifest, plan: InstancePlan, simulator: SimulatorContext
) -> list[Step]:
    steps: list[Step] = []
    if plan.create_launcher:
        pod = build_launcher(vmi, image=simulator.image, simulated=simulator.simulated)
        steps.append(Create(POD, pod))
    for claim in plan.select_claims:
        node = _find_consumer_node(ctx, simulator)
        if node:
            steps.append(_select_node(claim, node))
    if plan.status is not None:
        labels = [label_of(plan.node)] if plan.node else []
        if plan.node and "labels" not in vmi["metadata"]:
            labels = [{"op": "add", "path": "/metadata/labels", "value": {}}, *labels]
        steps.append(
            patch_status(VIRTUAL_MACHINE_INSTANCE, vmi, plan.status, *labels, subresource="")
        )
    steps += [end_pod(pod, simulator, ctx, well=well) for pod, well in plan.pods_ended]
    return [*steps, *(Delete.of(POD, pod) for pod in plan.delete_pods)]


def end_pod(pod: Manifest, simulator: SimulatorContext, ctx: Context, *, well: bool) -> Step:
    """Build the step that ends the containers of a launcher.

    A pod on a real kubelet cannot be stopped in another way, and a pod without a node has nothing
    to stop: they are deleted.
    """
    if not simulator.simulated or not text_at(pod, "spec", "nodeName"):
        return Delete.of(POD, pod)
    return patch_status(POD, pod, build_ended_status(pod, ctx.now(), well=well))


def _select_node(claim: Manifest, node: str) -> Step:
    annotations = map_at(claim, "metadata", "annotations")
    operations: list[Manifest] = [
        *([] if annotations else [{"op": "add", "path": "/metadata/annotations", "value": {}}]),
        {
            "op": "add",
            "path": f"/metadata/annotations/{escape_pointer(SELECTED_NODE)}",
            "value": node,
        },
    ]
    version = claim["metadata"]["resourceVersion"]
    return Patch(PVC, key_of(claim), uid_of(claim), operations, resource_version=version)


def _find_consumer_node(ctx: Context, simulator: SimulatorContext) -> str:
    """Return a node for a claim that waits for its first consumer."""
    ready = [node for node in ctx.list(NODE) if holds_at(node, "Ready")]
    return min((key_of(node).name for node in ready), default="sim" if simulator.simulated else "")


def _migrations_of(ctx: Context, vmi: Manifest) -> list[Manifest]:
    return ctx.indexed(VIRTUAL_MACHINE_INSTANCE_MIGRATION, BY_INSTANCE, str(key_of(vmi)))


def _plan_gates(
    ctx: Context, vmi: Manifest, pods: Sequence[Manifest], simulator: SimulatorContext
) -> Step | None:
    """Keep the readiness gate of each pod: it says whether the guest is not paused."""
    state = map_at(vmi, "status", "migrationState")
    moving = bool(state.get("startTimestamp")) and state.get("completed") is not True
    window = Copy.parse(_migration_of(ctx, vmi, state), vmi, simulator.timing).window
    paused = holds_at(vmi, "Paused")
    for pod in pods:
        if text_at(pod, "status", "phase") != "Running" or is_deleting(pod):
            # Before that the kubelet writes the status, and two concurrent writers would conflict.
            continue
        target = pod["metadata"]["name"] == text_at(state, "targetPod")
        closed = moving and (window == "none-ready" or (window == "source-ready" and target))
        gate = build_condition(UNPAUSED, not paused and not closed)
        held = find_condition(pod, UNPAUSED) or {}
        if held.get("status") != gate["status"]:
            return _open_gate(ctx, pod, gate)
    return None


def _open_gate(ctx: Context, pod: Manifest, gate: Manifest) -> Step:
    status = pod.get("status") or {}
    held = status.get("conditions") or []
    others = [item for item in held if item.get("type") != UNPAUSED]
    merged = [*others, *merge_conditions(held, [gate], ctx.now())]
    return patch_status(POD, pod, {**status, "conditions": merged})


def _migration_of(ctx: Context, vmi: Manifest, state: object) -> Manifest:
    uid = text_at(state, "migrationUid") if isinstance(state, dict) else ""
    return next((each for each in _migrations_of(ctx, vmi) if uid_of(each) == uid), {})
