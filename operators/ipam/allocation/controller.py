"""Controller of IPAllocation: releases an address after its claim was deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from libs.common.conditions import Condition, build_conditions, conditions_of, render_time
from libs.common.kinds import NAMESPACE, SERVICE, Key, Manifest, is_deleting, key_of, uid_of
from libs.common.labels import MANAGED_BY
from libs.common.ownership import controller_uid
from libs.common.plan import Delete
from libs.common.reading import map_at, text_at
from libs.common.runtime import Cache, Context, Controller, IndexFunction, Result
from operators.ipam import metrics
from operators.ipam.allocation.reconcile import (
    ClaimState,
    CurrentClaim,
    EntryAction,
    evaluate_hold,
    plan_release,
)
from operators.ipam.api.v1alpha1.allocations import (
    IP_ALLOCATION,
    AllocationCondition,
    AllocationReason,
    IPAllocation,
)
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.claim.observe import BY_ADDRESS, index_service_by_address
from operators.ipam.ledger_projection import LedgerProjection
from operators.ipam.naming import ALLOCATION_CONTROLLER, FINALIZER, OPERATOR_ID
from operators.ipam.relist import find_relist_delay
from operators.ipam.settings import Settings

_RESTORE_SECONDS: Final = 3600
"""Minimum quarantine of an entry of an earlier pool of this name: the claims may be restored later
than the ledger."""
BY_NAMESPACE: Final = "namespace"
"""Index of the entries by namespace of their claim."""
BY_CLAIM: Final = "claim"
"""Index of the entries by UID of their claim."""


def build_controller(_: Settings) -> Controller:
    """Build the controller of IPAllocation."""
    return (
        Controller(
            ALLOCATION_CONTROLLER,
            primary=IP_ALLOCATION,
            reconcile=reconcile,
            finalize=finalize,
            finalizer=FINALIZER,
            source="reflector",
            reports_ready=False,
        )
        .watches(IP_CLAIM, map_claim, source="reflector")
        .watches(IP_POOL, map_pool)
        .watches(NAMESPACE, map_namespace, why="release the addresses of deleted namespaces")
        .watches(SERVICE, map_service)
        .reads(
            IP_ALLOCATION,
            indexes={
                BY_CLAIM: _index_by("claimRef", "uid"),
                BY_NAMESPACE: _index_by("claimRef", "namespace"),
                BY_ADDRESS: _index_by("address"),
            },
        )
        .projects(LedgerProjection)
    )


async def reconcile(ctx: Context) -> Result | None:
    """Keep the entry while its claim has the address; otherwise quarantine and delete the entry."""
    entry = IPAllocation.parse(ctx.primary)
    if not await _is_served(ctx, entry):
        return None
    hold = await _find_hold(ctx, entry)
    status = entry.status
    plan = plan_release(
        hold,
        grace_seconds=_find_grace(ctx, entry),
        released_at=None if status is None else status.released_at,
        now=ctx.now(),
    )
    if plan.move is EntryAction.KEEP:
        # A deletion cannot be undone, so the condition Terminating is never cleared.
        return None
    if plan.move is EntryAction.RETURN:
        if left := _find_services(ctx, entry):
            return await _withdraw(ctx, entry, left)
        outcome = await ctx.execute([Delete.of(IP_ALLOCATION, ctx.primary)])
        if outcome.changed:
            surplus = hold is ClaimState.SURPLUS
            reason = AllocationReason.SURPLUS if surplus else AllocationReason.RETURNED
            _report_release(ctx, reason, f"Released {entry.spec.address}")
            ctx.metrics.counter(metrics.RELEASES).labels(entry.spec.pool_ref.name).inc()
        # The finalizer is removed in the next reconcile.
        return Result.from_outcome(outcome)
    assert plan.released_at is not None
    assert plan.until is not None
    until = render_time(plan.until)
    reason = AllocationReason.QUARANTINED
    quarantine = _build_quarantine_status(
        ctx, plan.released_at, reason, f"quarantined until {until}"
    )
    quarantine["quarantinedUntil"] = until
    if await ctx.apply_status(quarantine) and plan.move is EntryAction.REST:
        _report_release(ctx, reason, f"{entry.spec.address} is quarantined after its release")
    return Result(requeue_after=max(0.05, (plan.until - ctx.now()).total_seconds()))


async def finalize(ctx: Context) -> Result | None:
    """Remove the finalizer if no claim has the address.

    An entry whose address is in use stays, whoever deleted it: without the entry, the address could
    be allocated to another claim.
    """
    entry = IPAllocation.parse(ctx.primary)
    if not await _is_served(ctx, entry):
        return Result()
    if await _find_hold(ctx, entry) is not ClaimState.HELD:
        if left := _find_services(ctx, entry):
            return await _withdraw(ctx, entry, left)
        return None
    claim = entry.spec.claim_ref
    message = (
        f"IPClaim {claim.namespace}/{claim.name} has the address; delete the claim to release it"
    )
    held = Condition.true(AllocationCondition.TERMINATING, AllocationReason.HELD_BY_CLAIM, message)
    await ctx.apply_status({"conditions": _conditions(ctx, [held])})
    return Result()


def _find_services(ctx: Context, entry: IPAllocation) -> list[Manifest]:
    """Return the Services with an address in namespaces where no claim has it.

    Users can delete a claim past its finalizer and without its children. Traffic of the address is
    then still routed to the Service, so another claim must not get the address.
    """
    address, former = entry.spec.address, entry.spec.claim_ref.uid
    claims = ctx.indexed(IP_CLAIM, BY_ADDRESS, address)
    served = {key_of(each).namespace for each in claims if uid_of(each) != former}
    found = ctx.indexed(SERVICE, BY_ADDRESS, address)
    return [each for each in found if key_of(each).namespace not in served]


async def _withdraw(ctx: Context, entry: IPAllocation, services: Sequence[Manifest]) -> Result:
    """Delete Services of former claims, and keep the entry until no Service has the address."""
    # The garbage collector deletes those that still have an owner.
    ours = [
        Delete.of(SERVICE, each)
        for each in services
        if text_at(each, "metadata", "labels", MANAGED_BY) == OPERATOR_ID
        and not (controller_uid(each) or is_deleting(each))
    ]
    outcome = await ctx.execute(ours)
    message = (
        f"Service {key_of(services[0])} has the address, and no claim of its namespace has it; "
        "delete the Service to release the address"
    )
    reason = AllocationReason.HELD_BY_SERVICE
    released_at = (entry.status and entry.status.released_at) or ctx.now()
    if await ctx.apply_status(_build_quarantine_status(ctx, released_at, reason, message)):
        _report_release(ctx, reason, message)
    delay = find_relist_delay(ctx, ((SERVICE, each) for each in services))
    return Result.from_outcome(outcome, requeue_after=delay)


async def _is_served(ctx: Context, entry: IPAllocation) -> bool:
    """Return whether this process decides about an entry.

    A release decides about the namespaces that it watches. If the namespace of a claim no longer
    exists, no release may watch it, and every release can be sure that the claim does not exist.
    """
    namespace = entry.spec.claim_ref.namespace
    if ctx.is_watched(IP_CLAIM, namespace):
        return True
    key = Key("", namespace)
    return ctx.get(NAMESPACE, key) is None and await ctx.live_get(NAMESPACE, key) is None


async def _find_hold(ctx: Context, entry: IPAllocation) -> ClaimState:
    spec = entry.spec
    key = Key(spec.claim_ref.namespace, spec.claim_ref.name)
    pool, uid = spec.pool_ref.name, spec.claim_ref.uid
    if not ctx.is_watched(IP_CLAIM, key.namespace):
        return ClaimState.GONE
    cached = ctx.get(IP_CLAIM, key)
    if (
        evaluate_hold(pool, spec.address, uid, _parse_claim(ctx, cached)) is ClaimState.HELD
        and cached is not None
    ):
        # An outdated cache is safe here: it can only delay the release. An address is released only
        # after a read from the API server, see below.
        return ClaimState.HELD
    live = await ctx.live_get(IP_CLAIM, key)
    return evaluate_hold(pool, spec.address, uid, _parse_claim(ctx, live))


def _parse_claim(ctx: Context, claim: Manifest | None) -> CurrentClaim | None:
    if claim is None:
        return None
    requests = ctx.projection(LedgerProjection).list_requests(claim)
    return CurrentClaim(uid_of(claim), {request.pool: request.held for request in requests})


def _find_grace(ctx: Context, entry: IPAllocation) -> int:
    """Return the seconds of quarantine; 0 if the address does not return to its pool."""
    pool = ctx.get(IP_POOL, Key("", entry.spec.pool_ref.name))
    if pool is None:
        # A pool stays until it has no entry. So the entry was restored from a backup before it.
        return _RESTORE_SECONDS
    held = ctx.projection(LedgerProjection).ledger
    known, mine = held.ranges.get(entry.spec.pool_ref.name), held.entries.get(ctx.key.name)
    if is_deleting(pool) or known is None or mine is None:
        return 0
    if mine.space != known.space or mine.number not in known.addresses:
        return 0
    seconds = map_at(pool, "spec").get("reuseGraceSeconds")
    grace = seconds if isinstance(seconds, int) else 0
    restored = entry.spec.pool_ref.uid != uid_of(pool)
    return max(grace, _RESTORE_SECONDS) if restored else grace


def _build_quarantine_status(
    ctx: Context, released_at: datetime, reason: AllocationReason, message: str
) -> Manifest:
    released = Condition.true(AllocationCondition.RELEASED, reason, message)
    return {
        "conditions": _conditions(ctx, [released]),
        "releasedAt": render_time(released_at),
    }


def _conditions(ctx: Context, conditions: Sequence[Condition]) -> list[Manifest]:
    current = conditions_of(ctx.primary)
    return build_conditions(current, conditions, generation=ctx.generation, now=ctx.now())


def _report_release(ctx: Context, reason: AllocationReason, note: str) -> None:
    ctx.log.info(note, reason=str(reason))
    ctx.event("Normal", reason, note)


# Index, and the mapping of changes to the entries that they affect.


def _index_by(*path: str) -> IndexFunction:
    return lambda entry: (text_at(entry, "spec", *path),)


def map_service(service: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a Service to the released entries of its addresses."""
    for address in index_service_by_address(service):
        for entry in cache.store(IP_ALLOCATION).indexed(BY_ADDRESS, address):
            if text_at(entry, "status", "releasedAt"):
                yield key_of(entry)


def map_namespace(namespace: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a deleted namespace to the entries of its claims."""
    key = key_of(namespace)
    if cache.store(NAMESPACE).get(key) is None:
        yield from map(key_of, cache.store(IP_ALLOCATION).indexed(BY_NAMESPACE, key.name))


def map_claim(claim: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a claim to its entries, if it was deleted or its status has another address."""
    held = cache.store(IP_CLAIM).get(key_of(claim))
    gone = held is None or uid_of(held) != uid_of(claim)
    shown = {request.held for request in cache.projection(LedgerProjection).list_requests(claim)}
    for entry in cache.store(IP_ALLOCATION).indexed(BY_CLAIM, uid_of(claim)):
        if gone or (any(shown) and text_at(entry, "spec", "address") not in shown):
            yield key_of(entry)


def map_pool(pool: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a pool to its entries in quarantine, whose duration depends on the spec of the pool."""
    resting = cache.projection(LedgerProjection).ledger.list_resting(key_of(pool).name)
    return [Key("", entry.name) for entry in resting]
