"""Controller of machines: what is watched for the VM controller, and its writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lab.kubevirt_sim.edge import (
    SimulatorContext,
    TurnResult,
    patch_status,
    sibling_key,
    take_turns,
)
from lab.kubevirt_sim.instancetypes import sync
from lab.kubevirt_sim.launcher import claim_of
from lab.kubevirt_sim.machine import plan_failure, plan_machine, strategy_of
from lab.kubevirt_sim.revisions import BY_MACHINE, index_revision
from lab.kubevirt_sim.snapshot_volumes import (
    VOLUME_SNAPSHOT_CLASS,
    evaluate_volumes,
    read_catalog,
)
from libs.common.kinds import (
    CONTROLLER_REVISION,
    PVC,
    STORAGE_CLASS,
    Key,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create, Delete, Step
from libs.common.reading import maps_at, text_at, text_map_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.instancetypes import MATCHED_KINDS, Matcher
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VM_CONTROLLER_FINALIZER,
    RunStrategy,
)

BY_CLAIM: Final = "claim"
"""Index of machines and instances by the claims that they name."""
_USABLE: Final = ("Succeeded", "WaitForFirstConsumer", "PendingPopulation")
_LAZY: Final = "kubevirt.io/immediate-data-volume-creation"
_RETRY_SECONDS: Final = 1.0
"""Seconds after which KubeVirt looks again for what a machine names; the real one backs off."""


def index_machine(vm: Manifest) -> Iterable[str]:
    """Index a machine by its claims."""
    namespace = key_of(vm).namespace
    for volume in maps_at(vm, "spec", "template", "spec", "volumes"):
        if claim := claim_of(volume):
            yield f"{namespace}/{claim}"


def map_disk(disk: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the machines that name a data volume, or the claim of that name."""
    return map(key_of, cache.store(VIRTUAL_MACHINE).indexed(BY_CLAIM, str(key_of(disk))))


def build_machine_controller(simulator: SimulatorContext) -> Controller:
    """Build the controller of VirtualMachine."""

    async def reconcile(ctx: Context) -> Result:
        async def turn(vm: Manifest) -> TurnResult:
            return _turn(ctx, vm, simulator)

        result, _ = await take_turns(ctx, VIRTUAL_MACHINE, turn)
        return result

    async def finalize(ctx: Context) -> Result | None:
        async def turn(vm: Manifest) -> TurnResult:
            vmi = ctx.get(VIRTUAL_MACHINE_INSTANCE, ctx.key)
            if vmi is None:
                return TurnResult(done=True)
            status = {**(vm.get("status") or {}), "printableStatus": "Terminating"}
            if status != vm.get("status"):
                return TurnResult([patch_status(VIRTUAL_MACHINE, vm, status)])
            return TurnResult(
                [] if is_deleting(vmi) else [Delete.of(VIRTUAL_MACHINE_INSTANCE, vmi)]
            )

        result, done = await take_turns(ctx, VIRTUAL_MACHINE, turn)
        return None if done and result.error is None else result

    controller = (
        Controller(
            "sim-virt-controller-vm",
            primary=VIRTUAL_MACHINE,
            reconcile=reconcile,
            finalize=finalize,
            finalizer=VM_CONTROLLER_FINALIZER,
            source="reflector",
        )
        .owns(VIRTUAL_MACHINE_INSTANCE, source="reflector")
        .reads(VIRTUAL_MACHINE, indexes={BY_CLAIM: index_machine})
        .watches(DATA_VOLUME, map_disk, source="reflector")
        .watches(PVC, map_disk, source="reflector")
        .reads(STORAGE_CLASS, source="reflector")
        .reads(VOLUME_SNAPSHOT_CLASS, optional=True, source="reflector")
        .reads(CONTROLLER_REVISION, source="reflector", indexes={BY_MACHINE: index_revision})
    )
    for kind in MATCHED_KINDS.values():
        controller.reads(kind, source="reflector")
    return controller


