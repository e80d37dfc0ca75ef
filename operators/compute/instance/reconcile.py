"""Planning: computes the next actions for an Instance. Pure: no I/O, no clock.

A plan depends only on the observed state, so after a crash between two steps, the next reconcile
continues from the intermediate state. A change of the root disk takes several reconciles: first the
machine is halted; after KubeVirt has ended the run, the template gets the other disk; then the
machine may run again. The VirtualMachine itself shows the progress, so a crash is always safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from libs.common.actions import Action
from libs.common.conditions import parse_time
from libs.common.kinds import SECRET, Kind, Manifest, describe, is_deleting, key_of, uid_of
from libs.common.plan import Apply, Create, Delete, Patch
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    RunStrategy,
)
from operators.compute.api.addresses import PublicIPMode, PublicTraffic
from operators.compute.api.directives import DirectiveKind
from operators.compute.api.instance import RESCUED, DeletionMode, Instance, Power
from operators.compute.api.reasons import Reason
from operators.compute.images import explain_refused
from operators.compute.instance.boot import find_retired_disks
from operators.compute.instance.netdata import find_network_data
from operators.compute.instance.observed import (
    DiskView,
    Observed,
    find_boot,
    find_current_disk,
    find_wanted_disk,
    has_network,
    is_protected,
)
from operators.compute.instance.record import plan_record
from operators.compute.instance.resources import (
    build_cloud_init,
    build_disk,
    build_machine,
    build_ports,
    build_private_claim,
    build_public_claim,
    hash_cloud_init,
)
from operators.compute.instance.sizing import (
    find_preference,
    find_sizing,
    is_preference_missing,
)
from operators.compute.marks import (
    build_adopt_patch,
    build_mark_patch,
    build_release_patch,
    has_other_owner,
    is_former,
    is_moved,
    is_ours,
)
from operators.compute.naming import public_claim_name


@dataclass(frozen=True, slots=True)
class Decision:
    """The desired state of the machine.

    Attributes:
        disk: Root disk of its template.
        run: Whether KubeVirt should keep it running.
    """

    disk: str
    run: bool


def plan_instance(instance: Instance, observed: Observed, now: datetime) -> tuple[Action, ...]:
    """Plan the actions that bring the machine in line with the spec, in their order."""
    if observed.missing_apis:
        return ()
    return (
        *_plan_adoption(instance, observed),
        *_plan_disks(instance, observed),
        *_plan_settings(instance, observed),
        *_plan_machine(instance, observed),
        *_plan_restart(instance, observed),
        *_plan_record(instance, observed),
        *_plan_rerun(observed, now),
        *_plan_address(instance, observed),
        *_plan_private_address(instance, observed),
        *_plan_marks(instance, observed),
        *_plan_retirement(instance, observed, now),
    )


def decide_machine(instance: Instance, observed: Observed) -> Decision:
    """Decide from which disk the machine should boot, and whether it should run.

    A running machine is never stopped because of a missing prerequisite. Conditions report the
    prerequisite, and it is required again at the next start.
    """
    current, wanted = (
        find_current_disk(instance, observed),
        find_wanted_disk(instance, observed),
    )
    machine, run = observed.machine, observed.run
    if machine is not None and current != wanted:
        return Decision(wanted if machine.halted and run is None else current, run=False)
    if find_boot(instance) is not None and run is not None and run.disk != current:
        # KubeVirt started the run before it observed that the machine must be off.
        return Decision(current, run=False)
    if instance.spec.power is Power.STOPPED:
        return Decision(current, run=False)
    running = machine is not None and machine.kept_running
    used = () if machine is None else (machine.disk, *machine.claims.values())
    if running and not observed.in_use.keys().isdisjoint(used):
        # Another machine has its disk. A guest that runs is not ended, but none boots any more.
        restarts = instance.spec.directive(DirectiveKind.RESTART) is not None
        running = run is not None and run.view.running and not restarts
    return Decision(current, run=running or may_start(instance, observed))


def may_start(instance: Instance, observed: Observed) -> bool:
    """Return whether all prerequisites for starting the machine are met."""
    disk = observed.disks.get(find_current_disk(instance, observed))
    return (
        disk is not None
        and disk.filled
        and not disk.deleting
        and disk.name not in observed.in_use
        and has_network(instance, observed)
        and is_protected(instance, observed)
        and not observed.volumes.problems
        and not observed.lacks_user_data
    )


def _plan_adoption(instance: Instance, observed: Observed) -> list[Action]:
    """Take over what an earlier Instance with this name has left, as after a restore."""
    policy = instance.spec.deletion_policy
    actions = []
    for disk in observed.disks.values():
        if is_former(disk.manifest, instance):
            note = (
                f"Adopting {describe(disk.kind, key_of(disk.manifest))} with its data, which an "
                "earlier Instance has left; it is not filled from spec.image"
            )
            actions.append(_adopt(instance, disk.kind, disk.manifest, policy.root_disk, note))
    public = public_claim_name(instance.metadata.name)
    for claim in observed.former_claims:
        mode = policy.public_ip if key_of(claim).name == public else DeletionMode.DELETE
        note = f"Adopting {describe(IP_CLAIM, key_of(claim))}, which an earlier Instance has left"
        actions.append(_adopt(instance, IP_CLAIM, claim, mode, note))
    held = observed.former_machine
    if held is not None and not is_deleting(held):
        # It contains no data, it may boot from the disk of an unfinished Operation, and its pod has
        # the labels of the former Instance, by which no policy protects it.
        what = describe(VIRTUAL_MACHINE, key_of(held))
        note = f"Deleting {what} of an earlier Instance, to create it from the present spec"
        step = Delete(VIRTUAL_MACHINE, key_of(held), uid_of(held))
        actions.append(Action(step, Reason.DELETING_MACHINE, note, warning=True))
    return actions


def _adopt(instance: Instance, kind: Kind, held: Manifest, mode: DeletionMode, note: str) -> Action:
    operations = build_adopt_patch(held, instance, owned=mode is DeletionMode.DELETE)
    version = held["metadata"].get("resourceVersion", "")
    step = Patch(kind, key_of(held), uid_of(held), operations, resource_version=version)
    return Action(step, Reason.DISK_ADOPTED, note, warning=True)


def _plan_record(instance: Instance, observed: Observed) -> list[Action]:
    machine = observed.machine
    return [] if machine is None or not machine.disk else plan_record(instance, machine.disk)


def _replace_refused(disk: DiskView, wanted: Manifest) -> list[Action]:
    """Delete a disk that CDI refuses to create, if the spec has changed since."""
    same = disk.manifest.get("spec", {}).get("storage") == wanted["spec"]["storage"]
    if not disk.refusal or same or disk.deleting:
        return []
    what = describe(disk.kind, key_of(disk.manifest))
    note = f"Deleting {what}, which CDI did not create, to create it from the current spec.rootDisk"
    step = Delete(disk.kind, key_of(disk.manifest), disk.uid)
    return [Action(step, Reason.DISK_REPLACED, note)]


def _plan_disks(instance: Instance, observed: Observed) -> list[Action]:
    """Create the boot disk of the machine, and the disk that a directive requests."""
    if observed.disk_problem:
        return []
    actions = []
    wanted = {find_current_disk(instance, observed): instance.spec.image}
    directive = instance.spec.directive(DirectiveKind.ROOT_DISK)
    if directive is not None and directive.disk is not None:
        wanted.setdefault(directive.disk, directive.image or instance.spec.image)
    uid = instance.metadata.uid
    for name, image in wanted.items():
        sized = bool(instance.spec.root_disk.size or observed.disk_size)
        taken = any(held.endswith(f"/{name}") for held in observed.foreign)
        if not sized or taken:
            continue
        manifest = build_disk(instance, name, image, observed.disk_size, observed.place)
        if name not in observed.disks and explain_refused(image, observed.image_hosts):
            continue
        if name in observed.disks:
            actions += _replace_refused(observed.disks[name], manifest)
            continue
        step = Create(DATA_VOLUME, manifest, ours=lambda held: is_ours(held, uid))
        held = instance.observed.root_disk
        if held is not None and held.name == name:
            note = (
                f"Created {describe(DATA_VOLUME, step.key)} again; the previous one no longer"
                " exists"
            )
            actions.append(Action(step, Reason.DISK_REPLACED, note, warning=True))
        else:
            note = f"Created {describe(DATA_VOLUME, step.key)} from {image}"
            actions.append(Action(step, Reason.DISK_CREATED, note))
    return actions


def _plan_settings(instance: Instance, observed: Observed) -> list[Action]:
    """Write the cloud-init Secret if its content changed, and once for each run that mounts it.

    Secrets are not watched, so each look at one is a request.
    """
    network = find_network_data(instance, observed)
    if network is None and observed.machine is not None and observed.machine.has_network_data:
        # The Network is not in the cache, so its network data is unknown.
        return []
    secret = build_cloud_init(instance, network)
    if secret is None:
        return []
    run = observed.run
    new = run is not None and not run.view.running and run.view.uid != instance.observed.vmi_uid
    if instance.observed.cloud_init_hash == hash_cloud_init(secret) and not new:
        return []
    return [Action(Apply(SECRET, secret), Reason.WRITE_FAILED)]


def _plan_machine(instance: Instance, observed: Observed) -> list[Action]:
    sizing = find_sizing(instance, observed)
    machine = observed.machine
    if sizing is None or observed.former_machine is not None:
        return []
    if machine is not None and machine.view.deleting:
        return []
    missing = observed.foreign or is_preference_missing(instance, observed)
    if machine is None and (missing or not may_start(instance, observed)):
        # A machine that cannot start yet is not created, because its prerequisites may change.
        return []
    decision = decide_machine(instance, observed)
    manifest = build_machine(
        instance,
        sizing,
        decision.disk,
        _choose_claims(instance, observed, decision.disk),
        observed.network,
        run=decision.run,
        preference=find_preference(instance, observed),
        network_data=_has_network_data(instance, observed),
    )
    return [Action(Apply(VIRTUAL_MACHINE, manifest), Reason.START_FAILED)]


def _has_network_data(instance: Instance, observed: Observed) -> bool:
    """Return whether the guest gets network data; an existing machine never loses it."""
    held = observed.machine is not None and observed.machine.has_network_data
    return held or find_network_data(instance, observed) is not None


def _choose_claims(instance: Instance, observed: Observed, disk: str) -> dict[str, str]:
    """Choose the claims of the further volumes; a volume that is not ready keeps its old claim."""
    held = {} if observed.machine is None else observed.machine.claims
    found = {
        volume.name: observed.volumes.claims.get(volume.name, held.get(volume.name, ""))
        for volume in instance.spec.volumes
    }
    directive = find_boot(instance)
    if directive is not None and directive.disk == disk and directive.attach is not None:
        found[RESCUED] = directive.attach
    return {name: claim for name, claim in found.items() if claim}


def _plan_restart(instance: Instance, observed: Observed) -> list[Action]:
    directive = instance.spec.directive(DirectiveKind.RESTART)
    run = observed.run
    if directive is None or run is None or run.view.deleting:
        return []
    if run.view.uid != directive.vmi_uid:
        # The directive names another run, so it was already executed, perhaps before a crash.
        return []
    # Deleting by UID makes the restart happen only once. A restart request to KubeVirt names only
    # the machine: repeated after a lost response, it would end the new run as well.
    step = Delete(VIRTUAL_MACHINE_INSTANCE, run.view.key, run.view.uid)
    return [Action(step, Reason.RESTARTED, f"Ended the run {run.view.uid}")]


def seconds_to_rerun(observed: Observed, now: datetime) -> float | None:
    """Return the seconds until a run that has ended must be replaced by a new one.

    KubeVirt does this itself with the strategy `Always`, and never with `Once`.

    Returns:
        0 if it is due; None if the run must not be replaced.
    """
    machine, run = observed.machine, observed.run
    if machine is None or run is None or machine.view.run_strategy != RunStrategy.ONCE:
        return None
    if not run.view.final or run.view.deleting or machine.view.deleting or observed.shut_down:
        return None
    # KubeVirt counts failed starts and reports when to retry, but with the strategy `Once` it does
    # not retry itself.
    if not machine.view.retry_after:
        return 0.0
    return max((parse_time(machine.view.retry_after) - now).total_seconds(), 0.0)


def _plan_rerun(observed: Observed, now: datetime) -> list[Action]:
    """Delete a run that crashed or was evicted; KubeVirt then starts the next run."""
    run = observed.run
    if run is None or seconds_to_rerun(observed, now) != 0:
        return []
    step = Delete(VIRTUAL_MACHINE_INSTANCE, run.view.key, run.view.uid)
    note = f"Deleting the run {run.view.uid}, which ended as {run.view.phase}"
    return [Action(step, Reason.RERUN, note, warning=True)]


def _plan_private_address(instance: Instance, observed: Observed) -> list[Action]:
    """Request a private address if the Network has a pool; it is kept until the teardown."""
    network = observed.network
    if network is None or not network.allocates_addresses or observed.private_claim is not None:
        return []
    uid = instance.metadata.uid
    manifest = build_private_claim(instance, network)
    step = Create(IP_CLAIM, manifest, ours=lambda held: is_ours(held, uid))
    return [Action(step, Reason.ADDRESS_PENDING, f"Created {describe(IP_CLAIM, step.key)}")]


def _plan_ports(instance: Instance, held: Manifest) -> list[Action]:
    """Bring the ports of our IPClaim in line with the spec; unset ports stay as they are."""
    public, spec = instance.spec.public_ip, held.get("spec", {})
    wanted: Manifest = {}
    if public.traffic is not None or public.ports is not None:
        wanted["traffic"] = str(public.traffic or PublicTraffic.PORTS)
    if public.traffic is PublicTraffic.ALL:
        wanted["ports"] = []
    elif public.ports is not None:
        wanted["ports"] = build_ports(public.ports)
    shown = {
        "traffic": spec.get("traffic", PublicTraffic.PORTS),
        "ports": [{"protocol": "TCP", **port} for port in spec.get("ports") or ()],
    }
    operations = [
        {"op": "add", "path": f"/spec/{name}", "value": value}
        for name, value in wanted.items()
        if shown[name] != value
    ]
    if not operations:
        return []
    version = held["metadata"].get("resourceVersion", "")
    step = Patch(IP_CLAIM, key_of(held), uid_of(held), operations, resource_version=version)
    note = f"Changed the ports of {describe(IP_CLAIM, key_of(held))}"
    return [Action(step, Reason.ADDRESS_PENDING, note)]


def _plan_address(instance: Instance, observed: Observed) -> list[Action]:
    public = instance.spec.public_ip
    name = public_claim_name(instance.metadata.name)
    uid = instance.metadata.uid
    if public.mode is PublicIPMode.AUTO:
        if observed.claim_manifest is not None:
            return _plan_ports(instance, observed.claim_manifest)
        if observed.claim is not None:
            # It was ours before its address was moved to another target.
            return []
        if any(key_of(held).name == name for held in observed.former_claims):
            return []
        step = Create(IP_CLAIM, build_public_claim(instance), ours=lambda held: is_ours(held, uid))
        return [Action(step, Reason.ADDRESS_PENDING, f"Created {describe(IP_CLAIM, step.key)}")]
    held = observed.claim_manifest
    if held is None or key_of(held).name != name or not is_ours(held, uid):
        return []
    # The mode was Auto before, so the claim is not needed any more, unless the user now names it
    # with mode Claim, or has moved its address: then it becomes the user's own claim and is
    # released instead of deleted.
    if public.claim_name == name or is_moved(held, instance):
        return [release(IP_CLAIM, held, uid)]
    note = f"Deleting {describe(IP_CLAIM, key_of(held))}"
    withdrawal = Delete(IP_CLAIM, key_of(held), uid_of(held))
    return [Action(withdrawal, Reason.WITHDRAWING_ADDRESS, note)]


def release(kind: Kind, held: Manifest, uid: str) -> Action:
    """Keep an object of the Instance with a UID, and remove its owner."""
    operations = build_release_patch(held, uid)
    version = held["metadata"].get("resourceVersion", "")
    step = Patch(kind, key_of(held), uid_of(held), operations, resource_version=version)
    name = describe(kind, key_of(held))
    return Action(step, Reason.KEPT, f"Kept {name}, which has no owner now")


def _plan_marks(instance: Instance, observed: Observed) -> list[Action]:
    """Update the owner reference or annotation of children after a change of the policy."""
    policy = instance.spec.deletion_policy
    targets = [
        (disk.kind, disk.manifest, policy.root_disk)
        for disk in observed.disks.values()
        if not disk.deleting and disk.kind == DATA_VOLUME and not is_former(disk.manifest, instance)
    ]
    claim = observed.claim_manifest
    auto = instance.spec.public_ip.mode is PublicIPMode.AUTO
    if auto and claim is not None and is_ours(claim, instance.metadata.uid):
        targets.append((IP_CLAIM, claim, policy.public_ip))
    actions = []
    for kind, held, mode in targets:
        operations = build_mark_patch(held, instance, owned=mode is DeletionMode.DELETE)
        if operations:
            version = held["metadata"].get("resourceVersion", "")
            step = Patch(kind, key_of(held), uid_of(held), operations, resource_version=version)
            actions.append(Action(step, Reason.KEPT))
    return actions


def _plan_retirement(instance: Instance, observed: Observed, now: datetime) -> list[Action]:
    """Delete unneeded root disks; disks with other owners are released to them."""
    uid = instance.metadata.uid
    return [
        (
            release(disk.kind, disk.manifest, uid)
            if has_other_owner(disk.manifest, uid)
            else _retire(disk)
        )
        for disk in find_retired_disks(instance, observed, now)
    ]


def _retire(disk: DiskView) -> Action:
    note = f"Deleting {describe(disk.kind, key_of(disk.manifest))}, which was replaced"
    step = Delete(disk.kind, key_of(disk.manifest), disk.uid)
    return Action(step, Reason.DISK_RETIRED, note)
