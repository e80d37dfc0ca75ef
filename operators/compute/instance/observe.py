"""Read the objects of an Instance from the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

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
from libs.common.naming import label_value
from libs.common.ownership import controller_uid
from libs.common.quantity import parse_quantity
from libs.common.reading import condition_at, text_at, texts_at
from libs.common.runtime import Context
from libs.contracts.cdi import DATA_VOLUME, DataVolumePhase, DataVolumeView
from libs.contracts.compute import INSTANCE_LABEL, OperationView
from libs.contracts.instancetypes import InstancetypeView, Matcher
from libs.contracts.ip_claims import IP_CLAIM, IpClaimView
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiPhase,
    VmiView,
)
from libs.contracts.launchers import LauncherView
from libs.contracts.network import FIREWALL, NETWORK, FirewallView, NetworkView
from libs.contracts.volumes import DEMO_VOLUME, DemoVolumeView
from operators.compute.api.addresses import PublicIPMode
from operators.compute.api.directives import DirectiveKind
from operators.compute.api.instance import Instance, OnGuestShutdown
from operators.compute.api.operation import OPERATION
from operators.compute.api.reasons import Reason
from operators.compute.api.size import INSTANCE_SIZE, InstanceSize
from operators.compute.instance.disk_users import find_other_users
from operators.compute.instance.observed import Capacity, DiskView, Machine, Observed, Run, Volumes
from operators.compute.instance.record import read_record
from operators.compute.instance.watches import (
    BY_INSTANCE,
    BY_RUN,
    BY_TARGET,
    BY_UID,
    claim_of,
    instance_uid,
)
from operators.compute.marks import is_former, is_ours
from operators.compute.naming import (
    RECORD,
    private_claim_name,
    public_claim_name,
    root_disk_name,
)

NEEDED: Final = (VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE, DATA_VOLUME)
"""Kinds that are required for every machine."""
_SHARED: Final = "ReadWriteMany"
"""Access mode of a claim that several machines can use at the same time."""
_AT_WORK: Final = frozenset({"Running", "RollingBack"})


def observe(ctx: Context, instance: Instance, image_hosts: Sequence[str] = ()) -> Observed:
    """Read everything from the cache on which the plan and the status of an Instance depend."""
    missing = tuple(kind.resource for kind in NEEDED if not ctx.is_served(kind))
    if missing:
        return Observed(missing_apis=missing)
    spec = _find_size(ctx, instance)
    held = ctx.get(VIRTUAL_MACHINE, ctx.key)
    ours = held is not None and is_ours(held, ctx.uid)
    machine = Machine.parse(held) if held is not None and ours else None
    claim = _find_claim(ctx, instance)
    run = _find_run(ctx)
    disks = _find_disks(ctx, instance)
    former = _find_former_disks(ctx, instance)
    root = _find_root(instance, machine, disks, former)
    in_use = find_other_users(ctx, disks.keys() | root)
    return Observed(
        size=None if spec is None else Capacity(spec.spec.cpus, parse_quantity(spec.spec.memory)),
        disk_size="" if spec is None else spec.spec.disk,
        instancetype=_find_instancetype(ctx, instance),
        preference_exists=_has_preference(ctx, instance),
        network=_find_network(ctx, instance),
        firewall=_find_firewall(ctx, instance),
        claim=None if claim is None else IpClaimView.parse(claim),
        claim_manifest=_find_own_claim(ctx, claim),
        volumes=_find_volumes(ctx, instance, in_use, _disk_names(instance)),
        in_use=in_use,
        image_hosts=tuple(image_hosts),
        machine=machine,
        run=run,
        pod_address=_find_pod_address(ctx, run),
        shut_down=_is_shut_down(ctx, instance, run),
        private_claim=_find_private_claim(ctx, instance),
        disks={name: disk for name, disk in former.items() if name in root} | disks,
        disk_problem=_find_disk_problem(instance, machine, disks, former, root),
        former_claims=_find_former_claims(ctx, instance),
        former_machine=held if held is not None and is_former(held, instance) else None,
        foreign=tuple(_find_foreign(ctx, instance, held, disks.keys() | former.keys())),
        silent_node=_find_silent_node(ctx, run),
        operation=_find_operation(ctx),
    )


def _is_own(held: Manifest, instance: Instance) -> bool:
    """Return whether an object is ours, or can be adopted.

    An Instance that is being deleted adopts nothing: it would delete what it has never used.
    """
    if is_ours(held, instance.metadata.uid):
        return True
    adopts = not (instance.metadata.is_deleting or is_deleting(held))
    return adopts and is_former(held, instance)


def _find_size(ctx: Context, instance: Instance) -> InstanceSize | None:
    name = instance.spec.size
    held = ctx.get(INSTANCE_SIZE, Key("", name)) if name else None
    try:
        return None if held is None else InstanceSize.parse(held)
    except ParseError:
        return None


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


def _find_run(ctx: Context) -> Run | None:
    held = ctx.get(VIRTUAL_MACHINE_INSTANCE, ctx.key)
    if held is None or instance_uid(held) != ctx.uid:
        return None
    return Run.parse(held)


def _find_pod_address(ctx: Context, run: Run | None) -> str:
    """Return the address of the pod in which the guest runs; a migration has a second pod."""
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

    In this case its launcher pod remains and has completed. If the pod is deleted, for example by a
    drain of the node, the guest shuts down as well, but the pod no longer exists afterwards. Pods
    that the guest left by a migration have completed as well and prove nothing. Once observed, the
    fact holds for as long as the run exists, because completed pods are garbage collected at some
    time.
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
    return shows_shutdown(run.view, pods)


def shows_shutdown(view: VmiView, pods: Iterable[LauncherView]) -> bool:
    """Return whether a pod shows that the guest of a run that has ended shut itself down."""
    return any(
        not (pod.deleting or pod.disrupted)
        and view.launcher in ("", pod.key.name)
        and view.node_name in ("", pod.node_name)
        for pod in pods
    )


def _find_network(ctx: Context, instance: Instance) -> NetworkView | None:
    reference = instance.spec.network_ref
    held = None if reference is None else _get(ctx, NETWORK, reference.name)
    return None if held is None else NetworkView.parse(held)


def _find_firewall(ctx: Context, instance: Instance) -> FirewallView | None:
    reference = instance.spec.firewall_ref
    held = None if reference is None else _get(ctx, FIREWALL, reference.name)
    return None if held is None else FirewallView.parse(held)


def _find_claim(ctx: Context, instance: Instance) -> Manifest | None:
    """Return the IPClaim of the public address: the user's claim or our own."""
    public = instance.spec.public_ip
    if public.mode is PublicIPMode.CLAIM:
        return _get(ctx, IP_CLAIM, public.claim_name or "")
    if public.mode is PublicIPMode.NONE:
        return None
    held = _get(ctx, IP_CLAIM, public_claim_name(instance.metadata.name))
    return held if held is not None and _is_usable(held, instance) else None


