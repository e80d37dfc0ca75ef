"""Find the other users of the disks of a machine: two machines that write one disk destroy it.

Neither Kubernetes nor KubeVirt prevents this. A claim with access mode ReadWriteMany, which live
migration needs, can be mounted by any number of machines.

A machine whose VirtualMachine, or current run, mounts a claim uses it. If none does, the Instance
whose root disk it is may use it first, else the oldest one that names it, so that two new Instances
never both start. The same Instance keeps it if two machines mount it nevertheless, because two
operators created them at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from libs.common.crd import ParseError
from libs.common.kinds import PVC, Key, key_of
from libs.common.runtime import Context
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE, disk_claims_of
from operators.compute.api.instance import INSTANCE, Instance
from operators.compute.instance.record import read_record
from operators.compute.instance.watches import BY_CLAIM, BY_USE
from operators.compute.naming import root_disk_name

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


def find_other_users(ctx: Context, instance: Instance, disks: Iterable[str]) -> dict[str, str]:
    """Return why claims cannot be used by this Instance now, by claim.

    Args:
        ctx: Context of the reconcile.
        instance: The Instance.
        disks: Root disks that the machine has or had, from which it may have to boot.
    """
    wanted = dict.fromkeys(disks, False) | _list_claims(instance)
    found = {claim: _find_other_user(ctx, instance, claim, wanted[claim]) for claim in wanted}
    return {claim: problem for claim, problem in found.items() if problem}


def _find_other_user(ctx: Context, instance: Instance, claim: str, shared: bool) -> str:
    mounting = [
        held
        for kind in (VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE)
        for held in ctx.indexed(kind, BY_CLAIM, str(Key(ctx.key.namespace, claim)))
    ]
    mounted = any(key_of(held) == ctx.key for held in mounting)
    machines = {
        key_of(held)
        for held in mounting
        if key_of(held) != ctx.key and not (shared and disk_claims_of(held)[claim])
    }
    rivals = {
        rival.metadata.key: rival
        for rival in _list_rivals(ctx, claim)
        if not (shared and _list_claims(rival)[claim])
    }
    own = _rank(instance, claim)
    for key in sorted(machines):
        rival = rivals.pop(key, None)
        if rival is None:
            return _explain_machine(ctx, key)
        if not mounted or _rank(rival, claim) < own:
            return _explain_rival(rival, claim)
    if mounted:
        return ""
    waiting = [rival for rival in rivals.values() if not rival.metadata.is_deleting]
    first = min(waiting, key=lambda rival: _rank(rival, claim), default=instance)
    return _explain_rival(first, claim) if _rank(first, claim) < own else ""


def _list_rivals(ctx: Context, claim: str) -> Iterator[Instance]:
    """Yield the other Instances whose spec or status names a claim."""
    for held in ctx.indexed(INSTANCE, BY_USE, f"{PVC.kind}/{claim}"):
        key = key_of(held)
        if key.namespace != ctx.key.namespace or key == ctx.key:
            continue
        try:
            rival = Instance.parse(held)
        except ParseError:
            continue  # It cannot start; if its machine exists, that one counts.
        if claim in _list_claims(rival):
            yield rival


def _list_claims(instance: Instance) -> dict[str, bool]:
    """Return the claims that an Instance names, and whether it shares them."""
    held = instance.observed.root_disk
    root = read_record(instance).disk or root_disk_name(instance.metadata.name)
    claims = {root if held is None else held.name: False}
    for directive in instance.spec.directives:
        claims |= dict.fromkeys(filter(None, (directive.disk, directive.attach)), False)
    # A DemoVolume has the name of its claim.
    return {
        volume.claim or volume.demo_volume or "": volume.shared for volume in instance.spec.volumes
    } | claims


def _rank(instance: Instance, claim: str) -> tuple[bool, datetime, str]:
    """Return the rank of an Instance among those that name a claim; the lowest one gets it."""
    created = instance.metadata.creation_timestamp or _NEVER
    return _is_volume(instance, claim), created, instance.metadata.name


def _is_volume(instance: Instance, claim: str) -> bool:
    return any(claim in (volume.claim, volume.demo_volume) for volume in instance.spec.volumes)


def _explain_rival(rival: Instance, claim: str) -> str:
    name = rival.metadata.name
    remedy = f"remove it from spec.volumes of Instance {name}"
    if not _is_volume(rival, claim):
        remedy = f"delete Instance {name}, or use a copy of the disk"
    return f"is used by Instance {name}; {remedy}"


def _explain_machine(ctx: Context, key: Key) -> str:
    if ctx.get(INSTANCE, key) is None:
        return f"is used by VirtualMachine {key.name}; remove it there"
    return (
        f"is still attached to the running Instance {key.name}; reboot it with an Operation of "
        "type Reboot"
    )