def _turn(ctx: Context, vm: Manifest, simulator: SimulatorContext) -> TurnResult:
    missing = _find_missing_disk(ctx, vm)
    if missing is not None:
        return TurnResult([missing])
    vmi = ctx.get(VIRTUAL_MACHINE_INSTANCE, ctx.key)
    names = list(dict.fromkeys(index_machine(vm)))
    held = [ctx.get(DATA_VOLUME, Key(*name.split("/", 1))) for name in names]
    disks = [disk for disk in held if disk is not None]
    revisions = ctx.indexed(CONTROLLER_REVISION, BY_MACHINE, uid_of(vm))
    named = _sync_names(ctx, vm, vmi, disks, revisions)
    if named is not None:
        return named
    plan = plan_machine(
        vm,
        vmi,
        disks,
        revisions,
        disks_ready=_are_own_disks_ready(ctx, vm),
        now=ctx.now(),
        rollout=simulator.rollout,
        longest_backoff=simulator.timing.crash_backoff,
        chance=simulator.chance,
    )
    volumes = maps_at(vm, "spec", "template", "spec", "volumes")
    status = {
        **plan.status,
        "volumeSnapshotStatuses": evaluate_volumes(volumes, ctx.key.namespace, read_catalog(ctx)),
    }
    if not volumes:
        del status["volumeSnapshotStatuses"]
    steps: list[Step] = []
    if status != vm.get("status"):
        steps.append(patch_status(VIRTUAL_MACHINE, vm, status))
    # The status goes first: it counts the failure of the instance that is deleted next.
    return TurnResult([*steps, *plan.steps], plan.wait)


def _sync_names(
    ctx: Context,
    vm: Manifest,
    vmi: Manifest | None,
    disks: Sequence[Manifest],
    revisions: Sequence[Manifest],
) -> TurnResult | None:
    """Keep the instancetype and the preference of a machine; None if nothing is left to do.

    KubeVirt does this before anything else, so a machine that names what does not exist is not even
    stopped.
    """

    def find(matcher: Matcher) -> Manifest | None:
        kind, key = matcher.locate(ctx.key.namespace)
        return ctx.get(kind, key)

    synced = sync(vm, find, revisions)
    if synced.status is not None:
        status = {**(vm.get("status") or {}), **synced.status}
        return TurnResult([*synced.revisions, patch_status(VIRTUAL_MACHINE, vm, status)])
    if synced.failure is None:
        return None
    status = plan_failure(vm, vmi, disks, synced.failure, ctx.now())
    steps = [patch_status(VIRTUAL_MACHINE, vm, status)] if status != vm.get("status") else []
    return TurnResult(steps, _RETRY_SECONDS)


def _find_missing_disk(ctx: Context, vm: Manifest) -> Step | None:
    lazy = text_map_at(vm, "metadata", "annotations").get(_LAZY) == "false"
    if lazy and strategy_of(vm) == RunStrategy.HALTED:
        return None
    for template in maps_at(vm, "spec", "dataVolumeTemplates"):
        name = text_at(template, "metadata", "name")
        if ctx.get(DATA_VOLUME, sibling_key(ctx, name)) is None:
            return Create(DATA_VOLUME, _build_disk(vm, dict(template)))
    return None


def _build_disk(vm: Manifest, template: Manifest) -> Manifest:
    metadata = dict(template.get("metadata") or {})
    metadata["namespace"] = key_of(vm).namespace
    metadata["ownerReferences"] = [build_owner_reference(VIRTUAL_MACHINE, vm)]
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        "kubevirt.io/created-by": uid_of(vm),
    }
    return {
        "apiVersion": DATA_VOLUME.api_version,
        "kind": DATA_VOLUME.kind,
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }


def _are_own_disks_ready(ctx: Context, vm: Manifest) -> bool:
    for template in maps_at(vm, "spec", "dataVolumeTemplates"):
        disk = ctx.get(DATA_VOLUME, sibling_key(ctx, text_at(template, "metadata", "name")))
        if disk is None or text_at(disk, "status", "phase") not in _USABLE:
            return False
    return True
