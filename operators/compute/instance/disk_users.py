"""Find the other users of the disks of a machine: two machines that write one disk destroy it.

Neither Kubernetes nor KubeVirt prevents this. A claim with access mode ReadWriteMany, which live
migration needs, can be mounted by any number of machines.

A machine whose VirtualMachine, or current run, mounts a claim uses it. If none does, the Instance
whose root disk it is may use it first, else the oldest one that names it, so that two new Instances
never both start. The same Instance keeps it if two machines mount it nevertheless, because two
operators created them at the same time.

The Instances that name a claim form a line, in which each one waits for the one before it. So a
change affects the next one only, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from libs.common.kinds import Key, Manifest, is_deleting, key_of
from libs.common.runtime import Context
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE, disk_claims_of
from operators.compute.api.instance import INSTANCE
from operators.compute.instance.watches import BY_CLAIM, BY_DISK, is_volume, list_claims, rank


def find_other_users(ctx: Context, disks: Iterable[str]) -> dict[str, str]:
    """Return why claims cannot be used by the Instance now, by claim.

    Args:
        ctx: Context of the reconcile of the Instance.
        disks: Root disks that the machine has or had, from which it may have to boot.
    """
    wanted = dict.fromkeys(disks, False) | list_claims(ctx.primary)
    found = {claim: _find_other_user(ctx, claim, wanted[claim]) for claim in wanted}
    return {claim: problem for claim, problem in found.items() if problem}


def _find_other_user(ctx: Context, claim: str, shared: bool) -> str:
    index = str(Key(ctx.key.namespace, claim))
    mounting = [
        held
        for kind in (VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE)
        for held in ctx.indexed(kind, BY_CLAIM, index)
    ]
    machines = {
        key_of(held)
        for held in mounting
        if key_of(held) != ctx.key and not (shared and disk_claims_of(held)[claim])
    }
    rivals = {
        key_of(rival): rival
        for rival in ctx.indexed(INSTANCE, BY_DISK, index)
        if key_of(rival) != ctx.key and not (shared and list_claims(rival)[claim])
    }
    own = rank(ctx.primary, claim)
    if any(key_of(held) == ctx.key for held in mounting):
        machines = {key for key in machines if key not in rivals or rank(rivals[key], claim) < own}
        rivals = {key: rivals[key] for key in machines & rivals.keys()}
    before = [
        (rank(rival, claim), key)
        for key, rival in rivals.items()
        if rank(rival, claim) < own and (key in machines or not is_deleting(rival))
    ]
    found = [key for _, key in sorted(before)[-1:]] or sorted(machines)[:1]
    return _explain(ctx, found[0], claim, rivals, machines) if found else ""


def _explain(
    ctx: Context, key: Key, claim: str, rivals: Mapping[Key, Manifest], machines: AbstractSet[Key]
) -> str:
    if key not in rivals and ctx.get(INSTANCE, key) is None:
        return f"is used by VirtualMachine {key.name}; remove it there"
    if key not in rivals:
        return (
            f"is still attached to the running Instance {key.name}; reboot it with an Operation of "
            "type Reboot"
        )
    remedy = f"remove it from spec.volumes of Instance {key.name}"
    if not is_volume(rivals[key], claim):
        remedy = "use a copy of the disk"
    if key in machines:
        return f"is used by Instance {key.name}; {remedy}"
    return f"is wanted by Instance {key.name}, which comes first; {remedy}"
