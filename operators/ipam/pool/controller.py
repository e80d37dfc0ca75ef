"""Controller of IPPool: allocates addresses to waiting claims, and reports the capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from libs.common.conditions import conditions_of, render_time
from libs.common.errors import BadRequest, Forbidden, ForeignObject, Invalid
from libs.common.kinds import NAMESPACE, Key, Manifest, build_object, key_of, uid_of
from libs.common.labels import MANAGED_BY
from libs.common.naming import label_value
from libs.common.plan import Create, Delete, Patch, annotate
from libs.common.reading import text_at, text_map_at, time_at
from libs.common.runtime import Cache, Context, Controller, Result
from operators.ipam import metrics
from operators.ipam.addresses import parse_address
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM, ClaimReason
from operators.ipam.api.v1alpha1.fields import Family
from operators.ipam.api.v1alpha1.pools import IP_POOL, IPPool, PoolMode, PoolReason
from operators.ipam.ledger import Request
from operators.ipam.ledger_projection import LedgerProjection, parse_entry
from operators.ipam.naming import (
    CLAIM_LABEL,
    FINALIZER,
    KNOWN_UID,
    OPERATOR_ID,
    POOL_CONTROLLER,
    POOL_LABEL,
    allocation_name,
)
from operators.ipam.pool.reconcile import (
    Assignment,
    PendingReason,
    PoolView,
    build_range,
    find_last,
    plan_pool,
)
from operators.ipam.pool.status import build_final_status, build_status
from operators.ipam.relist import find_relist_delay
from operators.ipam.settings import Settings

_BATCH: Final = 256
"""Maximum number of entries to create before the next plan takes new changes into account."""
_STATES: Final = ("free", "allocated", "quarantined", "outOfRange")
"""Fields of status.capacity that the metric of addresses exports, with the label value for each."""
_REFUSALS: Final = 3
"""Number of successive refusals after which the operator, and not the claims, counts as the
cause."""
_RESTORE_TIME: Final = timedelta(minutes=10)
"""Time in which a restored pool allocates only addresses that the restored ledger has for a claim,
because the ledger may be restored after the claims."""
_REFUSED: Final = (BadRequest, Forbidden, Invalid)


def build_controller(_: Settings) -> Controller:
    """Build the controller of IPPool."""
    return (
        Controller(
            POOL_CONTROLLER,
            primary=IP_POOL,
            reconcile=reconcile,
            finalize=finalize,
            finalizer=FINALIZER,
            resting=frozenset({PoolReason.DRAINING}),
        )
        .watches(IP_POOL, map_pool)
        .watches(IP_CLAIM, map_claim, source="reflector")
        .watches(
            IP_ALLOCATION,
            map_allocation,
            source="reflector",
            writes=("create", "delete"),
            why="manage the ledger",
        )
        .watches(NAMESPACE, map_namespace, why="find the namespaces that a pool serves")
        .projects(LedgerProjection)
    )


async def reconcile(ctx: Context) -> Result | None:
    """Allocate addresses of one pool to its claims, in the order of the queue."""
    pool = IPPool.parse(ctx.primary)
    left = _find_restore_time(ctx)
    if left is None:
        await _record_uid(ctx)
    allocation = _PoolAllocation(ctx, pool)
    await allocation.run()
    projection = ctx.projection(LedgerProjection)
    pending = allocation.pending
    ctx.wake(IP_CLAIM, projection.set_pending(pool.metadata.name, pending))
    status = build_status(
        pool,
        allocation.view,
        projection.ledger,
        pending.values(),
        current=conditions_of(ctx.primary),
        now=ctx.now(),
    )
    _measure(ctx, status)
    await ctx.apply_status(status)
    return Result(left, error=allocation.error)


async def finalize(ctx: Context) -> Result | None:
    """Remove the finalizer after all addresses of the pool have been released."""
    name, projection = ctx.key.name, ctx.projection(LedgerProjection)
    # After the finalizer is removed, no further reconcile can find an entry that the cache lacked.
    # So list the entries from the API server.
    listing = await ctx.client.list(
        IP_ALLOCATION, label_selector=f"{POOL_LABEL}={label_value(name)}"
    )
    held = [each for each in listing.items if text_at(each, "spec", "poolRef", "name") == name]
    if not held:
        _forget(ctx, name)
        return None
    # Parsed only here, so that a pool with an invalid spec and without entries can be deleted.
    pool = IPPool.parse(ctx.primary)
    refusal = PendingReason(ClaimReason.POOL_NOT_READY, f"IPPool {name} is being deleted")
    view = replace(build_view(ctx, pool), refusal=refusal)
    pending = plan_pool(view, projection.ledger).pending
    ctx.wake(IP_CLAIM, projection.set_pending(name, pending))
    status = build_final_status(
        pool,
        view,
        projection.ledger,
        sorted((text_at(each, "spec", "address") for each in held), key=parse_address),
        current=conditions_of(ctx.primary),
        now=ctx.now(),
    )
    await ctx.apply_status(status)
    return Result(find_relist_delay(ctx, ((IP_ALLOCATION, each) for each in held)))


def build_view(ctx: Context, pool: IPPool) -> PoolView:
    """Build the view of a pool for the planner."""
    spec, status = pool.spec, pool.status
    draining = spec.allocation is PoolMode.DRAINING
    refusal = PendingReason(ClaimReason.POOL_DRAINING, f"IPPool {pool.metadata.name} is draining")
    last = status.last_address if status is not None else None
    left = _find_restore_time(ctx)
    return PoolView(
        name=pool.metadata.name,
        range=build_range(spec),
        strategy=spec.strategy,
        last=None if last is None else parse_address(last),
        refusal=refusal if draining else None,
        evaluate=lambda request: _evaluate(ctx, pool, request),
        quota=spec.quota_per_namespace,
        max_priority=spec.max_priority,
        uid=pool.metadata.uid,
        restoring=_explain_restore(ctx, left) if left else None,
    )


class _PoolAllocation:
    """The allocation of addresses of one pool in one reconcile.

    Attributes:
        view: View of the pool with the address that was allocated last.
        pending: Why the remaining claims have no address, by UID.
        error: Error because of which some claims could not be served.
    """

    def __init__(self, ctx: Context, pool: IPPool) -> None:
        self.view = build_view(ctx, pool)
        self.pending: Mapping[str, PendingReason] = {}
        self.error: Exception | None = None
        self._ctx = ctx
        self._pool = pool
        self._ledger = ctx.projection(LedgerProjection).ledger
        self._refused: dict[str, PendingReason] = {}
        self._refusals_in_a_row = 0

    async def run(self) -> None:
        """Plan and allocate until no further claim can be served."""
        while True:
            plan = plan_pool(self.view, self._ledger, self._refused)
            self.pending = plan.pending
            if not plan.grants or not await self._allocate(plan.grants[:_BATCH]):
                return

    async def _allocate(self, grants: Sequence[Assignment]) -> bool:
        """Create entries; return whether to continue."""
        grants = [each for each in grants if await self._reclaim(each)]
        steps = [self._build_step(grant) for grant in grants]
        grant_of = {id(step): grant for step, grant in zip(steps, grants, strict=True)}
        # Pools and claims have separate watches: the cache may show a claim before it shows that
        # the pool was set to Draining. So confirm the spec of the pool before any create.
        outcome = await self._ctx.execute(steps, confirmed=True)
        allocated = [grant_of[id(step)] for step in outcome.done]
        self.view = replace(self.view, last=find_last(self.view, allocated))
        if allocated:
            self._refusals_in_a_row = 0
            counter = self._ctx.metrics.counter(metrics.ALLOCATIONS)
            counter.labels(self._pool.metadata.name).inc(len(allocated))
        evaluated = [
            self._evaluate(grant_of[id(each.step)], each.error) for each in outcome.failures
        ]
        return all(evaluated)

    def _evaluate(self, grant: Assignment, error: Exception) -> bool:
        """Process a failed allocation; return whether the other claims can still be served."""
        if isinstance(error, ForeignObject):
            # Another writer created the entry first. The cache contains it now, so the next plan
            # chooses another address.
            self._ctx.metrics.counter(metrics.CONFLICTS).labels(self._pool.metadata.name).inc()
            return True
        self.error = error
        if not isinstance(error, _REFUSED):
            return False
        message = f"the API server refused the entry of {grant.address}: {error}"
        self._refused[grant.request.uid] = PendingReason(ClaimReason.ALLOCATION_FAILED, message)
        self._refusals_in_a_row += 1
        return self._refusals_in_a_row < _REFUSALS

    def _build_step(self, grant: Assignment) -> Create:
        uid = grant.request.uid

        def is_ours(held: Manifest) -> bool:
            entry = parse_entry(held)
            return entry is not None and entry.claim_uid == uid and not entry.released

        manifest = build_allocation(self._pool, grant.request, grant.address)
        return Create(IP_ALLOCATION, manifest, ours=is_ours)

    async def _reclaim(self, grant: Assignment) -> bool:
        """End the quarantine of an address early, for a new claim with the name of the former one.

        Return whether the address can be assigned. If not, this claim waits for the next reconcile,
        and the others are served.
        """
        if grant.tombstone is None:
            return True
        key, uid = Key("", grant.tombstone.name), grant.tombstone.uid
        free = {"op": "replace", "path": "/metadata/finalizers", "value": []}
        outcome = await self._ctx.execute(
            [Delete(IP_ALLOCATION, key, uid)], [Patch(IP_ALLOCATION, key, uid, [free])]
        )
        self.error = outcome.first_error() or self.error
        if not outcome.ok:
            message = f"the API server refused to release {grant.address}: {self.error}"
            self._refused[grant.request.uid] = PendingReason(ClaimReason.ALLOCATION_FAILED, message)
        return outcome.ok


# Mapping of changes to the pools that they affect.


def map_pool(pool: Manifest, cache: Cache) -> Iterable[Key]:
    """Return pools that share addresses with a pool, or serve second addresses of its claims."""
    name, ledger = key_of(pool).name, cache.projection(LedgerProjection).ledger
    return [Key("", other) for other in {*ledger.list_sharers(name), *ledger.list_neighbors(name)}]


def map_claim(claim: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a claim to the pools that it waits for, or waited for before it was deleted."""
    book = cache.projection(LedgerProjection)
    held = cache.store(IP_CLAIM).get(key_of(claim))
    gone = held is None or uid_of(held) != uid_of(claim)
    for request in book.list_requests(claim):
        waits = request.uid in book.ledger.open.get(request.pool, {})
        # The entry itself triggers a reconcile of its claim.
        if waits or (gone and not request.held) or text_at(claim, "metadata", "deletionTimestamp"):
            yield Key("", request.pool)


