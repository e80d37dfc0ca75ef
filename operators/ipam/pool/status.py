"""Status of a pool. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import Manifest
from operators.ipam.addresses import AddressSet, parse_range, render_address
from operators.ipam.api.v1alpha1.claims import ClaimReason
from operators.ipam.api.v1alpha1.pools import (
    BLOCKS_LIMIT,
    IPPool,
    IPPoolStatus,
    PoolCapacity,
    PoolCondition,
    PoolMode,
    PoolReason,
)
from operators.ipam.ledger import Ledger
from operators.ipam.pool.reconcile import PendingReason, PoolView

_SHOWN = 3


def count_capacity(pool: PoolView, ledger: Ledger) -> PoolCapacity:
    """Count the addresses of a pool, always from the ledger and never incrementally."""
    total = pool.range.addresses.size
    return PoolCapacity(
        total=str(total),
        free=str(total - ledger.count_used(pool.range)),
        allocated=ledger.count_allocated(pool.name),
        quarantined=len(ledger.list_resting(pool.name)),
        out_of_range=ledger.count_outside(pool.name, pool.range.addresses),
        waiting=len(ledger.open.get(pool.name, {})),
    )


def build_status(
    pool: IPPool,
    view: PoolView,
    ledger: Ledger,
    pending: Iterable[PendingReason],
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status of a pool."""
    capacity = count_capacity(view, ledger)
    conditions = [
        _evaluate_ready(pool, capacity, view.restoring),
        _evaluate_exhausted(pending),
        _evaluate_overlap(ledger.list_sharers(view.name)),
        _evaluate_outside(capacity),
    ]
    return _build(pool, view, ledger, capacity, conditions, current, now)


def build_final_status(
    pool: IPPool,
    view: PoolView,
    ledger: Ledger,
    holders: Sequence[str],
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status of a pool that is being deleted; `holders` are its allocated addresses."""
    capacity = count_capacity(view, ledger)
    shown = ", ".join(holders[:_SHOWN])
    rest = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
    message = f"Waiting for {shown}{rest} to be released; delete the claims that hold them"
    reason = PoolReason.ADDRESSES_IN_USE
    conditions = [
        Condition.false(PoolCondition.READY, reason, message),
        Condition.true(PoolCondition.TERMINATING, reason, message),
        _evaluate_outside(capacity),
    ]
    return _build(pool, view, ledger, capacity, conditions, current, now)


def _build(
    pool: IPPool,
    view: PoolView,
    ledger: Ledger,
    capacity: PoolCapacity,
    conditions: Sequence[Condition],
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    ends = [entry.until for entry in ledger.list_resting(view.name) if entry.until is not None]
    status = IPPoolStatus(
        observed_generation=pool.metadata.generation,
        capacity=capacity,
        last_address=None if view.last is None else render_address(view.last, v6=view.range.v6),
        next_release=min(ends, default=None),
        blocks=_list_blocks(pool, view, ledger),
    ).to_manifest()
    status["conditions"] = build_conditions(
        current, conditions, generation=pool.metadata.generation, now=now
    )
    return status


def _list_blocks(pool: IPPool, view: PoolView, ledger: Ledger) -> list[str]:
    """Return the addresses that only claims can have, as CIDRs."""
    excluded = AddressSet.of(parse_range(text) for text in pool.spec.excluded)
    whole = AddressSet.of(parse_range(text) for text in pool.spec.addresses).without(excluded)
    outside = ledger.list_outside(view.name, view.range.addresses)
    guarded = AddressSet.of((*whole.runs, *((each, each) for each in outside)))
    return guarded.list_blocks(BLOCKS_LIMIT, v6=view.range.v6)


def _evaluate_ready(
    pool: IPPool, capacity: PoolCapacity, restoring: PendingReason | None
) -> Condition:
    if capacity.total == "0":
        message = "spec.excluded and spec.gateway leave none of spec.addresses"
        return Condition.false(PoolCondition.READY, PoolReason.NO_ADDRESSES, message)
    if restoring is not None:
        return Condition.false(PoolCondition.READY, PoolReason.RESTORING, restoring.message)
    if pool.spec.allocation is PoolMode.DRAINING:
        message = "spec.allocation is Draining, so no address is allocated"
        return Condition.false(PoolCondition.READY, PoolReason.DRAINING, message)
    return Condition.true(PoolCondition.READY, PoolReason.SERVING)


def _evaluate_exhausted(pending: Iterable[PendingReason]) -> Condition:
    waiting = any(pending_reason.reason is ClaimReason.POOL_EXHAUSTED for pending_reason in pending)
    if waiting:
        message = "claims wait for an address; widen spec.addresses or release some"
        return Condition.true(PoolCondition.EXHAUSTED, PoolReason.NONE_FREE, message)
    return Condition.false(PoolCondition.EXHAUSTED, PoolReason.SOME_FREE)


def _evaluate_overlap(sharers: Sequence[str]) -> Condition:
    if not sharers:
        return Condition.false(PoolCondition.OVERLAPPING, PoolReason.DISJOINT)
    shown = ", ".join(sharers[:_SHOWN])
    rest = f" and {len(sharers) - _SHOWN} more" if len(sharers) > _SHOWN else ""
    message = f"some of the addresses are in IPPool {shown}{rest} of the same realm as well"
    return Condition.true(PoolCondition.OVERLAPPING, PoolReason.SHARED, message)


def _evaluate_outside(capacity: PoolCapacity) -> Condition:
    if not capacity.out_of_range:
        return Condition.false(PoolCondition.OUT_OF_RANGE, PoolReason.ALL_INSIDE)
    message = "addresses in use are no longer in spec.addresses; they stay until they are released"
    return Condition.true(PoolCondition.OUT_OF_RANGE, PoolReason.ADDRESSES_OUTSIDE, message)
