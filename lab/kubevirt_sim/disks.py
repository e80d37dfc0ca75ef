"""Controllers of data volumes and of the volumes behind them: what is watched, and their writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lab.kubevirt_sim.behavior import SIMULATED_NODE, Import
from lab.kubevirt_sim.disk import (
    DiskInputs,
    build_claim_owners,
    is_wanted,
    plan_disk,
)
from lab.kubevirt_sim.edge import SimulatorContext, TurnResult, patch_status, take_turns
from lab.kubevirt_sim.storage import (
    STORAGE_PROFILE,
    Storage,
    build_profile,
    build_profile_status,
    is_node_local,
)
from lab.kubevirt_sim.volumes import VOLUME_LABEL, build_volume, find_places
from libs.common.kinds import (
    NODE,
    PV,
    PVC,
    STORAGE_CLASS,
    Key,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create, Delete, Patch, Step
from libs.common.reading import holds_at, map_at, text_at, text_map_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.claims import SELECTED_NODE, StorageClassView

_BOUND: Final = "pv.kubernetes.io/bind-completed"


def map_claim(claim: Manifest, _: Cache) -> Iterable[Key]:
    """Name the data volume of a claim: it has the same name."""
    return [key_of(claim)]


def map_claim_to_volume(claim: Manifest, _: Cache) -> Iterable[Key]:
    """Name the volume that was made for a claim."""
    name = text_at(claim, "spec", "volumeName")
    return [Key("", name)] if name else []


def map_storage(_: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the data volumes that have no claim: a change of the storage may give them one."""
    store = cache.store(DATA_VOLUME)
    return [key for key in store if not text_at(store.get(key) or {}, "status", "claimName")]


def build_profile_controller(_: SimulatorContext) -> Controller:
    """Build the controller of StorageProfile: there is one for each StorageClass."""

    async def reconcile(ctx: Context) -> Result:
        async def turn(storage_class: Manifest) -> TurnResult:
            profile = ctx.get(STORAGE_PROFILE, ctx.key)
            if profile is None:
                made = build_profile(storage_class)
                return TurnResult([Create(STORAGE_PROFILE, made, ours=lambda _: True)])
            status = build_profile_status(storage_class, profile, ctx.now())
            changed = status != profile.get("status")
            return TurnResult([patch_status(STORAGE_PROFILE, profile, status)] if changed else [])

        result, _ = await take_turns(ctx, STORAGE_CLASS, turn)
        return result

    return Controller(
        "sim-cdi-profiles", primary=STORAGE_CLASS, reconcile=reconcile, source="reflector"
    ).watches(STORAGE_PROFILE, map_claim, source="reflector")


def build_disk_controller(simulator: SimulatorContext) -> Controller:
    """Build the controller of DataVolume."""

    async def reconcile(ctx: Context) -> Result:
        async def turn(disk: Manifest) -> TurnResult:
            return _turn(ctx, disk, simulator)

        result, _ = await take_turns(ctx, DATA_VOLUME, turn)
        return result

    return (
        Controller("sim-cdi", primary=DATA_VOLUME, reconcile=reconcile, source="reflector")
        .watches(PVC, map_claim)
        .watches(STORAGE_CLASS, map_storage, source="reflector")
        .watches(STORAGE_PROFILE, map_storage, source="reflector")
        .reads(NODE)
        .reads(PV, source="reflector")
    )


def build_volume_controller(simulator: SimulatorContext) -> Controller:
    """Build the controller that deletes the volumes of claims that are gone."""

    async def reconcile(ctx: Context) -> Result | None:
        volume = ctx.primary
        if VOLUME_LABEL not in text_map_at(volume, "metadata", "labels"):
            return None
        reference = map_at(volume, "spec", "claimRef")
        key = Key(text_at(reference, "namespace"), text_at(reference, "name"))
        claim = await ctx.live_get(PVC, key)
        if claim is not None and uid_of(claim) == text_at(reference, "uid"):
            return None
        return Result.from_outcome(await ctx.execute([Delete.of(PV, volume)]))

    return Controller("sim-volumes", primary=PV, reconcile=reconcile, source="reflector").watches(
        PVC, map_claim_to_volume
    )