def _is_usable(claim: Manifest, instance: Instance) -> bool:
    """Return whether an IPClaim is ours, or was until its address was moved to another target.

    The user who moves the address back keeps the claim, which then has no owner.
    """
    public = key_of(claim).name == public_claim_name(instance.metadata.name)
    return _is_own(claim, instance) or (public and not controller_uid(claim))


def _find_private_claim(ctx: Context, instance: Instance) -> IpClaimView | None:
    held = _get(ctx, IP_CLAIM, private_claim_name(ctx.key.name))
    return IpClaimView.parse(held) if held is not None and _is_own(held, instance) else None


def _list_claim_names(instance: Instance) -> list[str]:
    """Return the names of the IPClaims that the operator creates for the Instance."""
    name = instance.metadata.name
    private = instance.spec.network_ref is not None
    public = instance.spec.public_ip.mode is PublicIPMode.AUTO
    return [
        *([private_claim_name(name)] if private else ()),
        *([public_claim_name(name)] if public else ()),
    ]


def _find_former_claims(ctx: Context, instance: Instance) -> tuple[Manifest, ...]:
    found = [_get(ctx, IP_CLAIM, name) for name in _list_claim_names(instance)]
    return tuple(
        held
        for held in found
        if held is not None and is_former(held, instance) and not is_deleting(held)
    )


def _find_own_claim(ctx: Context, claim: Manifest | None) -> Manifest | None:
    """Return the IPClaim that mode Auto created, even if the mode has changed."""
    if claim is not None and is_ours(claim, ctx.uid):
        return claim
    held = _get(ctx, IP_CLAIM, public_claim_name(ctx.key.name))
    return held if held is not None and is_ours(held, ctx.uid) else None


