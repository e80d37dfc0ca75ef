"""Controller of IPClaim: reports the address of a claim, and routes it to its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from libs.common.conditions import Condition, conditions_of
from libs.common.errors import Conflict, ForeignObject, Invalid, UnknownOutcome, Unreachable
from libs.common.finalizers import has_finalizer
from libs.common.kinds import (
    ENDPOINT_SLICE,
    ENDPOINTS,
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
from libs.common.plan import Apply, Delete, Outcome, Patch, Step
from libs.common.reading import map_at, text_at
from libs.common.runtime import Context, Controller, Result
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
from operators.ipam.claim import whole_address
from operators.ipam.claim.announced import AnnouncementState, observe_announcement
from operators.ipam.claim.announcement import ANNOUNCERS, require_announced
from operators.ipam.claim.binding import Binding, BindingPlan, plan_binding
from operators.ipam.claim.exclusive import (
    AddressConflict,
    is_conflicting,
    require_exclusive,
)
from operators.ipam.claim.observe import (
    BY_ADDRESS,
    CLAIM_INDEXES,
    POD_INDEXES,
    SERVICE_INDEXES,
    SLICE_INDEXES,
    Target,
    has_target,
    map_allocation,
    map_carrier,
    map_launcher,
    map_machine,
    map_pool,
    map_service,
    map_slice,
    narrow_unserved,
    observe_binding,
    observe_target,
)
from operators.ipam.claim.pods import PodEndpoints
from operators.ipam.claim.reconcile import (
    Holding,
    admit_unserved,
    build_status,
    check_reach,
    find_holding,
    may_publish,
    plan_lingering,
    plan_owner_release,
    plan_unpublished,
    require_ports,
)
from operators.ipam.claim.resources import PortMap, Publication, build_children
from operators.ipam.claim.whole_address import explain_unsupported, is_whole, require_supported
from operators.ipam.ledger_projection import LedgerProjection
from operators.ipam.naming import CLAIM_CONTROLLER, FINALIZER, service_name
from operators.ipam.pool.reconcile import PendingReason
from operators.ipam.relist import find_relist_delay
from operators.ipam.settings import Settings

_WRITES: Final = ("create", "patch", "delete")
_PASSING: Final = (Conflict, UnknownOutcome, Unreachable)
"""Errors that say nothing of the object that was written."""
_REFUSED_SECONDS: Final = 600.0
"""Seconds until a second family that the API server refused is tried again."""


def build_controller(settings: Settings) -> Controller:
    """Build the controller of IPClaim."""
    reconciler = Reconciler(settings)
    controller = (
        Controller(
            CLAIM_CONTROLLER,
            primary=IP_CLAIM,
            reconcile=reconciler.reconcile,
            finalize=reconciler.finalize,
            finalizer=FINALIZER,
            needs_finalizer=needs_finalizer,
            source="reflector",
        )
        .owns(
            SERVICE,
            source="reflector",
            indexes=SERVICE_INDEXES,
            writes=_WRITES,
            why="announce addresses",
        )
        .owns(
            ENDPOINT_SLICE,
            source="reflector",
            indexes=SLICE_INDEXES,
            writes=_WRITES,
            why="route addresses to their targets",
        )
        .reads(IP_CLAIM, indexes=CLAIM_INDEXES)
        .watches(IP_ALLOCATION, map_allocation, source="reflector")
        .watches(IP_POOL, map_pool)
        .watches(
            INSTANCE, map_machine, optional=True, why="check that the target of an address exists"
        )
        .watches(
            VIRTUAL_MACHINE_INSTANCE,
            map_machine,
            optional=True,
            why="follow machines as they move",
        )
        .watches(
            POD,
            map_launcher,
            transform=shrink_launcher,
            label_selector=LAUNCHER_SELECTOR,
            source="reflector",
            indexes=POD_INDEXES,
            why="find the addresses of launcher pods",
        )
        .watches(SERVICE, map_service)
        .watches(SERVICE, map_carrier)
        .watches(ENDPOINT_SLICE, map_slice)
        .projects(LedgerProjection)
    )
    if not settings.cozy_proxy:
        return controller
    return controller.owns(
        ENDPOINTS,
        source="reflector",
        writes=_WRITES,
        why="route whole addresses by cozy-proxy",
    )


def needs_finalizer(claim: Mapping[str, Any]) -> bool:
    """Return whether the operator must clean up before a claim is deleted.

    A claim without a target has only its entry in the ledger. The entry needs no finalizer on the
    claim: it is released after the claim with its UID no longer exists.
    """
    state = text_at(claim, "status", "binding", "state")
    return bool(map_at(claim, "spec", "target")) or state not in ("", BindingState.UNBOUND)


class Reconciler:
    """The reconciler that routes addresses to their targets."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings."""
        self._settings = settings
        # Family that the API server refuses for the Service of a claim, and since when; True means
        # IPv6. A policy can refuse it in one namespace, so it says nothing of other claims.
        self._unserved: dict[str, tuple[bool, datetime]] = {}
        self._pods = PodEndpoints()
        # In the order of their deletion: the Service first, so that the address is no longer
        # announced when its endpoints disappear.
        further = (ENDPOINTS,) if settings.cozy_proxy else ()
        self._children = (SERVICE, *further, ENDPOINT_SLICE)

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile a claim that is not being deleted."""
        claim = IPClaim.parse(ctx.primary)
        if released := plan_owner_release(ctx.primary):
            return await _release_owner(ctx, claim, released)
        holdings = _read_holdings(ctx, claim)
        if not all(holding.known for holding in holdings):
            # The pool has not decided about this claim yet; its controller wakes the claim then.
            return None
        plan, target = await self._plan(ctx, claim, holdings)
        outcome = await self._publish(ctx, claim, holdings, plan, target)
        if isinstance(outcome.first_error(), _PASSING):
            # The next reconcile reports the result.
            return Result.from_outcome(outcome)
        if not outcome.ok:
            plan = _explain(observe_binding(ctx, claim), outcome)
        elif claim.spec.target is None and (left := ctx.children(SERVICE)):
            # A finalizer of a load balancer may delay the deletion of the Service. Until the
            # Service no longer exists, the address is still announced, and the finalizer of the
            # claim must stay.
            plan = plan_lingering(plan, key_of(left[0]).name)
        announcement = AnnouncementState()
        addresses, retry = self._list_served(ctx, holdings)
        conflicts = _find_conflicts(
            ctx, claim, addresses, self._choose_ports(claim, holdings, target)
        )
        # A load balancer waits or refuses because of the conflict, so report the conflict.
        plan = require_exclusive(plan, ctx.key.namespace, conflicts)
        if may_publish(holdings):
            announcement = await observe_announcement(ctx, self._settings, addresses)
        if announcement.announced is not None:
            plan = require_announced(plan, announcement.announced)
        unserved = [each for each in _list_addresses(holdings) if each not in addresses]
        plan = admit_unserved(plan, unserved)
        status = build_status(
            claim,
            holdings,
            plan,
            current=conditions_of(ctx.primary),
            now=ctx.now(),
            announced=announcement.announced,
        )
        if await ctx.apply_status(status):
            _report_move(ctx, claim, plan)
            for conflict in conflicts:
                where = str(conflict.service)
                ctx.log.warning("Address conflict", address=conflict.address, service=where)
        # The next reconcile removes the finalizer from an idle claim. The event of our own status
        # write does not trigger it, so it is requested here.
        idle = claim.spec.target is None and plan.state is BindingState.UNBOUND
        again = plan.again or (idle and has_finalizer(ctx.primary, FINALIZER))
        waits = [each for each in (announcement.again, target.again, retry) if each is not None]
        return Result.from_outcome(outcome, requeue_after=0 if again else min(waits, default=None))

    async def finalize(self, ctx: Context) -> Result | None:
        """Withdraw the address from its target, then remove the finalizer.

        The entry in the ledger is released after the claim no longer exists.
        """
        claim = IPClaim.parse(ctx.primary)
        keeps = claim.spec.deletion_policy is DeletionPolicy.REFUSE_WHILE_ASSIGNED
        if keeps and await has_target(ctx, claim):
            message = (
                "spec.deletionPolicy prevents the deletion while spec.target is"
                f" {claim.spec.target}; remove spec.target"
            )
            await self._report_terminating(ctx, claim, ClaimReason.STILL_ASSIGNED, message)
            return Result()
        outcome = await ctx.execute(self._plan_withdrawal(ctx))
        remaining = await _find_children(ctx)
        self._unserved.pop(ctx.uid, None)
        if outcome.ok and not remaining:
            return None
        names = ", ".join(f"{kind.kind} {key_of(child).name}" for kind, child in remaining)
        message = f"waiting for {names or 'the Service'} to be deleted"
        await self._report_terminating(ctx, claim, ClaimReason.WITHDRAWING, message)
        return Result.from_outcome(outcome, requeue_after=find_relist_delay(ctx, remaining))

    async def _plan(
        self, ctx: Context, claim: IPClaim, holdings: Sequence[Holding]
    ) -> tuple[BindingPlan, Target]:
        families = {":" in holding.address for holding in holdings if holding.address}
        target = await observe_target(ctx, claim, families, self._pods)
        ports = self._choose_ports(claim, holdings, target)
        current = observe_binding(ctx, claim)
        finding = target.finding
        if finding is None:
            return plan_binding(current, None), target
        if not may_publish(holdings):
            return plan_unpublished(current, holdings), target
        if not ports:
            finding = narrow_unserved(claim, finding, v6=":" in holdings[0].address)
            plan = plan_binding(current, finding)
            if obstacle := self._find_obstacle(claim, holdings):
                return require_supported(plan, *obstacle), target
            return require_ports(plan), target
        served, _ = self._list_served(ctx, holdings)
        return check_reach(plan_binding(current, finding), served[0]), target

    async def _publish(
        self,
        ctx: Context,
        claim: IPClaim,
        holdings: Sequence[Holding],
        plan: BindingPlan,
        target: Target,
    ) -> Outcome:
        ports = self._choose_ports(claim, holdings, target)
        if not may_publish(holdings) or not ports or claim.spec.target is None:
            return await ctx.execute(self._plan_withdrawal(ctx))
        addresses, _ = self._list_served(ctx, holdings)
        outcome = await self._write(ctx, claim, self._show(claim, plan, target, ports, addresses))
        if len(addresses) == 1 or not isinstance(outcome.first_error(), Invalid):
            return outcome
        for address in addresses:
            # A cluster with Services of one family refuses a Service with two.
            shown = self._show(claim, plan, target, ports, (address,))
            alone = await self._write(ctx, claim, shown)
            if alone.ok:
                self._unserved[ctx.uid] = ":" not in address, ctx.now()
                return alone
        return outcome

    def _show(
        self,
        claim: IPClaim,
        plan: BindingPlan,
        target: Target,
        ports: tuple[PortMap, ...],
        addresses: tuple[str, ...],
    ) -> Publication:
        return Publication(
            addresses,
            plan.binding,
            ports,
            self._settings.announcement,
            self._settings.load_balancer_class,
            {} if claim.spec.ports else target.ports_at,
            whole_address.LABELS if is_whole(claim) else {},
            whole_address.ANNOTATIONS if is_whole(claim) else {},
        )

    async def _write(self, ctx: Context, claim: IPClaim, shown: Publication) -> Outcome:
        children = build_children(claim, shown)
        kept = {(kind, key_of(manifest)) for kind, manifest in children}
        batches: list[list[Step]] = [[Apply(kind, manifest)] for kind, manifest in children]
        batches.append(
            [
                Delete.of(kind, each)
                for kind in self._children
                for each in ctx.children(kind)
                if (kind, key_of(each)) not in kept
            ]
        )
        outcome = await ctx.execute(*batches)
        if isinstance(outcome.first_error(), Invalid) and (
            steps := _plan_other_class(ctx, children[-1][1])
        ):
            outcome = await ctx.execute(steps, *batches)
        return outcome

    def _choose_ports(
        self, claim: IPClaim, holdings: Sequence[Holding], target: Target
    ) -> tuple[PortMap, ...]:
        if self._find_obstacle(claim, holdings):
            return ()
        if is_whole(claim):
            return whole_address.WHOLE_PORTS
        return tuple(PortMap.of(port) for port in claim.spec.ports) or target.ports

    def _find_obstacle(
        self, claim: IPClaim, holdings: Sequence[Holding]
    ) -> tuple[ClaimReason, str] | None:
        """Return why nothing can route the traffic as the claim requires it; None if it can."""
        announcement = self._settings.announcement
        if claim.spec.allowed_cidrs and not ANNOUNCERS[announcement].balances:
            message = (
                "spec.allowedCidrs is set, and only Services of load balancers enforce it; "
                f"settings.announcement of the operator is {announcement}"
            )
            return ClaimReason.ALLOWED_CIDRS_UNSUPPORTED, message
        if not is_whole(claim):
            return None
        problem = explain_unsupported(self._settings, _list_addresses(holdings))
        return (ClaimReason.WHOLE_ADDRESS_UNSUPPORTED, problem) if problem else None

    def _list_served(
        self, ctx: Context, holdings: Sequence[Holding]
    ) -> tuple[tuple[str, ...], float | None]:
        """Return the addresses that one Service can have, and seconds until others are tried.

        For a claim with one address, the API server itself says that it refuses the family.
        """
        addresses = _list_addresses(holdings)
        refused, since = self._unserved.get(ctx.uid, (False, ctx.now()))
        left = _REFUSED_SECONDS - (ctx.now() - since).total_seconds()
        if ctx.uid not in self._unserved or left <= 0 or len(addresses) == 1:
            return addresses, None
        return tuple(each for each in addresses if (":" in each) != refused), left

    def _plan_withdrawal(self, ctx: Context) -> list[Step]:
        return [Delete.of(kind, child) for kind in self._children for child in ctx.children(kind)]

    async def _report_terminating(
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


def _read_holdings(ctx: Context, claim: IPClaim) -> list[Holding]:
    status, second = claim.status, claim.spec.secondary
    held = (status.address or "", status.secondary_address or "") if status else ("", "")
    holdings = [_read_holding(ctx, claim.spec.pool_ref.name, held[0])]
    if second is not None:
        holdings.append(_read_holding(ctx, second.pool_ref.name, held[1]))
    return holdings


def _read_holding(ctx: Context, pool: str, held: str) -> Holding:
    projection = ctx.projection(LedgerProjection)
    entries = projection.ledger.entries_of(pool, ctx.uid)
    pending_reason = projection.find_pending_reason(pool, ctx.uid)
    if ctx.get(IP_POOL, Key("", pool)) is None:
        pending_reason = PendingReason(ClaimReason.POOL_NOT_FOUND, f"IPPool {pool} does not exist")
    elif pool not in projection.ledger.ranges:
        message = f"IPPool {pool} cannot be read; see its condition Ready"
        pending_reason = PendingReason(ClaimReason.POOL_NOT_READY, message)
    return find_holding(pool, held, entries, pending_reason)


def _find_conflicts(
    ctx: Context, claim: IPClaim, addresses: Sequence[str], ports: Sequence[PortMap]
) -> list[AddressConflict]:
    """Return the other Services with an address of a claim that routes traffic."""
    if claim.spec.target is None:
        return []
    owner = controller_uid(ctx.primary)
    return [
        AddressConflict(address, key_of(service))
        for address in addresses
        for service in ctx.indexed(SERVICE, BY_ADDRESS, address)
        if is_conflicting(claim, owner, ports, service)
    ]


def _plan_other_class(ctx: Context, wanted: Manifest) -> list[Step]:
    """Plan the write that lets the class of a Service change; empty if it does not change.

    The class of a Service of type LoadBalancer is immutable, so it has another type in between.
    """
    service = ctx.get(SERVICE, key_of(wanted))
    classes = {text_at(each or {}, "spec", "loadBalancerClass") for each in (service, wanted)}
    if service is None or controller_uid(service) != ctx.uid or len(classes) == 1:
        return []
    operation = {"op": "replace", "path": "/spec/type", "value": "ClusterIP"}
    return [Patch(SERVICE, key_of(service), uid_of(service), [operation])]


async def _release_owner(ctx: Context, claim: IPClaim, operations: Sequence[Manifest]) -> Result:
    outcome = await ctx.execute([Patch(IP_CLAIM, ctx.key, ctx.uid, operations)])
    if outcome.ok:
        note = (
            f"The claim no longer belongs to its Instance, because spec.target is "
            f"{claim.spec.target}"
        )
        ctx.event("Normal", ClaimReason.OWNER_RELEASED, note)
    return Result.from_outcome(outcome, requeue_after=0)


def _list_addresses(holdings: Sequence[Holding]) -> tuple[str, ...]:
    return tuple(holding.address for holding in holdings if holding.address)


async def _find_children(ctx: Context) -> list[tuple[Kind, Manifest]]:
    """Read the remaining children from the API server, not from the cache.

    After the release, the address can be allocated to another claim immediately, so no child of
    this claim may exist any more.
    """
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
    """Record an Event if an address moved; for the first endpoint, the condition is enough."""
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
