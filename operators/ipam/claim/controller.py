"""The controller of claims: show the address of a claim, and lead it to its target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from libs.common.conditions import Condition, conditions_of
from libs.common.contracts.compute import INSTANCE
from libs.common.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from libs.common.contracts.launchers import LAUNCHER_SELECTOR, shrink_launcher
from libs.common.contracts.reading import text_at
from libs.common.errors import Conflict, UnknownOutcome, Unreachable
from libs.common.kinds import ENDPOINT_SLICE, POD, SERVICE, Key, Manifest, key_of, uid_of
from libs.common.plan import Apply, Delete, Outcome, Step
from libs.common.runtime import Cache, Context, Controller, ForeignObject, Result
from operators.ipam import metrics
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import (
    IP_CLAIM,
    BindingState,
    ClaimCondition,
    ClaimReason,
    DeletionPolicy,
    IPClaim,
)
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.book import Book
from operators.ipam.claim.binding import Binding, BindingPlan, plan_binding
from operators.ipam.claim.observe import (
    BY_TARGET,
    CLAIM_INDEXES,
    POD_INDEXES,
    SLICE_INDEXES,
    has_target,
    map_launcher,
    map_machine,
    map_service,
    map_slice,
    narrow_unserved,
    observe_binding,
    observe_target,
)
from operators.ipam.claim.reconcile import (
    Grip,
    build_status,
    check_reach,
    may_publish,
    plan_unpublished,
    take_grip,
)
from operators.ipam.claim.resources import PortMap, Publication, build_children
from operators.ipam.naming import CLAIM_CONTROLLER, FINALIZER, service_name, slice_name
from operators.ipam.pool.reconcile import Verdict
from operators.ipam.settings import Settings

_CHILDREN: Final = (SERVICE, ENDPOINT_SLICE)
_PASSING: Final = (Conflict, UnknownOutcome, Unreachable)
"""Errors that say nothing of the object that was written."""


def build_controller(settings: Settings) -> Controller:
    """Build the controller of IPClaim."""
    reconciler = Reconciler(settings)
    return (
        Controller(
            CLAIM_CONTROLLER,
            primary=IP_CLAIM,
            reconcile=reconciler.reconcile,
            finalize=reconciler.finalize,
            finalizer=FINALIZER,
            source="reflector",
        )
        .owns(SERVICE, source="reflector")
        .owns(ENDPOINT_SLICE, source="reflector", indexes=SLICE_INDEXES)
        .reads(IP_CLAIM, indexes=CLAIM_INDEXES)
        .watches(IP_ALLOCATION, map_allocation, source="reflector")
        .watches(IP_POOL, map_pool)
        .watches(INSTANCE, map_machine, optional=True)
        .watches(VIRTUAL_MACHINE_INSTANCE, map_machine, optional=True)
        .watches(
            POD,
            map_launcher,
            transform=shrink_launcher,
            label_selector=LAUNCHER_SELECTOR,
            source="reflector",
            indexes=POD_INDEXES,
        )
        .watches(SERVICE, map_service)
        .watches(ENDPOINT_SLICE, map_slice)
        .projects(Book)
    )


class Reconciler:
    """Lead addresses to their targets.

    Args:
        settings: Settings of the process.
    """

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; there is no other state."""
        self._settings = settings

    async def reconcile(self, ctx: Context) -> Result | None:
        """Make one pass over a claim that is to be there."""
        claim = IPClaim.parse(ctx.primary)
        grips = _take_grips(ctx, claim)
        if not all(grip.settled for grip in grips):
            # The pools have not looked yet, and wake this claim once they have.
            return None
        plan, ports = self._plan(ctx, claim, grips)
        outcome = await self._publish(ctx, claim, grips, plan, ports)
        if isinstance(outcome.first_error(), _PASSING):
            # What became of it is told by the next pass, which looks.
            return Result.from_outcome(outcome)
        if not outcome.ok:
            plan = _explain(observe_binding(ctx, claim), outcome)
        status = build_status(claim, grips, plan, current=conditions_of(ctx.primary), now=ctx.now())
        if await ctx.apply_status(status):
            _tell(ctx, claim, grips, plan)
        return Result.from_outcome(outcome, requeue_after=0 if plan.again else None)

    async def finalize(self, ctx: Context) -> Result | None:
        """Take the address off its target and let the claim go; its entry is then released."""
        claim = IPClaim.parse(ctx.primary)
        keeps = claim.spec.deletion_policy is DeletionPolicy.REFUSE_WHILE_ASSIGNED
        if keeps and await has_target(ctx, claim):
            message = (
                f"spec.deletionPolicy keeps the claim while spec.target is {claim.spec.target}; "
                "remove spec.target"
            )
            await self._show_end(ctx, claim, ClaimReason.STILL_ASSIGNED, message)
            return Result()
        outcome = await ctx.execute(_plan_withdrawal(ctx))
        left = await _find_children(ctx)
        if outcome.ok and not left:
            return None
        message = f"waiting for {', '.join(left) or 'the Service'} to go"
        await self._show_end(ctx, claim, ClaimReason.WITHDRAWING, message)
        return Result.from_outcome(outcome)

    def _plan(
        self, ctx: Context, claim: IPClaim, grips: Sequence[Grip]
    ) -> tuple[BindingPlan, tuple[PortMap, ...]]:
        families = {":" in grip.address for grip in grips if grip.address}
        target = observe_target(ctx, claim, families)
        ports = tuple(PortMap.of(port) for port in claim.spec.ports) or target.ports
        current = observe_binding(ctx, claim)
        finding = target.finding
        if finding is None:
            return plan_binding(current, None), ports
        if not may_publish(grips):
            return plan_unpublished(current, grips), ports
        if not ports:
            finding = narrow_unserved(claim, finding, v6=":" in grips[0].address)
        return check_reach(plan_binding(current, finding), grips[0].address), ports

    async def _publish(
        self,
        ctx: Context,
        claim: IPClaim,
        grips: Sequence[Grip],
        plan: BindingPlan,
        ports: tuple[PortMap, ...],
    ) -> Outcome:
        if not may_publish(grips) or not ports or claim.spec.target is None:
            return await ctx.execute(_plan_withdrawal(ctx))
        shown = Publication(
            tuple(grip.address for grip in grips if grip.address),
            plan.binding,
            ports,
            self._settings.announcement,
            self._settings.load_balancer_class,
        )
        children = build_children(claim, shown)
        return await ctx.execute(*([Apply(kind, manifest)] for kind, manifest in children))

    async def _show_end(
        self, ctx: Context, claim: IPClaim, reason: ClaimReason, message: str
    ) -> None:
        binding = observe_binding(ctx, claim)
        state = BindingState.BOUND if binding.places else BindingState.WITHDRAWN
        status = build_status(
            claim,
            _take_grips(ctx, claim),
            BindingPlan(binding, state, reason, message),
            current=conditions_of(ctx.primary),
            now=ctx.now(),
            terminating=Condition.true(ClaimCondition.TERMINATING, reason, message),
        )
        await ctx.apply_status(status)