def map_allocation(manifest: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an entry of the ledger to the pools whose capacity it affects."""
    entry = parse_entry(manifest)
    if entry is None:
        return []
    return [
        Key("", name) for name in cache.projection(LedgerProjection).ledger.list_pools_with(entry)
    ]


def map_namespace(namespace: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a namespace to the pools that select namespaces by labels."""
    for pool in cache.store(IP_POOL).list():
        if (pool.get("spec") or {}).get("allowedNamespaces") is not None:
            yield key_of(pool)


def _find_restore_time(ctx: Context) -> float | None:
    """Return the seconds for which a restored pool waits for its ledger; None for other pools."""
    known = text_at(ctx.primary, "metadata", "annotations", KNOWN_UID)
    created = time_at(ctx.primary, "metadata", "creationTimestamp")
    if known in ("", ctx.uid) or created is None:
        return None
    left = (created + _RESTORE_TIME - ctx.now()).total_seconds()
    return left if left > 0 else None


def _explain_restore(ctx: Context, left: float) -> PendingReason:
    until = render_time(ctx.now() + timedelta(seconds=left))
    message = (
        f"IPPool {ctx.key.name} was restored from a backup: until {until} it allocates only the "
        "addresses that restored IPAllocations have for a claim; remove its annotation "
        f"{KNOWN_UID} to end the wait"
    )
    return PendingReason(ClaimReason.POOL_NOT_READY, message)


async def _record_uid(ctx: Context) -> None:
    """Record the UID of a new pool, by which a restored pool is recognized."""
    annotations = text_map_at(ctx.primary, "metadata", "annotations")
    if annotations.get(KNOWN_UID) == ctx.uid:
        return
    operation = annotate(annotations, KNOWN_UID, ctx.uid)
    version = text_at(ctx.primary, "metadata", "resourceVersion")
    step = Patch(IP_POOL, ctx.key, ctx.uid, [operation], resource_version=version)
    await ctx.execute([step])


def _evaluate(ctx: Context, pool: IPPool, request: Request) -> PendingReason | None:
    name, namespace = pool.metadata.name, request.claim.namespace
    first = ctx.projection(LedgerProjection).ledger.ranges.get(request.first_pool)
    if request.first_pool and first is None:
        # Its family is unknown, so the addresses of a dual-stack claim could not be distinguished
        # later.
        message = f"spec.secondary: the address family of IPPool {request.first_pool} is unknown"
        return PendingReason(ClaimReason.POOL_NOT_READY, message)
    if first is not None and first.v6 == (pool.spec.family is Family.IPV6):
        message = (
            f"spec.secondary.poolRef: IPPool {name} has the family of IPPool {request.first_pool}"
        )
        return PendingReason(ClaimReason.FAMILY_MISMATCH, message)
    selector = pool.spec.allowed_namespaces
    if selector is None:
        return None
    held = ctx.get(NAMESPACE, Key("", namespace))
    if held is not None and selector.matches(text_map_at(held, "metadata", "labels")):
        return None
    message = f"IPPool {name} does not serve namespace {namespace}; see its spec.allowedNamespaces"
    return PendingReason(ClaimReason.NAMESPACE_NOT_ALLOWED, message)


def _measure(ctx: Context, status: Manifest) -> None:
    capacity, pool = status["capacity"], ctx.key.name
    gauge = ctx.metrics.gauge(metrics.ADDRESSES)
    for state in _STATES:
        gauge.labels(pool, state).set(float(capacity[state]))
    ctx.metrics.gauge(metrics.WAITING).labels(pool).set(capacity["waiting"])


def _forget(ctx: Context, pool: str) -> None:
    gauge = ctx.metrics.gauge(metrics.ADDRESSES)
    for state in _STATES:
        gauge.labels(pool, state)  # remove() raises an error if the series does not exist.
        gauge.remove(pool, state)
    ctx.metrics.gauge(metrics.WAITING).labels(pool)
    ctx.metrics.gauge(metrics.WAITING).remove(pool)


def build_allocation(pool: IPPool, request: Request, address: str) -> Manifest:
    """Build the entry of the ledger that allocates an address to a claim.

    It has no owner: a namespaced claim cannot own a cluster-scoped object, and the entry must
    outlive the claim, to reserve the address until no traffic is routed to the old target any more.
    """
    labels = {
        MANAGED_BY: OPERATOR_ID,
        POOL_LABEL: label_value(pool.metadata.name),
        CLAIM_LABEL: request.uid,
    }
    spec = {
        "realm": pool.spec.realm,
        "address": address,
        "poolRef": {"name": pool.metadata.name, "uid": pool.metadata.uid},
        "claimRef": {
            "namespace": request.claim.namespace,
            "name": request.claim.name,
            "uid": request.uid,
        },
    }
    name = allocation_name(pool.spec.realm, address)
    # The finalizer is set on creation: no second write is needed, and the entry is never without
    # it.
    metadata = {"labels": labels, "finalizers": [FINALIZER]}
    return build_object(IP_ALLOCATION, name, metadata=metadata, spec=spec)
