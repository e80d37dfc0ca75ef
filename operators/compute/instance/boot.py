"""Boot verification of a guest, and the replaced disks that are kept until then. Pure.

KubeVirt reports an instance without a readiness probe as ready as soon as QEMU runs, whatever is on
its disk. Only a readiness probe or the guest agent proves that the guest has booted. The last proof
is kept in `status.verifiedBoot`: if the guest agent has responded before, it must respond again
after the next boot.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from libs.common.conditions import Condition, render_time
from libs.contracts.kubevirt import VmCondition
from operators.compute.api.directives import DirectiveKind
from operators.compute.api.disks import KeptDisk
from operators.compute.api.instance import Instance
from operators.compute.api.probes import BootCheck, Proof, VerifiedBoot
from operators.compute.api.reasons import ConditionType, Reason
from operators.compute.instance.observed import DiskView, Observed, Run


def find_verified_boot(instance: Instance, observed: Observed) -> VerifiedBoot | None:
    """Return the last run with a verified boot; it is kept until another run is verified."""
    held, run = instance.observed.verified_boot, observed.run
    if run is None or run.rescued or (held is not None and held.vmi_uid == run.view.uid):
        return held
    proof = _find_proof(run)
    return held if proof is None else VerifiedBoot(vmi_uid=run.view.uid, proof=proof)


def is_boot_verified(instance: Instance, observed: Observed) -> bool:
    """Return whether the boot of the current run is verified."""
    verified, run = find_verified_boot(instance, observed), observed.run
    return run is not None and verified is not None and verified.vmi_uid == run.view.uid


def evaluate_guest(instance: Instance, observed: Observed, run: Run) -> Condition:
    """Build the condition GuestVerified."""
    type_, verified = ConditionType.GUEST_VERIFIED, is_boot_verified(instance, observed)
    if run.rescued:
        message = "the machine runs from the rescue disk, so its boot is not verified"
        return Condition.unknown(type_, Reason.NOT_VERIFIED, message)
    if run.probed and run.ready:
        return Condition.true(type_, Reason.PROBE_SUCCEEDED)
    if run.probed and verified:
        return Condition.false(type_, Reason.PROBE_FAILED, "the readiness probe fails")
    if run.probed:
        message = "the readiness probe has not succeeded yet"
        return Condition.false(type_, Reason.WAITING_FOR_PROBE, message)
    if _find_proof(run) is Proof.AGENT:
        return Condition.true(type_, Reason.CONNECTED)
    if verified:
        message = "the guest agent responded earlier in this run but does not now"
        return Condition.unknown(type_, Reason.AGENT_LOST, message)
    if _expects_agent(instance):
        message = (
            "the guest agent has not responded yet; if the guest has none, set spec.bootCheck to "
            "Running or set spec.readinessProbe"
        )
        return Condition.false(type_, Reason.WAITING_FOR_AGENT, message)
    message = (
        "nothing shows whether the guest has booted; set spec.readinessProbe or install "
        "qemu-guest-agent"
    )
    return Condition.unknown(type_, Reason.NOT_VERIFIED, message)


def follow_kept_disks(instance: Instance, observed: Observed, now: datetime) -> list[KeptDisk]:
    """Return the replaced disks that are kept, each with the time at which it was first listed."""
    held = {disk.name: disk for disk in instance.observed.kept_disks}
    replaced = {disk.name for disk in find_replaced_disks(observed) if disk.filled}
    if is_boot_verified(instance, observed) or not _runs_from_template(observed):
        return [disk for name, disk in sorted(held.items()) if name in replaced]
    return [held.get(name) or KeptDisk(name=name, since=now) for name in sorted(replaced)]


def evaluate_kept_disks(instance: Instance, kept: list[KeptDisk]) -> list[Condition]:
    """Build the condition for a replaced disk that is kept; empty if there is none."""
    if not kept:
        return []
    first = kept[0]
    until = render_time(first.since + _keep_time(instance))
    others = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    message = (
        f"DataVolume {first.name}{others} kept until {until}: nothing has shown that the guest "
        "boots from the new disk"
    )
    return [Condition.true(ConditionType.REPLACED_DISK_KEPT, Reason.NOT_VERIFIED, message)]


def seconds_to_deletion(instance: Instance, kept: list[KeptDisk], now: datetime) -> float | None:
    """Return the seconds until a kept disk can be deleted; None if no disk is kept."""
    left = [(disk.since + _keep_time(instance) - now).total_seconds() for disk in kept]
    return max(min(left), 1.0) if left else None


def find_replaced_disks(observed: Observed) -> list[DiskView]:
    """Return the root disks from which the machine does not boot."""
    current = "" if observed.machine is None else observed.machine.disk
    return [disk for name, disk in sorted(observed.disks.items()) if name != current]


def find_retired_disks(instance: Instance, observed: Observed, now: datetime) -> list[DiskView]:
    """Return the root disks to delete.

    A directive keeps all disks, because its author may want to return to an earlier one. So does an
    Operation in progress, because somebody may have removed its directive. Otherwise a disk is
    deleted

    - if it was never filled and the current disk of the machine is filled;
    - if it is verified that the guest boots from its current disk;
    - if the boot has not been verified within the time that the user chose.
    """
    machine = observed.machine
    kept = instance.spec.directive(DirectiveKind.ROOT_DISK) is not None or observed.operation
    if kept or machine is None:
        return []
    current = observed.disks.get(machine.disk)
    if current is None or not current.filled:
        return []
    # A kept disk may be a volume of this machine or of another one, for example to copy data.
    used = {"" if observed.run is None else observed.run.disk, *observed.in_use}
    used |= {*machine.claims.values(), *(volume.claim or "" for volume in instance.spec.volumes)}
    others = [disk for disk in find_replaced_disks(observed) if disk.name not in used]
    others = [disk for disk in others if not disk.deleting]
    runs = _runs_from_template(observed)
    if runs and is_boot_verified(instance, observed):
        return others
    since = {disk.name: disk.since for disk in instance.observed.kept_disks}
    return [
        disk
        for disk in others
        if not (disk.filled or disk.unknown)
        or (runs and disk.name in since and now >= since[disk.name] + _keep_time(instance))
    ]


def _find_proof(run: Run) -> Proof | None:
    """Return the current proof that the guest has booted, or None."""
    if not run.ready:
        return None
    if run.probed:
        return Proof.PROBE
    return Proof.AGENT if run.view.conditions.holds(VmCondition.AGENT_CONNECTED) else None


def _expects_agent(instance: Instance) -> bool:
    held, check = instance.observed.verified_boot, instance.spec.boot_check
    before = held is not None and held.proof is Proof.AGENT
    return check is BootCheck.GUEST_AGENT or (check is BootCheck.AUTO and before)


def _runs_from_template(observed: Observed) -> bool:
    """Return whether the machine runs from the disk in its template."""
    machine, run = observed.machine, observed.run
    return machine is not None and run is not None and run.ready and run.disk == machine.disk


def _keep_time(instance: Instance) -> timedelta:
    return timedelta(seconds=instance.spec.root_disk.keep_replaced_seconds)