def _find_volumes(
    ctx: Context, instance: Instance, in_use: Mapping[str, str], disks: AbstractSet[str]
) -> Volumes:
    claims: dict[str, str] = {}
    problems = []
    for volume in instance.spec.volumes:
        claim, problem = claim_of(volume.to_manifest()), ""
        if volume.demo_volume is not None:
            held = _get(ctx, DEMO_VOLUME, volume.demo_volume)
            view = None if held is None else DemoVolumeView.parse(held)
            problem = f"DemoVolume {volume.demo_volume} of spec.volumes is not ready"
            claim = "" if view is None or not view.ready or view.deleting else claim
        elif _get(ctx, PVC, claim) is None:
            problem, claim = f"PersistentVolumeClaim {claim} of spec.volumes does not exist", ""
        if claim in (*claims.values(), *disks):
            problem = (
                f"PersistentVolumeClaim {claim} of spec.volumes is a disk of the machine already; "
                f"volume {volume.name} needs another claim"
            )
            claim = ""
        elif claim in in_use:
            problem = f"PersistentVolumeClaim {claim} of spec.volumes {in_use[claim]}"
            claim = ""
        elif claim and volume.shared and not _is_shareable(ctx, claim):
            problem = (
                f"PersistentVolumeClaim {claim} of spec.volumes has no access mode {_SHARED}, which"
                " sharing: Shared needs"
            )
            claim = ""
        if claim:
            claims[volume.name] = claim
        else:
            problems.append(problem)
    return Volumes(claims, tuple(problems))


def _is_shareable(ctx: Context, claim: str) -> bool:
    held = _get(ctx, PVC, claim) or {}
    return _SHARED in texts_at(held, "spec", "accessModes")


def _find_disks(ctx: Context, instance: Instance) -> dict[str, DiskView]:
    """Return the root disks that are ours: DataVolumes, and claims without their DataVolume.

    CDI before 1.62 deletes a DataVolume after it is filled, and keeps its claim.
    """
    disks = {}
    for held in ctx.indexed(DATA_VOLUME, BY_UID, ctx.uid):
        if is_ours(held, ctx.uid):
            disk = _show_volume(held, claimed=_get(ctx, PVC, key_of(held).name) is not None)
            disks[disk.name] = disk
    named = _disk_names(instance)
    for held in ctx.indexed(PVC, BY_UID, ctx.uid):
        name = key_of(held).name
        if name in disks or _get(ctx, DATA_VOLUME, name) is not None:
            continue
        # A disk that nothing names any more is a former root disk if it belongs to this Instance.
        if name in named or is_ours(held, ctx.uid):
            disks[name] = _show_claim(held)
    return disks


def _find_former_disks(ctx: Context, instance: Instance) -> dict[str, DiskView]:
    """Return the root disks that an earlier Instance with this name has left."""
    if instance.metadata.is_deleting:
        return {}
    index = str(Key(ctx.key.namespace, label_value(ctx.key.name)))
    volumes, claims = (
        {key_of(held).name: held for held in ctx.indexed(kind, BY_INSTANCE, index)}
        for kind in (DATA_VOLUME, PVC)
    )
    found = {
        name: _show_volume(held, claimed=name in claims)
        for name, held in volumes.items()
        if is_former(held, instance) and not is_deleting(held)
    }
    return found | {
        name: _show_claim(held)
        for name, held in claims.items()
        if is_former(held, instance)
        and not is_deleting(held)
        and _get(ctx, DATA_VOLUME, name) is None
    }


def _find_root(
    instance: Instance,
    machine: Machine | None,
    disks: Mapping[str, DiskView],
    former: Mapping[str, DiskView],
) -> set[str]:
    """Return the names of former disks to adopt: the root disk, and the disk of a directive."""
    directive = instance.spec.directive(DirectiveKind.ROOT_DISK)
    asked = "" if directive is None else directive.disk or ""
    status = instance.observed.root_disk
    default = root_disk_name(instance.metadata.name)
    rest = [name for name in former if name != asked]
    known = (
        "" if machine is None else machine.disk,
        "" if status is None else status.name,
        read_record(instance).disk,
        rest[0] if len(rest) == 1 and not disks else "",
        default if disks else "",
    )
    return {next(filter(None, known), ""), asked} & former.keys()


