"""Controller of IPAddressClaim: implements the IPAM provider contract of Cluster API.

As for Services, an IPClaim that the IPAddressClaim owns requests the address. So the address comes
from the same ledger and queue, counts against the same quota, and is quarantined after its release.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from libs.common.conditions import READY, conditions_of, find_condition
from libs.common.crd import ParseError
from libs.common.kinds import Key, Manifest, key_of
from libs.common.reading import text_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.cluster_api import (
    CLUSTER,
    IP_ADDRESS,
    IP_ADDRESS_CLAIM,
    find_cluster,
)
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL, IPPool
from operators.ipam.cluster_api.reconcile import (
    Observed,
    Reason,
    build_status,
    is_held,
    is_ours,
    keys_of,
    plan_claim,
    plan_release,
    plan_removal,
)
from operators.ipam.naming import CLUSTER_API_CONTROLLER, FINALIZER
from operators.ipam.settings import Settings

_BY_CLUSTER: Final = "cluster"
"""Index of claims by their Cluster."""
_BY_POOL: Final = "waiting-for-pool"
"""Index of claims by the IPPool that they wait for."""


def build_controller(settings: Settings) -> Controller | None:
    """Build the controller of IPAddressClaims; None if the setting `cluster_api` is off."""
    if not settings.cluster_api:
        return None
    return (
        Controller(
            CLUSTER_API_CONTROLLER,
            primary=IP_ADDRESS_CLAIM,
            reconcile=reconcile,
            finalize=finalize,
            finalizer=FINALIZER,
            needs_finalizer=is_ours,
            source="reflector",
            optional=True,
        )
        .reads(
            IP_ADDRESS_CLAIM,
            optional=True,
            indexes={_BY_CLUSTER: _index_by_cluster, _BY_POOL: _index_by_pool},
        )
        .owns(
            IP_ADDRESS,
            optional=True,
            writes=("create", "patch", "delete"),
            why="assign addresses to Cluster API machines",
        )
        .owns(
            IP_CLAIM,
            source="reflector",
            writes=("create", "delete"),
            why="claim addresses for IPAddressClaims",
        )
        .watches(CLUSTER, _map_cluster, optional=True, why="check whether a cluster is paused")
        .watches(IP_POOL, _map_pool)
    )


async def reconcile(ctx: Context) -> Result | None:
    """Reconcile one IPAddressClaim; claims of pools of other providers are ignored."""
    if not is_ours(ctx.primary):
        return None
    observed = _observe(ctx)
    if is_held(ctx.primary, observed):
        return None
    pool = _parse_pool(observed.pool)
    outcome = await ctx.execute(plan_claim(ctx.primary, pool, observed))
    observed = _observe(ctx)
    status = build_status(
        ctx.primary, pool, observed, current=conditions_of(ctx.primary), now=ctx.now()
    )
    if status is not None and await ctx.apply_status(status) and "addressRef" in status:
        address = text_at(observed.address or {}, "spec", "address")
        ctx.log.info("Address assigned to IPAddressClaim", address=address)
    return Result.from_outcome(outcome)


async def finalize(ctx: Context) -> Result | None:
    """Release the address of an IPAddressClaim, unless the claim is paused."""
    if is_held(ctx.primary, _observe(ctx)):
        return Result()
    # Delete the IPAddress first: otherwise the next claim could get the address while the old
    # IPAddress still exists.
    for plan in (plan_removal, plan_release):
        outcome = await ctx.execute(*plan(ctx.primary, _observe(ctx)))
        if not outcome.ok or plan(ctx.primary, _observe(ctx)):
            # A finalizer of another controller delays the deletion; the event of the completed
            # deletion triggers the next reconcile.
            return Result.from_outcome(outcome)
    return None


def _observe(ctx: Context) -> Observed:
    claim, address = keys_of(ctx.key)
    cluster = find_cluster(ctx.primary)
    return Observed(
        cluster=ctx.get(CLUSTER, Key(ctx.key.namespace, cluster)) if cluster else None,
        pool=ctx.get(IP_POOL, Key("", text_at(ctx.primary, "spec", "poolRef", "name"))),
        claim=ctx.get(IP_CLAIM, claim),
        address=ctx.get(IP_ADDRESS, address),
    )


def _parse_pool(pool: Manifest | None) -> IPPool | None:
    try:
        return None if pool is None else IPPool.parse(pool)
    except ParseError:
        return None


def _index_by_cluster(claim: Manifest) -> Iterable[str]:
    cluster = find_cluster(claim)
    return (str(Key(key_of(claim).namespace, cluster)),) if is_ours(claim) and cluster else ()


def _index_by_pool(claim: Manifest) -> Iterable[str]:
    """Index a claim by its pool if a change of the pool can affect the claim.

    A pool changes with each allocated address, so all other claims are not indexed. If a claim
    waits for a free address, a change of its IPClaim triggers the reconcile.
    """
    ready = find_condition(claim, READY)
    waits = ready is None or ready.get("reason") == Reason.POOL_NOT_READY
    return (text_at(claim, "spec", "poolRef", "name"),) if is_ours(claim) and waits else ()


def _map_cluster(cluster: Manifest, cache: Cache) -> Iterable[Key]:
    found = cache.store(IP_ADDRESS_CLAIM).indexed(_BY_CLUSTER, str(key_of(cluster)))
    return [key_of(claim) for claim in found]


def _map_pool(pool: Manifest, cache: Cache) -> Iterable[Key]:
    found = cache.store(IP_ADDRESS_CLAIM).indexed(_BY_POOL, key_of(pool).name)
    return [key_of(claim) for claim in found]
