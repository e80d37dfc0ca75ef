"""Planning and status of an IPAddressClaim. Pure.

The IPAM provider contract of Cluster API requires that a provider does nothing for a claim if its
Cluster or pool is paused, or if its Cluster does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from libs.common.conditions import READY, Condition, build_conditions, find_condition
from libs.common.finalizers import build_remove_patch
from libs.common.kinds import Key, Manifest, describe, is_deleting, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.plan import Create, Delete, Patch, Step
from libs.common.reading import text_at
from libs.contracts.cluster_api import (
    IP_ADDRESS,
    find_cluster,
    is_paused,
)
from operators.ipam.api.v1alpha1.claims import IP_CLAIM, ClaimReason
from operators.ipam.api.v1alpha1.pools import IP_POOL, IPPool
from operators.ipam.claimed import find_addresses
from operators.ipam.cluster_api.resources import PROTECTION, build_address, build_claim, claim_name


class Reason(StrEnum):
    """Reasons of the condition Ready of an IPAddressClaim, as Cluster API has them."""

    READY = "Ready"
    """Ready means that the claim has an IPAddress."""
    POOL_NOT_READY = "PoolNotReady"
    """PoolNotReady means that the IPPool does not exist, or lacks what an IPAddress needs."""
    POOL_EXHAUSTED = "PoolExhausted"
    """PoolExhausted means that the IPPool has no free address."""
    ALLOCATION_FAILED = "AllocationFailed"
    """AllocationFailed means that there is another reason for having no address."""


_POOL_REASONS: Final = frozenset(
    {ClaimReason.POOL_NOT_FOUND, ClaimReason.POOL_NOT_READY, ClaimReason.POOL_DRAINING}
)


@dataclass(frozen=True, slots=True)
class Observed:
    """The current state of one IPAddressClaim and its dependencies.

    Attributes:
        cluster: Cluster that the claim names; None if it does not exist.
        pool: IPPool that the claim names; None if it does not exist.
        claim: IPClaim with the name that this operator uses, whoever owns it.
        address: IPAddress with the name of the claim, whoever owns it.
    """

    cluster: Manifest | None = None
    pool: Manifest | None = None
    claim: Manifest | None = None
    address: Manifest | None = None


def is_ours(claim: Mapping[str, object]) -> bool:
    """Return whether an IPAddressClaim refers to an IPPool of this operator."""
    group, kind = (text_at(claim, "spec", "poolRef", name) for name in ("apiGroup", "kind"))
    return (group, kind) == (IP_POOL.group, IP_POOL.kind)


def is_held(claim: Manifest, observed: Observed) -> bool:
    """Return whether the contract forbids changes for a claim now.

    A claim that is being deleted is released even if its Cluster is not found: the Cluster may have
    been deleted before it.
    """
    if is_paused(claim) or (observed.pool is not None and is_paused(observed.pool)):
        return True
    if not find_cluster(claim):
        return False
    if observed.cluster is None:
        return not is_deleting(claim)
    return is_paused(observed.cluster)


def plan_claim(claim: Manifest, pool: IPPool | None, observed: Observed) -> list[Step]:
    """Plan the next step for a claim; empty if no step is needed or possible."""
    uid = uid_of(claim)
    if pool is None or (pool.spec.prefix is None and observed.address is None):
        return []

    def is_own(held: Manifest) -> bool:
        return controller_uid(held) == uid

    # If another owner's object has the name, the create fails and is retried until the name is
    # free.
    if observed.claim is None or not is_own(observed.claim):
        # An IPAddress without an IPClaim was moved together with its IPAddressClaim from another
        # cluster by `clusterctl move`, or was restored from a backup. Its address is kept if the
        # pool contains it.
        own = observed.address is not None and is_own(observed.address)
        held = text_at(observed.address or {}, "spec", "address") if own else ""
        return [Create(IP_CLAIM, build_claim(claim, held), ours=is_own, inherits=True)]
    address = next(iter(find_addresses(observed.claim)), "")
    assigned = observed.address is not None and is_own(observed.address)
    if not address or assigned or pool.spec.prefix is None:
        return []
    manifest = build_address(claim, pool, address, pool.spec.prefix)
    return [Create(IP_ADDRESS, manifest, ours=is_own)]


def plan_removal(claim: Manifest, observed: Observed) -> list[list[Step]]:
    """Plan to delete the IPAddress, after removing the finalizer that protects it."""
    address = observed.address
    if address is None or controller_uid(address) != uid_of(claim):
        return []
    batches: list[list[Step]] = [[Delete.of(IP_ADDRESS, address)]]
    if operations := build_remove_patch(address, PROTECTION):
        batches.insert(0, [Patch(IP_ADDRESS, key_of(address), uid_of(address), operations)])
    return batches


def plan_release(claim: Manifest, observed: Observed) -> list[list[Step]]:
    """Plan to delete the IPClaim, so that the address returns to its pool."""
    if observed.claim is None or controller_uid(observed.claim) != uid_of(claim):
        return []
    return [[Delete.of(IP_CLAIM, observed.claim)]]


def find_objection(
    claim: Manifest, pool: IPPool | None, observed: Observed
) -> tuple[Reason, str] | None:
    """Return why the claim cannot get an address now: a reason and a message; None if it can."""
    name, uid = text_at(claim, "spec", "poolRef", "name"), uid_of(claim)
    if pool is None:
        state = "does not exist" if observed.pool is None else "has a spec that cannot be read"
        return Reason.POOL_NOT_READY, f"spec.poolRef: IPPool {name} {state}"
    for kind, held in ((IP_CLAIM, observed.claim), (IP_ADDRESS, observed.address)):
        if held is not None and controller_uid(held) != uid:
            message = f"{describe(kind, key_of(held))} belongs to another object"
            return Reason.ALLOCATION_FAILED, message
    if pool.spec.prefix is None and observed.address is None:
        message = f"IPPool {name} has no spec.prefix, which an IPAddress needs; set it"
        return Reason.POOL_NOT_READY, message
    return None


def build_status(
    claim: Manifest,
    pool: IPPool | None,
    observed: Observed,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest | None:
    """Build the status; None if there is no result to report yet."""
    ready = _evaluate_ready(claim, pool, observed)
    if ready is None:
        return None
    generation = claim["metadata"].get("generation") or 0
    status: Manifest = {
        "conditions": build_conditions(current, [ready], generation=generation, now=now)
    }
    if ready.status == "True":
        status["addressRef"] = {"name": key_of(claim).name}
    return status


def _evaluate_ready(claim: Manifest, pool: IPPool | None, observed: Observed) -> Condition | None:
    objection = find_objection(claim, pool, observed)
    if objection is not None:
        return Condition.false(READY, *objection)
    given = next(iter(find_addresses(observed.claim or {})), "")
    held = text_at(observed.address or {}, "spec", "address")
    if given and held:
        if given == held:
            return Condition.true(READY, Reason.READY, f"address {held}")
        message = (
            f"{describe(IP_ADDRESS, key_of(claim))} has {held}, but the ledger has {given}; "
            "delete the IPAddressClaim to get another address"
        )
        return Condition.false(READY, Reason.ALLOCATION_FAILED, message)
    found = find_condition(observed.claim or {}, READY)
    if given or found is None:
        return None
    reason = str(found.get("reason"))
    if reason == ClaimReason.POOL_EXHAUSTED:
        translated = Reason.POOL_EXHAUSTED
    else:
        translated = Reason.POOL_NOT_READY if reason in _POOL_REASONS else Reason.ALLOCATION_FAILED
    return Condition.false(READY, translated, str(found.get("message")))


def keys_of(claim: Key) -> tuple[Key, Key]:
    """Return the keys of the IPClaim and of the IPAddress of an IPAddressClaim."""
    return Key(claim.namespace, claim_name(claim.name)), claim
