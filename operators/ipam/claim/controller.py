"""The controller of claims: show the address of a claim, and lead it to its target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from libs.common.conditions import Condition, conditions_of
from libs.common.errors import Conflict, Forbidden, ForeignObject, UnknownOutcome, Unreachable
from libs.common.finalizers import has_finalizer
from libs.common.kinds import (
    CORE_EVENT,
    ENDPOINT_SLICE,
    POD,
    SERVICE,
    Key,
    Kind,
    Manifest,
    key_of,
    uid_of,
)
from libs.common.labels import SERVICE_NAME
from libs.common.ownership import controller_uid
from libs.common.plan import Apply, Delete, Outcome, Step
from libs.common.reading import map_at, text_at, time_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.compute import INSTANCE
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from libs.contracts.launchers import LAUNCHER_SELECTOR, shrink_launcher
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
from operators.ipam.claim.announcement import (
    ANNOUNCERS,
    Announcer,
    evaluate_announced,
    require_announced,
)
from operators.ipam.claim.binding import Binding, BindingPlan, plan_binding
from operators.ipam.claim.observe import (
    BY_TARGET,
    CLAIM_INDEXES,
    POD_INDEXES,
    SLICE_INDEXES,
    Target,
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
    Holding,
    build_status,
    check_reach,
    find_holding,
    may_publish,
    plan_lingering,
    plan_unpublished,
    require_ports,
)
from operators.ipam.claim.resources import PortMap, Publication, build_children
from operators.ipam.ledger_projection import LedgerProjection
from operators.ipam.naming import CLAIM_CONTROLLER, FINALIZER, service_name
from operators.ipam.pool.reconcile import PendingReason
from operators.ipam.relist import find_relist_delay
from operators.ipam.settings import Settings

_CHILDREN: Final = (SERVICE, ENDPOINT_SLICE)
_PATIENCE: Final = timedelta(seconds=5)
"""How long a load balancer may take for a new Service before its Events are read."""
_REFUSED_SECONDS: Final = 60.0
"""Seconds between two looks at the Events of a Service that no load balancer announces."""
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
            needs_finalizer=needs_finalizer,
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
        .projects(LedgerProjection)
    )


@dataclass(frozen=True, slots=True)
class AnnouncementState:
    """What was seen of the announcement of a Service.

    Attributes:
        announced: Whether its addresses are announced; None without a Service.
        again: Seconds until another look; None to wait for an event.
    """

    announced: Condition | None = None
    again: float | None = None


def needs_finalizer(claim: Mapping[str, Any]) -> bool:
    """Return whether there is something to withdraw before a claim may go.

    A claim without a target has nothing but its entry in the ledger, which is released once the
    claim is gone, by its UID.
    """
    state = text_at(claim, "status", "binding", "state")
    return bool(map_at(claim, "spec", "target")) or state not in ("", BindingState.UNBOUND)


class Reconciler:
    """Lead addresses to their targets.

    Args:
        settings: Settings of the process.
    """

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; there is no other state."""
        self._settings = settings

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile a claim that is not being deleted."""
        claim = IPClaim.parse(ctx.primary)
        holdings = _read_holdings(ctx, claim)
        if not all(holding.known for holding in holdings):
            # The pools have not looked yet, and wake this claim once they have.
            return None
        plan, target = self._plan(ctx, claim, holdings)
        outcome = await self._publish(ctx, claim, holdings, plan, target)
        if isinstance(outcome.first_error(), _PASSING):
            # The next reconcile reports the result.
            return Result.from_outcome(outcome)
        if not outcome.ok:
            plan = _explain(observe_binding(ctx, claim), outcome)
        elif claim.spec.target is None and (left := ctx.children(SERVICE)):
            # A load balancer may keep the Service until it has cleaned up, and this the finalizer.
            plan = plan_lingering(plan, key_of(left[0]).name)
        sighting = await self._look(ctx, holdings)
        if sighting.announced is not None:
            plan = require_announced(plan, sighting.announced)
        status = build_status(
            claim,
            holdings,
            plan,
            current=conditions_of(ctx.primary),
            now=ctx.now(),
            announced=sighting.announced,
        )
        if await ctx.apply_status(status):
            _report_move(ctx, claim, plan)
        # Our own status asks for no reconcile, and the next one takes the finalizer off.
        idle = claim.spec.target is None and plan.state is BindingState.UNBOUND
        again = plan.again or (idle and has_finalizer(ctx.primary, FINALIZER))
        return Result.from_outcome(outcome, requeue_after=0 if again else sighting.again)

    async def finalize(self, ctx: Context) -> Result | None:
        """Take the address off its target and let the claim go; its entry is then released."""
        claim = IPClaim.parse(ctx.primary)
        keeps = claim.spec.deletion_policy is DeletionPolicy.REFUSE_WHILE_ASSIGNED
        if keeps and await has_target(ctx, claim):
            message = (
                "spec.deletionPolicy prevents the deletion while spec.target is"
                f" {claim.spec.target}; remove spec.target"
            )
            await self._show_end(ctx, claim, ClaimReason.STILL_ASSIGNED, message)
            return Result()
        outcome = await ctx.execute(_plan_withdrawal(ctx))
        left = await _find_children(ctx)
        if outcome.ok and not left:
            return None
        names = ", ".join(f"{kind.kind} {key_of(child).name}" for kind, child in left)
        message = f"waiting for {names or 'the Service'} to be deleted"
        await self._show_end(ctx, claim, ClaimReason.WITHDRAWING, message)
        return Result.from_outcome(outcome, requeue_after=find_relist_delay(ctx, left))

    def _plan(
        self, ctx: Context, claim: IPClaim, holdings: Sequence[Holding]
    ) -> tuple[BindingPlan, Target]:
        families = {":" in holding.address for holding in holdings if holding.address}
        target = observe_target(ctx, claim, families)
        ports = _choose_ports(claim, target)
        current = observe_binding(ctx, claim)
        finding = target.finding
        if finding is None:
            return plan_binding(current, None), target
        if not may_publish(holdings):
            return plan_unpublished(current, holdings), target
        if not ports:
            finding = narrow_unserved(claim, finding, v6=":" in holdings[0].address)
            return require_ports(plan_binding(current, finding)), target
        return check_reach(plan_binding(current, finding), holdings[0].address), target

    async def _publish(
        self,
        ctx: Context,
        claim: IPClaim,
        holdings: Sequence[Holding],
        plan: BindingPlan,
        target: Target,
    ) -> Outcome:
        ports = _choose_ports(claim, target)
        if not may_publish(holdings) or not ports or claim.spec.target is None:
            return await ctx.execute(_plan_withdrawal(ctx))
        shown = Publication(
            tuple(holding.address for holding in holdings if holding.address),
            plan.binding,
            ports,
            self._settings.announcement,
            self._settings.load_balancer_class,
            {} if claim.spec.ports else target.ports_at,
        )
        children = build_children(claim, shown)
        kept = {key_of(manifest) for kind, manifest in children if kind == ENDPOINT_SLICE}
        surplus = [each for each in ctx.children(ENDPOINT_SLICE) if key_of(each) not in kept]
        return await ctx.execute(
            *([Apply(kind, manifest)] for kind, manifest in children),
            [Delete.of(ENDPOINT_SLICE, each) for each in surplus],
        )

    async def _look(self, ctx: Context, holdings: Sequence[Holding]) -> AnnouncementState:
        """Look whether the Service of a claim is announced, and when to look again."""
        name = service_name(ctx.key.name)
        service = ctx.get(SERVICE, Key(ctx.key.namespace, name))
        if service is None or controller_uid(service) != ctx.uid or not may_publish(holdings):
            return AnnouncementState()
        addresses = [holding.address for holding in holdings if holding.address]
        evaluate = partial(
            evaluate_announced, self._settings.announcement, name, service, addresses
        )
        announced = evaluate()
        if announced.reason != ClaimReason.WAITING_FOR_LOAD_BALANCER:
            # Whatever changes this changes the Service, whose event asks for another reconcile.
            refused = announced.reason == ClaimReason.REFUSED
            return AnnouncementState(announced, _REFUSED_SECONDS if refused else None)
        age = ctx.now() - (time_at(service, "metadata", "creationTimestamp") or ctx.now())
        if age < _PATIENCE:
            return AnnouncementState(announced, _PATIENCE.total_seconds())
        refusal = await _read_refusal(ctx, ANNOUNCERS[self._settings.announcement], service)
        return AnnouncementState(evaluate(refusal), _REFUSED_SECONDS)

    async def _show_end(
        self, ctx: Context, claim: IPClaim, reason: ClaimReason, message: str
    ) -> None:
        binding = observe_binding(ctx, claim)
        state = BindingState.BOUND if binding.places else BindingState.WITHDRAWN
        status = build_status(
            claim,
            _read_holdings(ctx, claim),
            BindingPlan(binding, state, reason, message),
            current=conditions_of(ctx.primary),
            now=ctx.now(),
            terminating=Condition.true(ClaimCondition.TERMINATING, reason, message),
        )
        await ctx.apply_status(status)


async def _read_refusal(ctx: Context, announcer: Announcer, service: Manifest) -> str:
    """Read the newest Event in which a load balancer refuses a Service; empty for none."""
    if not announcer.refusal_event:
        return ""
    selector = f"involvedObject.uid={uid_of(service)},reason={announcer.refusal_event}"
    try:
        listing = await ctx.client.list(CORE_EVENT, ctx.key.namespace, field_selector=selector)
    except Forbidden:
        # Roles of an earlier release do not allow it; only the reason is missing then.
        return ""
    newest = max(listing.items, key=lambda event: text_at(event, "lastTimestamp"), default={})
    return text_at(newest, "message")


def _read_holdings(ctx: Context, claim: IPClaim) -> list[Holding]:
    status, second = claim.status, claim.spec.secondary
    held = (status.address or "", status.secondary_address or "") if status else ("", "")
    holdings = [_take(ctx, claim.spec.pool_ref.name, held[0])]
    if second is not None:
        holdings.append(_take(ctx, second.pool_ref.name, held[1]))
    return holdings


def _take(ctx: Context, pool: str, held: str) -> Holding:
    book = ctx.projection(LedgerProjection)
    entries = book.ledger.entries_of(pool, ctx.uid)
    pending_reason = book.find_pending_reason(pool, ctx.uid)
    if ctx.get(IP_POOL, Key("", pool)) is None:
        pending_reason = PendingReason(ClaimReason.POOL_NOT_FOUND, f"there is no IPPool {pool}")
    elif pool not in book.ledger.ranges:
        message = f"IPPool {pool} cannot be read; see its condition Ready"
        pending_reason = PendingReason(ClaimReason.POOL_NOT_READY, message)
    return find_holding(pool, held, entries, pending_reason)


def _choose_ports(claim: IPClaim, target: Target) -> tuple[PortMap, ...]:
    return tuple(PortMap.of(port) for port in claim.spec.ports) or target.ports


def _plan_withdrawal(ctx: Context) -> list[Step]:
    # The Service first: what is not announced needs no endpoint.
    return [Delete.of(kind, child) for kind in _CHILDREN for child in ctx.children(kind)]


async def _find_children(ctx: Context) -> list[tuple[Kind, Manifest]]:
    """Look for children at the API server: what is released may be somebody else's immediately."""
    name, namespace = service_name(ctx.key.name), ctx.key.namespace
    service = await ctx.live_get(SERVICE, Key(namespace, name))
    listing = await ctx.client.list(
        ENDPOINT_SLICE, namespace, label_selector=f"{SERVICE_NAME}={name}"
    )
    found = [(SERVICE, service)] if service is not None else []
    found += [(ENDPOINT_SLICE, each) for each in listing.items]
    return [
        (kind, each)
        for kind, each in found
        if any(
            owner.get("uid") == ctx.uid for owner in each["metadata"].get("ownerReferences") or ()
        )
    ]


