"""Read the objects of an Instance from the cache, and map changes to Instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from libs.common.crd import ParseError
from libs.common.kinds import (
    NODE,
    POD,
    PVC,
    Key,
    Kind,
    Manifest,
    describe,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import controller_of
from libs.common.quantity import parse_quantity
from libs.common.reading import condition_at, maps_at, text_at, text_map_at
from libs.common.runtime import Cache, Context, IndexFunction
from libs.common.runtime.controller import Mapper
from libs.contracts.cdi import DATA_VOLUME, DataVolumePhase, DataVolumeView
from libs.contracts.compute import INSTANCE_UID_LABEL, OperationView
from libs.contracts.instancetypes import InstancetypeView, Matcher
from libs.contracts.ip_claims import IP_CLAIM, IpClaimView
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiPhase,
)
from libs.contracts.launchers import LauncherView
from libs.contracts.network import FIREWALL, NETWORK, FirewallView, NetworkView
from libs.contracts.volumes import DEMO_VOLUME, DemoVolumeView
from operators.compute.api.addresses import PublicIPMode
from operators.compute.api.directives import DirectiveKind
from operators.compute.api.instance import INSTANCE, Instance, OnGuestShutdown
from operators.compute.api.operation import OPERATION
from operators.compute.api.reasons import Reason
from operators.compute.api.size import INSTANCE_SIZE, InstanceSize
from operators.compute.instance.observed import Capacity, DiskView, Machine, Observed, Run, Volumes
from operators.compute.marks import is_ours
from operators.compute.naming import private_claim_name, public_claim_name, root_disk_name

BY_UID: Final = "instance-uid"
"""Index of disks by the UID of the Instance that they carry."""
BY_RUN: Final = "run"
"""Index of launcher pods by the UID of their run."""
BY_TARGET: Final = "target"
"""Index of Operations by the Instance that they are for."""
BY_USE: Final = "use"
"""Index of Instances by what their specs name, as `Kind/name`."""

NEEDED: Final = (VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE, DATA_VOLUME)
"""Kinds without which nothing can be done."""
_AT_WORK: Final = frozenset({"Running", "RollingBack"})


def observe(ctx: Context, instance: Instance) -> Observed:
    """Look at everything that the plan and the status of an Instance depend on."""
    missing = tuple(kind.resource for kind in NEEDED if not ctx.is_served(kind))
    if missing:
        return Observed(missing_apis=missing)
    spec = _parse_size(_get_size(ctx, instance))
    held = ctx.get(VIRTUAL_MACHINE, ctx.key)
    ours = held is not None and is_ours(held, ctx.uid)
    claim = _find_claim(ctx, instance)
    run = _find_run(ctx)
    return Observed(
        size=None if spec is None else Capacity(spec.spec.cpus, parse_quantity(spec.spec.memory)),
        disk_size="" if spec is None else spec.spec.disk,
        instancetype=_find_instancetype(ctx, instance),
        preference_exists=_has_preference(ctx, instance),
        network=_find_network(ctx, instance),
        firewall=_find_firewall(ctx, instance),
        claim=None if claim is None else IpClaimView.parse(claim),
        claim_manifest=_find_own_claim(ctx, claim),
        volumes=_find_volumes(ctx, instance),
        machine=Machine.parse(held) if held is not None and ours else None,
        run=run,
        pod_address=_find_pod_address(ctx, run),
        shut_down=_is_shut_down(ctx, instance, run),
        private_claim=_find_private_claim(ctx),
        disks=_find_disks(ctx, instance),
        foreign=tuple(_find_foreign(ctx, instance, held)),
        silent_node=_find_silent_node(ctx, run),
        operation=_find_operation(ctx),
    )


def _get_size(ctx: Context, instance: Instance) -> Manifest | None:
    name = instance.spec.size
    return ctx.get(INSTANCE_SIZE, Key("", name)) if name else None


def _find_instancetype(ctx: Context, instance: Instance) -> InstancetypeView | None:
    wanted = instance.spec.instancetype
    held = None if wanted is None else _get_matched(ctx, wanted.matcher)
    return None if held is None else InstancetypeView.parse(held)


def _has_preference(ctx: Context, instance: Instance) -> bool:
    wanted = instance.spec.preference
    return wanted is not None and _get_matched(ctx, wanted.matcher) is not None


def _get_matched(ctx: Context, matcher: Matcher) -> Manifest | None:
    """Return an instancetype or a preference; None if it, or its kind, does not exist."""
    kind, key = matcher.locate(ctx.key.namespace)
    return ctx.get(kind, key) if ctx.is_served(kind) else None


def _parse_size(manifest: Manifest | None) -> InstanceSize | None:
    try:
        return None if manifest is None else InstanceSize.parse(manifest)
    except ParseError:
        return None


def _find_run(ctx: Context) -> Run | None:
    held = ctx.get(VIRTUAL_MACHINE_INSTANCE, ctx.key)
    if held is None or _instance_uid(held) != ctx.uid:
        return None
    return Run.parse(held)


def _find_pod_address(ctx: Context, run: Run | None) -> str:
    """Find the address of the pod that the guest runs in; a migration has a second pod."""
    if run is None:
        return ""
    view = run.view
    pods = [LauncherView.parse(held) for held in ctx.indexed(POD, BY_RUN, view.uid)]
    found = [
        pod.address
        for pod in pods
        if pod.node_name == view.node_name and pod.uid in view.active_pods and not pod.deleting
    ]
    return found[0] if len(found) == 1 else ""


def _is_shut_down(ctx: Context, instance: Instance, run: Run | None) -> bool:
    """Return whether the guest shut itself down.

    Its launcher pod then remains and has completed. A pod that was deleted, such as by a drain of
    the node, makes the guest shut down as well, and is gone afterwards. What was seen once counts
    for as long as the run remains: completed pods are collected some day.
    """
    if instance.spec.on_guest_shutdown is OnGuestShutdown.RESTART or run is None:
        return False
    if run.view.phase != VmiPhase.SUCCEEDED or run.view.deleting:
        return False
    status = instance.observed
    known = any(each.reason == Reason.GUEST_SHUT_DOWN for each in status.conditions)
    if known and status.vmi_uid == run.view.uid:
        return True
    pods = [LauncherView.parse(held) for held in ctx.indexed(POD, BY_RUN, run.view.uid)]
    return any(not pod.deleting for pod in pods)


def _find_network(ctx: Context, instance: Instance) -> NetworkView | None:
    reference = instance.spec.network_ref
    held = None if reference is None else _get(ctx, NETWORK, reference.name)
    return None if held is None else NetworkView.parse(held)


def _find_firewall(ctx: Context, instance: Instance) -> FirewallView | None:
    reference = instance.spec.firewall_ref
    held = None if reference is None else _get(ctx, FIREWALL, reference.name)
    return None if held is None else FirewallView.parse(held)


def _find_claim(ctx: Context, instance: Instance) -> Manifest | None:
    """Find the claim of the public address: the user's claim or our own."""
    public = instance.spec.public_ip
    if public.mode is PublicIPMode.CLAIM:
        return _get(ctx, IP_CLAIM, public.claim_name or "")
    if public.mode is PublicIPMode.NONE:
        return None
    held = _get(ctx, IP_CLAIM, public_claim_name(instance.metadata.name))
    return held if held is not None and is_ours(held, ctx.uid) else None