def _take_grips(ctx: Context, claim: IPClaim) -> list[Grip]:
    status, second = claim.status, claim.spec.secondary
    held = (status.address or "", status.secondary_address or "") if status else ("", "")
    grips = [_take(ctx, claim.spec.pool_ref.name, held[0])]
    if second is not None:
        grips.append(_take(ctx, second.pool_ref.name, held[1]))
    return grips


def _take(ctx: Context, pool: str, held: str) -> Grip:
    book = ctx.projection(Book)
    entries = book.ledger.entries_of(pool, ctx.uid)
    verdict = book.find_verdict(pool, ctx.uid)
    if ctx.get(IP_POOL, Key("", pool)) is None:
        verdict = Verdict(ClaimReason.POOL_NOT_FOUND, f"there is no IPPool {pool}")
    elif pool not in book.ledger.ranges:
        message = f"IPPool {pool} cannot be read; see its condition Ready"
        verdict = Verdict(ClaimReason.POOL_NOT_READY, message)
    return take_grip(pool, held, entries, verdict)


def _plan_withdrawal(ctx: Context) -> list[Step]:
    # The Service first: what is not announced needs no endpoint.
    return [Delete.of(kind, child) for kind in _CHILDREN for child in ctx.children(kind)]


async def _find_children(ctx: Context) -> list[str]:
    """Look for children at the API server: what is released may be somebody else's at once."""
    name = ctx.key.name
    names = (
        (SERVICE, service_name(name)),
        *((ENDPOINT_SLICE, slice_name(name, v6=v6)) for v6 in (False, True)),
    )
    left = []
    for kind, child in names:
        live = await ctx.live_get(kind, Key(ctx.key.namespace, child))
        owners = (live or {}).get("metadata", {}).get("ownerReferences") or ()
        if any(owner.get("uid") == ctx.uid for owner in owners):
            left.append(f"{kind.kind} {child}")
    return left


def _explain(held: Binding, outcome: Outcome) -> BindingPlan:
    error = outcome.first_error()
    reason = ClaimReason.BINDING_FAILED
    if isinstance(error, ForeignObject):
        reason = ClaimReason.NAME_TAKEN
    return BindingPlan(held, BindingState.PENDING, reason, str(error))


def _tell(ctx: Context, claim: IPClaim, grips: Sequence[Grip], plan: BindingPlan) -> None:
    before = claim.status
    if (before is None or not before.address) and grips[0].address:
        addresses = " and ".join(grip.address for grip in grips if grip.address)
        ctx.event("Normal", ClaimReason.ALLOCATED, f"Got {addresses}")
    shown = before.binding if before is not None else None
    epoch = shown.epoch if shown is not None else 0
    if plan.binding.epoch == epoch:
        return
    places = plan.binding.places
    if places:
        ctx.metrics.counter(metrics.MOVES).inc()
        where = f"{places[0].address} on {places[0].node}" if places[0].node else places[0].address
        note = f"Leads to {plan.binding.target} at {where}"
        ctx.event("Normal", ClaimReason.BOUND, note)
    else:
        ctx.event("Normal", plan.reason, plan.message or "Leads nowhere")


# Whose business a change is.


def map_allocation(entry: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the claim that has an entry of the ledger."""
    key = Key(
        text_at(entry, "spec", "claimRef", "namespace"), text_at(entry, "spec", "claimRef", "name")
    )
    claim = cache.store(IP_CLAIM).get(key)
    if claim is not None and uid_of(claim) == text_at(entry, "spec", "claimRef", "uid"):
        yield key


def map_pool(pool: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the claims that wait for a pool that is gone or cannot be read, and plain targets."""
    name, ledger = key_of(pool).name, cache.projection(Book).ledger
    if cache.store(IP_POOL).get(key_of(pool)) is None or name not in ledger.ranges:
        yield from (request.claim for request in ledger.open.get(name, {}).values())
    claims = cache.store(IP_CLAIM).indexed(BY_TARGET, f"Address of {name}")
    yield from (key_of(claim) for claim in claims)
