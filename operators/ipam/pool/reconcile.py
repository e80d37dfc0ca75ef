"""Planning: decides which claim gets which address. Pure: no I/O, no clock, no randomness.

A plan is based on the cache, which may be outdated, so an address in a plan may already be
allocated. Then the create fails because the entry exists, the cache gets that entry, and the next
plan chooses another address. So the plan determines only order and choice; the API server
guarantees that no address is allocated twice.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from operators.ipam.addresses import AddressSet, parse_address, parse_range, render_address
from operators.ipam.api.v1alpha1.claims import ClaimReason
from operators.ipam.api.v1alpha1.fields import Family
from operators.ipam.api.v1alpha1.pools import IPPoolSpec, ReservedAddresses, Strategy
from operators.ipam.ledger import Entry, Ledger, Range, Request

_EXACT: Final = 100
"""Positions in the queue above this number are rounded, so that a release does not change the
status of thousands of claims."""


@dataclass(frozen=True, slots=True)
class PendingReason:
    """The reason why a claim has no address.

    Attributes:
        reason: Reason of the condition Ready of the claim.
        position: Position in the queue; None if the claim does not wait for a free address.
    """

    reason: ClaimReason
    message: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of an address to a claim.

    Attributes:
        request: Request that gets the address.
        tombstone: Entry of an earlier claim, which must be deleted before the address is
            allocated; None if the address is free.
    """

    request: Request
    address: str
    tombstone: Entry | None = None