def _find_private_claim(ctx: Context) -> IpClaimView | None:
    held = _get(ctx, IP_CLAIM, private_claim_name(ctx.key.name))
    return IpClaimView.parse(held) if held is not None and is_ours(held, ctx.uid) else None


def _find_own_claim(ctx: Context, claim: Manifest | None) -> Manifest | None:
    """Find the claim that mode Auto created, even if the mode has changed."""
    if claim is not None and is_ours(claim, ctx.uid):
        return claim
    held = _get(ctx, IP_CLAIM, public_claim_name(ctx.key.name))
    return held if held is not None and is_ours(held, ctx.uid) else None


def _find_volumes(ctx: Context, instance: Instance) -> Volumes:
    claims, problems = {}, []
    for volume in instance.spec.volumes:
        claim, problem = volume.claim or "", ""
        if volume.demo_volume is not None:
            held = _get(ctx, DEMO_VOLUME, volume.demo_volume)
            view = None if held is None else DemoVolumeView.parse(held)
            claim = "" if view is None or not view.ready or view.deleting else view.claim
            problem = f"DemoVolume {volume.demo_volume} of spec.volumes is not ready"
        elif _get(ctx, PVC, claim) is None:
            problem, claim = f"PersistentVolumeClaim {claim} of spec.volumes does not exist", ""
        if claim:
            claims[volume.name] = claim
        else:
            problems.append(problem)
    return Volumes(claims, tuple(problems))