def _find_disk_problem(
    instance: Instance,
    machine: Machine | None,
    disks: Mapping[str, DiskView],
    former: Mapping[str, DiskView],
    root: set[str],
) -> str:
    """Return why no root disk can be created or adopted; empty if it can."""
    if machine is not None or instance.observed.root_disk is not None:
        return ""
    recorded = read_record(instance).disk
    if recorded and recorded not in disks and recorded not in root:
        return (
            f"PersistentVolumeClaim {recorded} does not exist, which was the root disk when the "
            f"Instance was backed up; restore it, or remove annotation {RECORD} to create a new "
            "disk"
        )
    if former and not (disks or root):
        names = ", ".join(sorted(former))
        return (
            f"an earlier Instance has left the root disks {names}; remove label {INSTANCE_LABEL} "
            "from the DataVolumes and PersistentVolumeClaims that must not be used"
        )
    return ""


def _show_volume(held: Manifest, *, claimed: bool) -> DiskView:
    view = DataVolumeView.parse(held)
    # CDI validates a DataVolume again after a change of its StorageProfile, even if it is filled. A
    # disk with a claim may contain data, so it never counts as refused.
    refusal = "" if view.succeeded or claimed else view.refusal
    # In steps of 10 %, so that filling a disk changes the status 10 times and not 100 times.
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
        refusal=refusal,
        waits=view.phase in (DataVolumePhase.PENDING, DataVolumePhase.PENDING_POPULATION),
    )


def _show_claim(held: Manifest) -> DiskView:
    phase = text_at(held, "status", "phase")
    return DiskView(
        PVC,
        held,
        key_of(held).name,
        uid_of(held),
        is_deleting(held),
        filled=phase == "Bound",
        failed=False,
        # A claim that lost its volume contained data, and may get the volume back.
        unknown=phase not in ("Bound", "Pending"),
    )


def _find_foreign(
    ctx: Context, instance: Instance, machine: Manifest | None, known: AbstractSet[str]
) -> Iterable[str]:
    """Return the objects of other owners that have a name that this Instance needs."""
    if machine is not None and not (is_ours(machine, ctx.uid) or is_former(machine, instance)):
        yield describe(VIRTUAL_MACHINE, ctx.key)
    for name in sorted(_disk_names(instance) - known):
        for kind in (DATA_VOLUME, PVC):
            held = _get(ctx, kind, name)
            if held is None or is_ours(held, ctx.uid):
                continue
            # A claim of ours whose DataVolume no longer exists is about to be deleted as well.
            if kind == DATA_VOLUME or not (is_deleting(held) or instance_uid(held) == ctx.uid):
                yield describe(kind, key_of(held))
                break
    for name in _list_claim_names(instance):
        held = _get(ctx, IP_CLAIM, name)
        if held is not None and not _is_usable(held, instance):
            yield describe(IP_CLAIM, key_of(held))


def _find_silent_node(ctx: Context, run: Run | None) -> str:
    name = "" if run is None else run.view.node_name
    node = ctx.get(NODE, Key("", name)) if name else None
    if node is None:
        return ""
    # The node controller sets Unknown if the kubelet has stopped reporting.
    return name if text_at(condition_at(node, "Ready"), "status") == "Unknown" else ""


def _find_operation(ctx: Context) -> OperationView | None:
    for held in ctx.indexed(OPERATION, BY_TARGET, str(ctx.key)):
        view = OperationView.parse(held)
        if view.phase in _AT_WORK and text_at(held, "status", "targetUID") == ctx.uid:
            return view
    return None


def _get(ctx: Context, kind: Kind, name: str) -> Manifest | None:
    """Return an object in the namespace of the Instance; None if its kind is not served."""
    return ctx.get(kind, Key(ctx.key.namespace, name)) if name else None


def _disk_names(instance: Instance) -> set[str]:
    directive = instance.spec.directive(DirectiveKind.ROOT_DISK)
    held = instance.observed.root_disk
    names = {root_disk_name(instance.metadata.name) if held is None else held.name}
    return names | ({directive.disk} if directive is not None and directive.disk else set())
