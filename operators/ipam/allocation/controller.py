"""Controller of IPAllocation: releases an address after its claim was deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from libs.common.conditions import Condition, build_conditions, conditions_of, render_time
from libs.common.kinds import NAMESPACE, Key, Manifest, is_deleting, key_of, uid_of
from libs.common.plan import Delete
from libs.common.reading import map_at, text_at
from libs.common.runtime import Cache, Context, Controller, Result
from operators.ipam import metrics
from operators.ipam.allocation.reconcile import (
    ClaimState,
    CurrentClaim,
    EntryAction,
    ReleasePlan,
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
from operators.ipam.ledger_projection import LedgerProjection
from operators.ipam.naming import ALLOCATION_CONTROLLER, FINALIZER
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
        .reads(IP_ALLOCATION, indexes={BY_CLAIM: index_by_claim, BY_NAMESPACE: index_by_namespace})
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
        outcome = await ctx.execute([Delete.of(IP_ALLOCATION, ctx.primary)])
        if outcome.changed:
            surplus = hold is ClaimState.SURPLUS
            reason = AllocationReason.SURPLUS if surplus else AllocationReason.RETURNED
            _report_release(ctx, reason, f"Released {entry.spec.address}")
            ctx.metrics.counter(metrics.RELEASES).labels(entry.spec.pool_ref.name).inc()
        # The finalizer is removed in the next reconcile.
        return Result.from_outcome(outcome)
    quarantine = _build_quarantine_status(ctx, plan)
    if await ctx.apply_status(quarantine) and plan.move is EntryAction.REST:
        _report_release(
            ctx,
            AllocationReason.QUARANTINED,
            f"{entry.spec.address} is quarantined after its release",
        )
    assert plan.until is not None
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
        return None
    claim = entry.spec.claim_ref
    message = (
        f"IPClaim {claim.namespace}/{claim.name} has the address; delete the claim to release it"
    )
    held = Condition.true(AllocationCondition.TERMINATING, AllocationReason.HELD_BY_CLAIM, message)
    await ctx.apply_status({"conditions": _conditions(ctx, [held])})
    return Result()


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


def _build_quarantine_status(ctx: Context, plan: ReleasePlan) -> Manifest:
    assert plan.released_at is not None
    assert plan.until is not None
    until = render_time(plan.until)
    released = Condition.true(
        AllocationCondition.RELEASED, AllocationReason.QUARANTINED, f"quarantined until {until}"
    )
    return {
        "conditions": _conditions(ctx, [released]),
        "releasedAt": render_time(plan.released_at),
        "quarantinedUntil": until,
    }


def _conditions(ctx: Context, conditions: Sequence[Condition]) -> list[Manifest]:
    current = conditions_of(ctx.primary)
    return build_conditions(current, conditions, generation=ctx.generation, now=ctx.now())


def _report_release(
    ctx: Context,
    reason: AllocationReason,
    note: str,
    event_type: Literal["Normal", "Warning"] = "Normal",
) -> None:
    ctx.log.info(note, reason=str(reason))
    ctx.event(event_type, reason, note)


# Index, and the mapping of changes to the entries that they affect.


def index_by_claim(entry: Manifest) -> Iterable[str]:
    """Index an entry by the UID of its claim."""
    return (text_at(entry, "spec", "claimRef", "uid"),)


def index_by_namespace(entry: Manifest) -> Iterable[str]:
    """Index an entry by the namespace of its claim."""
    return (text_at(entry, "spec", "claimRef", "namespace"),)


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