def _find_disks(ctx: Context, instance: Instance) -> dict[str, DiskView]:
    """Find the root disks that are ours: DataVolumes, and claims that such left behind.

    CDI before 1.62 deletes a DataVolume once it is filled, and its claim remains.
    """
    disks = {}
    for held in ctx.indexed(DATA_VOLUME, BY_UID, ctx.uid):
        if is_ours(held, ctx.uid):
            disk = _show_volume(held)
            disks[disk.name] = disk
    named = _disk_names(instance)
    for held in ctx.indexed(PVC, BY_UID, ctx.uid):
        name = key_of(held).name
        if name in disks or _get(ctx, DATA_VOLUME, name) is not None:
            continue
        # One that nothing names any more is a disk of before, if it is really ours.
        if name in named or is_ours(held, ctx.uid):
            disks[name] = _show_claim(held)
    return disks


def _show_volume(held: Manifest) -> DiskView:
    view = DataVolumeView.parse(held)
    # In steps, so that a disk that fills changes the status ten times and not a hundred.
    progress = "" if view.progress is None else f"{view.progress // 10 * 10:.0f} %"
    return DiskView(
        DATA_VOLUME,
        held,
        view.key.name,
        view.uid,
        view.deleting,
        view.succeeded,
        view.failed,
        unknown=view.phase == DataVolumePhase.UNKNOWN,
        progress=progress,
        restarts=view.restarts,
        last_error=view.last_error,
        refusal=view.refusal,
    )


def _show_claim(held: Manifest) -> DiskView:
    bound = text_at(held, "status", "phase") == "Bound"
    return DiskView(
        PVC,
        held,
        key_of(held).name,
        uid_of(held),
        is_deleting(held),
        filled=bound,
        failed=False,
    )


def _find_foreign(ctx: Context, instance: Instance, machine: Manifest | None) -> Iterable[str]:
    """Find what has a name that we need and belongs to somebody else."""
    if machine is not None and not is_ours(machine, ctx.uid):
        yield describe(VIRTUAL_MACHINE, ctx.key)
    for name in sorted(_disk_names(instance)):
        held = _get(ctx, DATA_VOLUME, name)
        if held is not None and not is_ours(held, ctx.uid):
            yield describe(DATA_VOLUME, key_of(held))
    names = [private_claim_name(ctx.key.name)] if instance.spec.network_ref is not None else []
    if instance.spec.public_ip.mode is PublicIPMode.AUTO:
        names.append(public_claim_name(ctx.key.name))
    for name in names:
        held = _get(ctx, IP_CLAIM, name)
        if held is not None and not is_ours(held, ctx.uid):
            yield describe(IP_CLAIM, key_of(held))


def _find_silent_node(ctx: Context, run: Run | None) -> str:
    name = "" if run is None else run.view.node_name
    node = ctx.get(NODE, Key("", name)) if name else None
    if node is None:
        return ""
    # Unknown is what the node controller writes for a kubelet that is not heard of any more.
    return name if text_at(condition_at(node, "Ready"), "status") == "Unknown" else ""


def _find_operation(ctx: Context) -> OperationView | None:
    for held in ctx.indexed(OPERATION, BY_TARGET, str(ctx.key)):
        view = OperationView.parse(held)
        if view.phase in _AT_WORK and text_at(held, "status", "targetUID") == ctx.uid:
            return view
    return None


def _get(ctx: Context, kind: Kind, name: str) -> Manifest | None:
    """Return an object of the namespace of the Instance, where its kind is served."""
    return ctx.get(kind, Key(ctx.key.namespace, name)) if name else None


def _instance_uid(manifest: Mapping[str, Any]) -> str:
    return text_at(manifest, "metadata", "labels", INSTANCE_UID_LABEL)


def _disk_names(instance: Instance) -> set[str]:
    directive = instance.spec.directive(DirectiveKind.ROOT_DISK)
    held = instance.observed.root_disk
    names = {root_disk_name(instance.metadata.name) if held is None else held.name}
    return names | ({directive.disk} if directive is not None and directive.disk else set())


# Whose business a change is.


def index_by_uid(manifest: Manifest) -> Iterable[str]:
    """Index a disk by the Instance that it carries the UID of."""
    uid = _instance_uid(manifest)
    return (uid,) if uid else ()


def index_by_run(pod: Manifest) -> Iterable[str]:
    """Index a launcher pod by its run; anybody can write the label, only KubeVirt the owner."""
    uid = LauncherView.parse(pod).owner_uid
    return (uid,) if uid else ()


def index_by_target(operation: Manifest) -> Iterable[str]:
    """Index an Operation by its Instance."""
    return (str(Key(key_of(operation).namespace, text_at(operation, "spec", "targetRef", "name"))),)


