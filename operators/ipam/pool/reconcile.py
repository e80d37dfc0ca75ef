"""Which claim gets which address; pure: no input or output, no clock, no chance.

The plan looks at what is known. It may be wrong about what is free, as the cache may be late. Then
the create meets the entry of somebody else, which is known from there on, and the plan is made
again. So the plan is about order and choice; that no address is given twice is the API server's.
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
"""Places in the queue from which on they are rounded, lest one release rewrites thousands."""


@dataclass(frozen=True, slots=True)
class PendingReason:
    """The reason why a claim has no address.

    Attributes:
        reason: Reason of its condition Ready.
        message: The same for people.
        position: Its place in the queue; None when it does not wait for a free address.
    """

    reason: ClaimReason
    message: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of an address to a claim.

    Attributes:
        request: Whose it will be.
        address: The address.
        tombstone: Entry of the same address that the claim of this name had before and that has
            to go first; None for an address that nobody has.
    """

    request: Request
    address: str
    tombstone: Entry | None = None


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as the plan needs it.

    Attributes:
        name: Its name.
        range: What it has.
        strategy: Which of the free addresses is next.
        last: The number that was given last; None for none.
        refusal: Why nobody is served; None when claims are.
        evaluate: Returns why this pool cannot serve a request; None if it can.
        quota: Most addresses that the claims of a namespace can have; None for no limit.
        max_priority: Highest priority that counts; None for no limit.
    """

    name: str
    range: Range
    strategy: Strategy = Strategy.ROUND_ROBIN
    last: int | None = None
    refusal: PendingReason | None = None
    evaluate: Callable[[Request], PendingReason | None] = field(default=lambda _: None)
    quota: int | None = None
    max_priority: int | None = None


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The allocations, and why other claims have no address.

    Attributes:
        grants: In the order of the queue.
        pending: Why the others have no address, by UID of the claim.
    """

    grants: tuple[Assignment, ...] = ()
    pending: Mapping[str, PendingReason] = field(default_factory=dict)


def build_range(spec: IPPoolSpec) -> Range:
    """Build what a pool has to give: its addresses without those that are never given."""
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
    """Decide who gets which address.

    Requests are served by priority, age and UID. One that cannot be served never keeps those
    behind it from being served: only those that any free address would do for wait in a queue.

    Args:
        pool: Addresses of the pool.
        ledger: Ledger of allocated addresses and waiting claims.
        refused: Claims that the API server refused an entry in this reconcile, with what it said.
    """
    return _Planner(pool, ledger, refused or {}).plan()


def round_position(position: int) -> int:
    """Round a place in the queue to two digits, upwards: 1 to 100, then 110, 120, ... 1100."""
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
        return PoolPlan(tuple(self._grants), self._place())

    def _restore(self, request: Request) -> None:
        """Recreate the lost entry of an address, if the address can belong to the claim.

        A status alone proves nothing: a restore from a backup may bring any. The address must be
        one of the pool, or have an entry that an earlier claim of this name left behind.
        """
        refused = self._refused.get(request.uid)
        if refused is not None:
            self._pending[request.uid] = refused
            return
        number, entry = parse_address(request.held), self._find(request.held)
        if entry is not None and entry.released and _is_of(entry, request):
            self._grant(request, number, entry)
        elif entry is None and self._has(request.held) and number not in self._granted:
            self._grant(request, number)
        else:
            taken = entry is not None or number in self._granted
            why = "has another entry" if taken else f"is not in IPPool {self._pool.name}"
            self._pending[request.uid] = PendingReason(
                ClaimReason.ADDRESS_LOST,
                f"the ledger has no entry of {request.held} for this claim, and the address {why}; "
                "delete the claim to get another address",
            )

    def _serve(self, request: Request) -> None:
        pending_reason = self._evaluate(request)
        if pending_reason is not None:
            self._pending[request.uid] = pending_reason
            return
        if request.requested:
            self._serve_requested(request)
            return
        tombstone = self._find_own_tombstone(request)
        if tombstone is not None:
            self._grant(request, tombstone.number, tombstone)
            return
        earlier = self._ledger.find_predecessor(request) if request.sticky else None
        if earlier is not None:
            message = f"{earlier.address} is being released by an earlier claim of this name"
            self._pending[request.uid] = PendingReason(ClaimReason.RECLAIMING, message)
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
        return (
            self._pool.evaluate(request)
            or self._refused.get(request.uid)
            or self._check_quota(request.claim.namespace)
        )

    def _check_quota(self, namespace: str) -> PendingReason | None:
        quota, name = self._pool.quota, self._pool.name
        used = self._ledger.count_in_namespace(name, namespace) + self._granted_in[namespace]
        if quota is None or used < quota:
            return None
        message = (
            f"namespace {namespace} has all {quota} addresses that spec.quotaPerNamespace of "
            f"IPPool {name} allows; delete a claim or raise the quota"
        )
        return PendingReason(ClaimReason.QUOTA_EXCEEDED, message)

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
            self._grant(request, number)
        elif held is not None and held.released and _is_of(held, request):
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

    def _find_own_tombstone(self, request: Request) -> Entry | None:
        if not request.sticky:
            return None
        found = self._ledger.find_tombstone(self._pool.name, request.claim)
        inside = found is not None and found.number in self._pool.range.addresses
        return found if inside and found is not None and found.number not in self._granted else None

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
                # By the UID, which is random enough and the same after a crash.
                digest = hashlib.sha256(request.uid.encode()).digest()
                start = addresses.at(int.from_bytes(digest[:16]) % addresses.size)
            case unknown:
                assert_never(unknown)
        found = addresses.find_free(self._used, start)
        # Nothing becomes free within a plan, so nobody further back has to look.
        self._full = found is None
        return found

    def _grant(self, request: Request, number: int, tombstone: Entry | None = None) -> None:
        address = render_address(number, v6=self._pool.range.v6)
        self._grants.append(Assignment(request, address, tombstone))
        self._granted.add(number)
        self._granted_in[request.claim.namespace] += 1
        if tombstone is None:
            insort(self._used, number)
        if not request.held and not request.requested:
            self._last = number

    def _has(self, address: str) -> bool:
        """Return whether the pool has an address."""
        range_ = self._pool.range
        return range_.v6 == (":" in address) and parse_address(address) in range_.addresses

    def _find(self, address: str) -> Entry | None:
        return self._ledger.find_at(self._pool.range.realm, address)

    def _place(self) -> dict[str, PendingReason]:
        """Number those that wait for any free address, in their order."""
        placed: dict[str, PendingReason] = {}
        position = 0
        for uid, pending_reason in self._pending.items():
            if pending_reason.position is None:
                placed[uid] = pending_reason
            else:
                position += 1
                placed[uid] = PendingReason(
                    pending_reason.reason, pending_reason.message, round_position(position)
                )
        return placed


def find_last(pool: PoolView, grants: Sequence[Assignment]) -> int | None:
    """Return the number that was given last, for the next plan to continue after."""
    given = [grant for grant in grants if not grant.request.held and not grant.request.requested]
    return parse_address(given[-1].address) if given else pool.last


def _is_of(entry: Entry, request: Request) -> bool:
    return entry.claim == request.claim
