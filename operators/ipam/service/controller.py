"""The controller of Services of the class `slipway.dev/ipam`: each gets an address of a pool.

An IPClaim that the Service owns requests the address, so that it comes from the same ledger and
queue, counts against the same quota, and is quarantined after its release. The operator then writes
it to the status of the Service, from which kube-proxy and announcers read it.
"""

from __future__ import annotations

from libs.common.conditions import READY, find_condition
from libs.common.errors import ForeignObject, Invalid
from libs.common.kinds import SERVICE, Key, Manifest, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.plan import Create, Delete, Step
from libs.common.reading import text_at
from libs.common.runtime import Context, Controller, Result
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.claimed import find_addresses
from operators.ipam.naming import POOL, SERVICE_CONTROLLER
from operators.ipam.service.reconcile import (
    AddressRequest,
    build_claim,
    build_status,
    claim_name,
    explain_difference,
    explain_mismatch,
    is_ours,
    plan_annotations,
    plan_second_pool,
    read_request,
)
from operators.ipam.settings import Settings


def build_controller(settings: Settings) -> Controller | None:
    """Build the controller of Services; None if the setting `load_balancer` is off."""
    if not settings.load_balancer:
        return None
    reconciler = Reconciler(settings)
    return Controller(
        SERVICE_CONTROLLER,
        primary=SERVICE,
        reconcile=reconciler.reconcile,
        source="reflector",
        reports_ready=False,
    ).owns(
        IP_CLAIM,
        source="reflector",
        writes=("create", "patch", "delete"),
        why="claim addresses for Services",
    )


class Reconciler:
    """The reconciler that assigns addresses to Services of our class."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings; the reconciler has no other state."""
        self._settings = settings

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile one Service; Services of other classes only lose a former IPClaim."""
        claim = ctx.get(IP_CLAIM, Key(ctx.key.namespace, claim_name(ctx.key.name)))
        owned = claim if claim is not None and controller_uid(claim) == ctx.uid else None
        if not is_ours(ctx.primary, self._settings.service_class):
            # The type or class was changed; the API server has cleared the status.
            steps = [] if owned is None else [Delete.of(IP_CLAIM, owned)]
            return Result.from_outcome(await ctx.execute(steps)) if steps else None
        if owned is None:
            return await self._claim(ctx)
        return await self._show(ctx, owned)

    async def _claim(self, ctx: Context) -> Result | None:
        request = read_request(ctx.primary, self._settings.default_pool)
        if not request.pool:
            note = f"The Service needs the annotation {POOL}, or the operator settings.defaultPool"
            ctx.event("Warning", "PoolMissing", note)
            return None
        return await self._write(ctx, self._build_step(ctx, request))

    async def _write(self, ctx: Context, step: Step) -> Result:
        outcome = await ctx.execute([step])
        if isinstance(outcome.first_error(), ForeignObject):
            name = claim_name(ctx.key.name)
            note = f"IPClaim {name} belongs to another owner; rename the Service"
            ctx.event("Warning", "NameTaken", note)
        elif isinstance(outcome.first_error(), Invalid):
            # For example, both annotations name one pool, or the address cannot be read.
            ctx.event("Warning", "ClaimRefused", str(outcome.first_error()))
        return Result.from_outcome(outcome)

    def _build_step(self, ctx: Context, request: AddressRequest) -> Create:
        uid = ctx.uid

        def is_own(held: Manifest) -> bool:
            return controller_uid(held) == uid

        return Create(IP_CLAIM, build_claim(ctx.primary, request), ours=is_own, inherits=True)

    async def _show(self, ctx: Context, claim: Manifest) -> Result | None:
        addresses = find_addresses(claim)
        # The default pool is for new addresses.
        has_address = bool(text_at(claim, "status", "address"))
        held = text_at(claim, "spec", "poolRef", "name") if has_address else ""
        request = read_request(ctx.primary, held or self._settings.default_pool)
        if difference := explain_difference(claim, request, addresses):
            if not has_address:
                # The spec of a claim is immutable. The next reconcile creates the claim again.
                return Result.from_outcome(await ctx.execute([Delete.of(IP_CLAIM, claim)]))
            if steps := plan_second_pool(claim, request):
                return await self._write(ctx, steps[0])
            ctx.event("Warning", "RequestNotApplied", difference)
        mismatches = {each: explain_mismatch(ctx.primary, each) for each in addresses}
        for mismatch in filter(None, mismatches.values()):
            ctx.event("Warning", "FamilyMismatch", mismatch)
        shown = [each for each in addresses if not mismatches[each]]
        if steps := plan_annotations(ctx.primary, self._settings.announcement, shown):
            # The event of this write asks for the next reconcile, which writes the status.
            return Result.from_outcome(await ctx.execute(steps))
        if await ctx.apply_status(build_status(ctx.primary, shown)) and shown:
            ctx.log.info("Addresses assigned to Service", addresses=shown, claim=uid_of(claim))
        _report_wait(ctx, claim)
        return None


def _report_wait(ctx: Context, claim: Manifest) -> None:
    """Record an Event on the Service with the reason why it has no address yet.

    Most users of a Service never look at its IPClaim.
    """
    ready = find_condition(claim, READY)
    if ready is not None and ready.get("status") == "False":
        note = f"IPClaim {key_of(claim).name}: {ready.get('message')}"
        ctx.event("Warning", str(ready.get("reason")), note)