def index_by_use(instance: Manifest) -> Iterable[str]:
    """Index an Instance by what its spec names."""
    spec, name = instance.get("spec") or {}, key_of(instance).name
    yield f"{INSTANCE_SIZE.kind}/{text_at(spec, 'size')}"
    for field in ("instancetype", "preference"):
        yield f"{text_at(spec, field, 'kind')}/{text_at(spec, field, 'name')}"
    yield f"{NETWORK.kind}/{text_at(spec, 'networkRef', 'name')}"
    yield f"{FIREWALL.kind}/{text_at(spec, 'firewallRef', 'name')}"
    yield f"{IP_CLAIM.kind}/{text_at(spec, 'publicIP', 'claimName')}"
    yield f"{IP_CLAIM.kind}/{public_claim_name(name)}"
    yield f"{IP_CLAIM.kind}/{private_claim_name(name)}"
    yield f"{NODE.kind}/{text_at(instance, 'status', 'nodeName')}"
    disks = [text_at(held, "disk") for held in maps_at(spec, "directives")]
    for disk in {root_disk_name(name), text_at(instance, "status", "rootDisk", "name"), *disks}:
        yield f"{DATA_VOLUME.kind}/{disk}"
        yield f"{PVC.kind}/{disk}"
    for volume in maps_at(spec, "volumes"):
        yield f"{DEMO_VOLUME.kind}/{text_at(volume, 'demoVolume')}"
        yield f"{PVC.kind}/{text_at(volume, 'claim')}"


def map_used(kind: Kind) -> Mapper:
    """Return a mapper that names the Instances whose spec names an object of a kind."""

    def map_object(manifest: Manifest, cache: Cache) -> Iterable[Key]:
        namespace, name = key_of(manifest)
        for instance in cache.store(INSTANCE).indexed(BY_USE, f"{kind.kind}/{name}"):
            key = key_of(instance)
            if not namespace or key.namespace == namespace:
                yield key

    return map_object


def map_named(manifest: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the Instance that has the name of a machine or of its run."""
    return (key_of(manifest),)


def map_disk(kind: Kind) -> Mapper:
    """Return a mapper from a disk to the Instances that use or own it."""
    map_named_disk = map_used(kind)

    def map_object(disk: Manifest, cache: Cache) -> Iterable[Key]:
        yield from map_named_disk(disk, cache)
        instance = text_map_at(disk, "metadata", "labels").get("compute.slipway.dev/instance", "")
        if instance:
            yield Key(key_of(disk).namespace, instance)

    return map_object


def map_launcher(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the Instance whose guest runs in a pod."""
    owner = controller_of(pod) or {}
    name = owner.get("name") if owner.get("kind") == VIRTUAL_MACHINE_INSTANCE.kind else None
    return (Key(key_of(pod).namespace, str(name)),) if name else ()


def map_operation(operation: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the Instance that an Operation is for."""
    return (Key(key_of(operation).namespace, text_at(operation, "spec", "targetRef", "name")),)


def shrink_node(node: Manifest) -> Manifest:
    """Keep of a node what says whether it is silent; nodes report often and at length."""
    ready = condition_at(node, "Ready")
    return {
        "apiVersion": node.get("apiVersion"),
        "kind": node.get("kind"),
        "metadata": _shrink_metadata(node),
        "status": {"conditions": [{"type": "Ready", "status": ready.get("status")}]},
    }


def shrink_claim(claim: Manifest) -> Manifest:
    """Keep of a claim whose it is and whether it is bound."""
    metadata = _shrink_metadata(claim)
    for name in ("labels", "annotations", "ownerReferences", "deletionTimestamp"):
        if name in claim["metadata"]:
            metadata[name] = claim["metadata"][name]
    return {
        "apiVersion": claim.get("apiVersion"),
        "kind": claim.get("kind"),
        "metadata": metadata,
        "status": {"phase": text_at(claim, "status", "phase")},
    }


def _shrink_metadata(manifest: Manifest) -> Manifest:
    kept = ("name", "namespace", "uid", "resourceVersion")
    return {name: value for name, value in manifest["metadata"].items() if name in kept}


INSTANCE_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_USE: index_by_use}
"""Indexes of the Instances in the cache."""
POD_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_RUN: index_by_run}
"""Indexes of the launcher pods in the cache."""
DISK_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_UID: index_by_uid}
"""Indexes of the disks in the cache."""
OPERATION_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_TARGET: index_by_target}
"""Indexes of the Operations in the cache."""