def _turn(ctx: Context, disk: Manifest, simulator: SimulatorContext) -> TurnResult:
    if is_deleting(disk):
        return TurnResult()
    claim = ctx.get(PVC, ctx.key)
    site = DiskInputs(
        claim=claim,
        storage=_look_at_storage(ctx),
        bind=simulator.timing.bind,
        order=Import.parse(disk, simulator.timing),
        left=simulator.watch(uid_of(disk)),
        now=ctx.now(),
    )
    plan = plan_disk(disk, site)
    if plan.create is not None:
        return TurnResult([Create(PVC, plan.create)])
    if plan.bind and claim is not None:
        return TurnResult(_bind(ctx, disk, claim, simulator))
    if plan.adopt and claim is not None:
        reference = build_owner_reference(DATA_VOLUME, disk)
        owner = {"op": "add", "path": "/metadata/ownerReferences", "value": [reference]}
        return TurnResult([_patch_claim(claim, owner)])
    if plan.collect and claim is not None:
        owners = {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": build_claim_owners(disk, claim),
        }
        return TurnResult(
            [Patch(PVC, ctx.key, uid_of(claim), [owners]), Delete.of(DATA_VOLUME, disk)]
        )
    if plan.status is not None:
        return TurnResult([patch_status(DATA_VOLUME, disk, plan.status)])
    return TurnResult(wait=plan.wait)


def _look_at_storage(ctx: Context) -> Storage:
    classes = {key_of(each).name: each for each in ctx.list(STORAGE_CLASS)}
    return Storage(classes, {key_of(each).name: each for each in ctx.list(STORAGE_PROFILE)})


def _bind(ctx: Context, disk: Manifest, claim: Manifest, simulator: SimulatorContext) -> list[Step]:
    if simulator.simulated:
        return _bind_simulated(ctx, claim)
    chosen = SELECTED_NODE in text_map_at(claim, "metadata", "annotations")
    held = _look_at_storage(ctx).find_class(text_at(claim, "spec", "storageClassName"))
    waits = held is not None and StorageClassView.parse(held).waits_for_consumer
    if chosen or not waits or not is_wanted(disk, claim):
        # The cluster binds it.
        return []
    nodes = [key_of(node).name for node in ctx.list(NODE) if holds_at(node, "Ready")]
    if not nodes:
        return []
    note = {SELECTED_NODE: min(nodes)}
    held = text_map_at(claim, "metadata", "annotations")
    operation = {"op": "add", "path": "/metadata/annotations", "value": {**held, **note}}
    return [_patch_claim(claim, operation)]


def _bind_simulated(ctx: Context, claim: Manifest) -> list[Step]:
    volume = f"sim-{uid_of(claim)}"
    request = map_at(claim, "spec", "resources", "requests").get("storage") or "1Gi"
    steps: list[Step] = []
    if ctx.get(PV, Key("", volume)) is None:
        node = _choose_node(ctx, claim)
        steps.append(Create(PV, build_volume(claim, volume, request, node), ours=lambda _: True))
    if text_at(claim, "spec", "volumeName") != volume:
        held = text_map_at(claim, "metadata", "annotations")
        notes = {**held, _BOUND: "yes"}
        return [
            *steps,
            _patch_claim(
                claim,
                {"op": "add", "path": "/metadata/annotations", "value": notes},
                {"op": "add", "path": "/spec/volumeName", "value": volume},
            ),
        ]
    status = {
        "phase": "Bound",
        "accessModes": list(map_at(claim, "spec").get("accessModes") or ()),
        "capacity": {"storage": request},
    }
    return [*steps, patch_status(PVC, claim, status)]


def _choose_node(ctx: Context, claim: Manifest) -> str:
    """Return the only node that can use the volume of a claim; empty if all nodes can.

    Without a choice of the scheduler, it is where the fewest volumes are: that is where the
    scheduler puts the pod of an importer, which knows nothing of other disks of the machine.
    """
    if not is_node_local(
        _look_at_storage(ctx).find_class(text_at(claim, "spec", "storageClassName"))
    ):
        return ""
    chosen = text_map_at(claim, "metadata", "annotations").get(SELECTED_NODE, "")
    places = [place for volume in ctx.list(PV) for place in find_places(volume)]
    nodes = [
        key_of(node).name
        for node in ctx.list(NODE)
        if SIMULATED_NODE in text_map_at(node, "metadata", "labels")
    ]
    return chosen or min(nodes, key=lambda name: (places.count(name), name), default="")


def _patch_claim(claim: Manifest, *operations: Manifest) -> Patch:
    version = claim["metadata"]["resourceVersion"]
    return Patch(PVC, key_of(claim), uid_of(claim), operations, resource_version=version)