def _explain(held: Binding, outcome: Outcome) -> BindingPlan:
    error = outcome.first_error()
    reason = ClaimReason.BINDING_FAILED
    if isinstance(error, ForeignObject):
        reason = ClaimReason.NAME_TAKEN
    return BindingPlan(held, BindingState.PENDING, reason, str(error))


def _report_move(ctx: Context, claim: IPClaim, plan: BindingPlan) -> None:
    """Record an Event if an address moved; the condition reports its first endpoint."""
    before = claim.status
    shown = before.binding if before is not None else None
    epoch = shown.epoch if shown is not None else 0
    if plan.binding.epoch == epoch:
        return
    places = plan.binding.places
    if not places:
        ctx.event("Normal", plan.reason, plan.message or "The address routes traffic nowhere")
        return
    ctx.metrics.counter(metrics.MOVES).inc()
    if plan.binding.epoch > 1:
        where = f"{places[0].address} on {places[0].node}" if places[0].node else places[0].address
        note = f"The address routes traffic to {plan.binding.target} at {where}"
        ctx.event("Normal", ClaimReason.BOUND, note)


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
    name, ledger = key_of(pool).name, cache.projection(LedgerProjection).ledger
    if cache.store(IP_POOL).get(key_of(pool)) is None or name not in ledger.ranges:
        yield from (request.claim for request in ledger.open.get(name, {}).values())
    claims = cache.store(IP_CLAIM).indexed(BY_TARGET, f"Address of {name}")
    yield from (key_of(claim) for claim in claims)