@dataclass(frozen=True, slots=True)
class PoolView:
    """The data of a pool that the planner needs.

    Attributes:
        range: Addresses of the pool.
        strategy: Strategy for choosing a free address.
        last: Number that was allocated last; None for none.
        refusal: Why the pool serves no claims; None if it does.
        evaluate: Returns why this pool cannot serve a request; None if it can.
        quota: Maximum number of addresses of the claims of one namespace; None for no limit.
        max_priority: Highest priority that counts; None for no limit.
        restoring: Why addresses without an entry are not allocated yet; None if they are.
    """

    name: str
    range: Range
    strategy: Strategy = Strategy.ROUND_ROBIN
    last: int | None = None
    refusal: PendingReason | None = None
    evaluate: Callable[[Request], PendingReason | None] = field(default=lambda _: None)
    quota: int | None = None
    max_priority: int | None = None
    uid: str = ""
    restoring: PendingReason | None = None


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The planned allocations, and why other claims have no address.

    Attributes:
        grants: Allocations in the order of the queue.
        pending: Why the remaining claims have no address, by UID of the claim.
    """

    grants: tuple[Assignment, ...] = ()
    pending: Mapping[str, PendingReason] = field(default_factory=dict)


def build_range(spec: IPPoolSpec) -> Range:
    """Build the addresses that a pool can allocate: spec.addresses without exclusions."""
    skip = spec.reserved_addresses is ReservedAddresses.SKIP
    whole = AddressSet.of(parse_range(text, skip_reserved=skip) for text in spec.addresses)
    never = [parse_range(text) for text in spec.excluded]
    if spec.gateway is not None:
        never.append(parse_range(spec.gateway))
    v6 = spec.family is Family.IPV6
    return Range(spec.realm, v6, whole.without(AddressSet.of(never)))


def plan_pool(
    pool: PoolView, ledger: Ledger, refused: Mapping[str, PendingReason] | None = None
) -> PoolPlan:
    """Plan which claims get which addresses.

    Requests are served by priority, age and UID. A request that cannot be served never blocks the
    requests behind it: only requests for any free address wait in the queue.
    """
    return _Planner(pool, ledger, refused or {}).plan()


def round_position(position: int) -> int:
    """Round a position in the queue up to two digits: 1 to 100, then 110, 120, ... 1100."""
    step = 1
    while position > _EXACT * step:
        step *= 10
    return -(-position // step) * step


class _Planner:
    def __init__(
        self, pool: PoolView, ledger: Ledger, refused: Mapping[str, PendingReason]
    ) -> None:
        self._pool = pool
        self._ledger = ledger
        self._refused = refused
        self._used = ledger.copy_used(pool.range.space)
        self._granted: set[int] = set()
        self._granted_in: Counter[str] = Counter()
        self._reclaimed_in: Counter[str] = Counter()
        self._last = pool.last
        self._grants: list[Assignment] = []
        self._pending: dict[str, PendingReason] = {}
        self._full = False

    def plan(self) -> PoolPlan:
        requests = self._ledger.list_open(self._pool.name, self._pool.max_priority)
        # Addresses in the status of claims have precedence over requests.
        for request in requests:
            if request.held:
                self._restore(request)
        for request in requests:
            if not request.held:
                self._serve(request)
        return PoolPlan(tuple(self._grants), self._number_queue())

    def _restore(self, request: Request) -> None:
        """Recreate the lost entry of an address, if the address can belong to the claim.

        The status of the claim alone is no proof: a restore from a backup can contain any address.
        The pool must contain the address, or an earlier claim of this name must have an entry for
        it.
        """
        refused = self._refused.get(request.uid)
        if refused is not None:
            self._pending[request.uid] = refused
            return
        number, entry = parse_address(request.held), self._find(request.held)
        if entry is not None and _is_of(entry, request) and _is_over(entry):
            self._grant(request, number, entry)
        elif entry is None and self._has(request.held) and number not in self._granted:
            self._grant(request, number)
        else:
            taken = entry is not None or number in self._granted
            why = "has another entry" if taken else f"is not in IPPool {self._pool.name}"
            self._pending[request.uid] = PendingReason(
                ClaimReason.ADDRESS_LOST,
                f"the ledger has no entry of {request.held} for this claim, and the address {why}; "
                "create another claim to get another address",
            )

    def _serve(self, request: Request) -> None:
        pending_reason = self._evaluate(request)
        if pending_reason is not None:
            self._pending[request.uid] = pending_reason
            return
        if request.requested:
            self._serve_requested(request)
            return
        earlier = self._find_earlier(request)
        if earlier is not None:
            self._grant(request, earlier.number, earlier)
            return
        refusal = self._refuse_new(request)
        if refusal is not None:
            self._pending[request.uid] = refusal
            return
        number = self._choose(request)
        if number is None:
            message = f"IPPool {self._pool.name} has no free address"
            self._pending[request.uid] = PendingReason(ClaimReason.POOL_EXHAUSTED, message, 0)
        else:
            self._grant(request, number)

    def _evaluate(self, request: Request) -> PendingReason | None:
        if self._pool.refusal is not None:
            return self._pool.refusal
        return self._pool.evaluate(request) or self._refused.get(request.uid)

    def _refuse_new(self, request: Request) -> PendingReason | None:
        """Return why a request cannot get an address that has no entry; None if it can."""
        namespace, quota, name = request.claim.namespace, self._pool.quota, self._pool.name
        if self._pool.restoring is not None:
            return self._pool.restoring
        if quota is None or self._count_in(namespace, resting=True) < quota:
            return None
        message = f"namespace {namespace} has all {quota} addresses"
        if self._count_in(namespace) < quota:
            message += ", including addresses in quarantine,"
        message += (
            f" that spec.quotaPerNamespace of IPPool {name} allows; release an address or raise "
            "the quota"
        )
        return PendingReason(ClaimReason.QUOTA_EXCEEDED, message)

    def _count_in(self, namespace: str, *, resting: bool = False) -> int:
        """Count the addresses that a namespace has after this plan, with or without quarantine."""
        name = self._pool.name
        held = self._ledger.count_in_namespace(name, namespace) + self._granted_in[namespace]
        if not resting:
            return held
        # Otherwise a namespace could quarantine a whole pool, in spite of its quota.
        quarantined = self._ledger.count_resting_in(name, namespace)
        return held + quarantined - self._reclaimed_in[namespace]

    def _serve_requested(self, request: Request) -> None:
        number = parse_address(request.requested)
        if not self._has(request.requested):
            self._pending[request.uid] = PendingReason(
                ClaimReason.ADDRESS_OUT_OF_RANGE,
                f"IPPool {self._pool.name} does not have {request.requested},"
                " the requested address",
            )
            return
        held = self._find(request.requested)
        if held is None and number not in self._granted:
            refusal = self._refuse_new(request)
            if refusal is not None:
                self._pending[request.uid] = refusal
            else:
                self._grant(request, number)
        elif held is not None and _is_of(held, request) and self._can_reclaim(held, request):
            self._grant(request, number, held)
        elif held is not None and held.released:
            self._pending[request.uid] = PendingReason(
                ClaimReason.ADDRESS_QUARANTINED,
                f"{request.requested} is quarantined after its last use",
            )
        else:
            self._pending[request.uid] = PendingReason(
                ClaimReason.ADDRESS_TAKEN, f"{request.requested} belongs to another claim"
            )

    def _find_earlier(self, request: Request) -> Entry | None:
        """Return the entry of an earlier claim, whose address the request gets; None for none.

        An entry that is not released yet belongs to a claim that was recreated or restored from a
        backup: an object with its name and another UID exists, so the earlier claim does not. A
        namespace whose quota allows no further address reuses its addresses in quarantine.
        """
        pool, claim = self._pool.name, request.claim
        found = [
            self._ledger.find_predecessor(request),
            self._ledger.find_tombstone(pool, claim),
        ]
        quota = self._pool.quota
        if quota is not None and self._count_in(claim.namespace, resting=True) >= quota:
            found += self._ledger.list_resting_in(pool, claim.namespace)
        for entry in found:
            # A claim without preference gets another address, except in a restored pool.
            wanted = request.sticky or (entry is not None and entry.pool_uid != self._pool.uid)
            if entry is not None and wanted and self._can_reclaim(entry, request):
                return entry
        return None

    def _can_reclaim(self, entry: Entry, request: Request) -> bool:
        quota = self._pool.quota
        return (
            _is_over(entry)
            and entry.number in self._pool.range.addresses
            and entry.number not in self._granted
            and (
                not entry.released
                or quota is None
                or self._count_in(request.claim.namespace) < quota
            )
        )

    def _choose(self, request: Request) -> int | None:
        addresses = self._pool.range.addresses
        if self._full or not addresses.size:
            return None
        match self._pool.strategy:
            case Strategy.LOWEST_FREE:
                start = 0
            case Strategy.ROUND_ROBIN:
                start = 0 if self._last is None else self._last + 1
            case Strategy.RANDOM:
                # Derived from the UID, which is random enough, so that the choice is the same after
                # a crash.
                digest = hashlib.sha256(request.uid.encode()).digest()
                start = addresses.at(int.from_bytes(digest[:16]) % addresses.size)
            case unknown:
                assert_never(unknown)
        found = addresses.find_free(self._used, start)
        # No address becomes free within a plan, so later requests need not search again.
        self._full = found is None
        return found

    def _grant(self, request: Request, number: int, tombstone: Entry | None = None) -> None:
        address = render_address(number, v6=self._pool.range.v6)
        self._grants.append(Assignment(request, address, tombstone))
        self._granted.add(number)
        namespace = request.claim.namespace
        self._granted_in[namespace] += tombstone is None or tombstone.released
        self._reclaimed_in[namespace] += tombstone is not None and tombstone.released
        if tombstone is None:
            insort(self._used, number)
        if not request.held and not request.requested:
            self._last = number

    def _has(self, address: str) -> bool:
        """Return whether the pool contains an address."""
        range_ = self._pool.range
        return range_.v6 == (":" in address) and parse_address(address) in range_.addresses

    def _find(self, address: str) -> Entry | None:
        return self._ledger.find_at(self._pool.range.realm, address)

    def _number_queue(self) -> dict[str, PendingReason]:
        """Set the position of each request that waits for any free address."""
        numbered: dict[str, PendingReason] = {}
        position = 0
        for uid, pending_reason in self._pending.items():
            if pending_reason.position is None:
                numbered[uid] = pending_reason
            else:
                position += 1
                numbered[uid] = PendingReason(
                    pending_reason.reason, pending_reason.message, round_position(position)
                )
        return numbered


def find_last(pool: PoolView, grants: Sequence[Assignment]) -> int | None:
    """Return the number that was allocated last; RoundRobin continues after it."""
    given = [grant for grant in grants if not grant.request.held and not grant.request.requested]
    return parse_address(given[-1].address) if given else pool.last


def _is_over(entry: Entry) -> bool:
    """Return whether the address of an earlier claim can be allocated now."""
    return entry.released or not entry.deleting


def _is_of(entry: Entry, request: Request) -> bool:
    return entry.claim == request.claim
