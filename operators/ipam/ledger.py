"""The ledger in memory: allocated addresses and waiting claims, updated with each change.

It is computed only from the cache and can be outdated. That is safe, because an address is
allocated by the create of its entry, which only one writer can do. Numbers are kept sorted and each
change moves one of them, so the cost does not depend on the size of a pool.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from libs.common.kinds import Key
from operators.ipam.addresses import AddressSet
from operators.ipam.naming import allocation_name

type Space = tuple[str, bool]
"""A realm, and the family: True means IPv6."""


class Slot(StrEnum):
    """The first or the second address of a claim."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the ledger.

    Attributes:
        name: Name of the IPAllocation, which consists of realm and address.
        realm: Space in which the address is unique.
        number: The address as a number.
        claim: Claim that has or had the address.
        released: Whether the claim was deleted and the address is in quarantine.
        until: End of the quarantine; None if the address is not in quarantine.
        deleting: Whether the IPAllocation is being deleted.
        pool_uid: UID of the pool that allocated the address.
    """

    name: str
    uid: str
    realm: str
    address: str
    number: int
    pool: str
    claim: Key
    claim_uid: str
    released: bool = False
    until: datetime | None = None
    deleting: bool = False
    pool_uid: str = ""

    @property
    def v6(self) -> bool:
        """Whether the address is an IPv6 address."""
        return ":" in self.address

    @property
    def space(self) -> Space:
        """The realm and family."""
        return self.realm, self.v6


@dataclass(frozen=True, slots=True)
class Request:
    """The request of one claim to one pool.

    Attributes:
        slot: Whether the first or the second address of the claim is requested.
        priority: Higher priorities are served first, before older claims.
        created: Creation time of the claim as text, which can be sorted.
        requested: Address in the spec; empty for any.
        first_pool: Pool of the first address if this is the second one; otherwise empty.
        held: Address in the status of the claim; empty for none.
        sticky: Whether the claim prefers the address of an earlier claim of this name.
    """

    claim: Key
    uid: str
    pool: str
    slot: Slot = Slot.PRIMARY
    priority: int = 0
    created: str = ""
    first_pool: str = ""
    requested: str = ""
    held: str = ""
    sticky: bool = True

    def rank(self, max_priority: int | None) -> tuple[int, str, str]:
        """Return the sort key of the queue: priority up to a limit, then age, then UID."""
        priority = self.priority if max_priority is None else min(self.priority, max_priority)
        return -priority, self.created, self.uid


@dataclass(frozen=True, slots=True)
class Range:
    """The addresses of a pool.

    Attributes:
        realm: Space in which the addresses are unique.
        addresses: Addresses that can be allocated.
    """

    realm: str
    v6: bool
    addresses: AddressSet

    @property
    def space(self) -> Space:
        """The realm and family."""
        return self.realm, self.v6


_NO_NUMBERS: Final[tuple[int, ...]] = ()


@dataclass(slots=True)
class Ledger:
    """The entries, requests and pools, with the queries of the reconcilers.

    Attributes:
        ranges: Addresses of each valid pool, by name of the pool.
        open: Requests without an entry, by pool and UID of the claim.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    open: dict[str, dict[str, Request]] = field(default_factory=dict)
    _requests: dict[tuple[str, str], Request] = field(default_factory=dict)
    _by_claim: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _tombs: dict[tuple[str, Key], set[str]] = field(default_factory=dict)
    _used: dict[Space, list[int]] = field(default_factory=dict)
    _live: dict[str, list[int]] = field(default_factory=dict)
    _held: dict[tuple[str, Key], set[str]] = field(default_factory=dict)
    _by_namespace: Counter[tuple[str, str]] = field(default_factory=Counter)
    _resting: dict[str, set[str]] = field(default_factory=dict)
    _resting_in: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    # Updates.

    def put_entry(self, entry: Entry) -> None:
        """Add or update an entry."""
        self.remove_entry(entry.name)
        self.entries[entry.name] = entry
        insort(self._used.setdefault(entry.space, []), entry.number)
        if entry.released:
            self._tombs.setdefault((entry.pool, entry.claim), set()).add(entry.name)
            self._resting.setdefault(entry.pool, set()).add(entry.name)
            self._resting_in.setdefault(_home(entry), set()).add(entry.name)
        else:
            insort(self._live.setdefault(entry.pool, []), entry.number)
            self._held.setdefault((entry.pool, entry.claim), set()).add(entry.name)
            self._by_namespace[_home(entry)] += 1
            self._by_claim.setdefault((entry.pool, entry.claim_uid), set()).add(entry.name)
        self._update_open(entry.pool, entry.claim_uid)

    def remove_entry(self, name: str) -> None:
        """Remove an entry if it exists."""
        entry = self.entries.pop(name, None)
        if entry is None:
            return
        _take_out(self._used[entry.space], entry.number)
        if entry.released:
            _discard(self._tombs, (entry.pool, entry.claim), name)
            _discard(self._resting, entry.pool, name)
            _discard(self._resting_in, _home(entry), name)
        else:
            _take_out(self._live[entry.pool], entry.number)
            _discard(self._held, (entry.pool, entry.claim), name)
            self._by_namespace[_home(entry)] -= 1
            _discard(self._by_claim, (entry.pool, entry.claim_uid), name)
        self._update_open(entry.pool, entry.claim_uid)

    def put_request(self, request: Request) -> None:
        """Add or update the request of a claim to a pool."""
        self._requests[request.pool, request.uid] = request
        self._update_open(request.pool, request.uid)

    def remove_request(self, pool: str, uid: str) -> None:
        """Remove the request of a claim to a pool if it exists."""
        self._requests.pop((pool, uid), None)
        self._update_open(pool, uid)

    def _update_open(self, pool: str, uid: str) -> None:
        request = self._requests.get((pool, uid))
        waiting = self.open.setdefault(pool, {})
        if request is None or (pool, uid) in self._by_claim:
            waiting.pop(uid, None)
        else:
            waiting[uid] = request

    # Queries.

    def list_open(self, pool: str, max_priority: int | None = None) -> list[Request]:
        """Return the requests to a pool that have no entry, in the order of the queue."""
        waiting = self.open.get(pool, {}).values()
        return sorted(waiting, key=lambda request: request.rank(max_priority))

    def copy_used(self, space: Space) -> list[int]:
        """Return a sorted copy of the numbers of a realm and family that have an entry."""
        return list(self._used.get(space, _NO_NUMBERS))

    def count_used(self, within: Range) -> int:
        """Count the addresses of a pool that have an entry, including entries of other pools."""
        return within.addresses.count(self._used.get(within.space, _NO_NUMBERS))

    def count_allocated(self, pool: str) -> int:
        """Count the addresses of a pool that claims have."""
        return len(self._live.get(pool, _NO_NUMBERS))

    def count_in_namespace(self, pool: str, namespace: str) -> int:
        """Count the addresses of a pool that the claims of a namespace have."""
        return self._by_namespace[pool, namespace]

    def count_resting_in(self, pool: str, namespace: str) -> int:
        """Count the addresses in quarantine that the claims of a namespace had."""
        return len(self._resting_in.get((pool, namespace), ()))

    def list_resting_in(self, pool: str, namespace: str) -> list[Entry]:
        """Return the entries in quarantine of a pool and a namespace, the lowest address first."""
        names = self._resting_in.get((pool, namespace), ())
        return sorted((self.entries[name] for name in names), key=lambda entry: entry.number)

    def count_outside(self, pool: str, addresses: AddressSet) -> int:
        """Count the allocated addresses of a pool that its spec no longer contains."""
        return self.count_allocated(pool) - addresses.count(self._live.get(pool, _NO_NUMBERS))

    def list_outside(self, pool: str, addresses: AddressSet) -> list[int]:
        """Return the allocated addresses of a pool that its spec no longer contains."""
        return [each for each in self._live.get(pool, _NO_NUMBERS) if each not in addresses]

    def list_resting(self, pool: str) -> list[Entry]:
        """Return the entries of a pool in quarantine, in no particular order."""
        return [self.entries[name] for name in self._resting.get(pool, ())]

    def find_at(self, realm: str, address: str) -> Entry | None:
        """Return the entry of an address, or None."""
        return self.entries.get(allocation_name(realm, address))

    def entries_of(self, pool: str, claim_uid: str) -> list[Entry]:
        """Return the entries of a claim in a pool, the lowest address first; normally at most one.

        If two leaders served one claim, it has two entries. The entry with the address in the
        status of the claim counts.
        """
        names = self._by_claim.get((pool, claim_uid), ())
        return sorted((self.entries[name] for name in names), key=lambda entry: entry.number)

    def find_tombstone(self, pool: str, claim: Key) -> Entry | None:
        """Return the entry in quarantine with the lowest address that a claim of this name had."""
        found = (self.entries[name] for name in self._tombs.get((pool, claim), ()))
        return min(found, key=lambda entry: entry.number, default=None)

    def find_predecessor(self, request: Request) -> Entry | None:
        """Return the entry with the lowest address that an earlier claim has not released yet.

        The earlier claim has the same name and another UID. Such an entry exists for a moment after
        a claim was recreated, and after a restore from a backup: the ledger then contains the
        former UIDs of the claims.
        """
        names = self._held.get((request.pool, request.claim), ())
        found = (self.entries[name] for name in names)
        earlier = (each for each in found if each.claim_uid != request.uid and not each.deleting)
        return min(earlier, key=lambda entry: entry.number, default=None)

    def list_sharers(self, pool: str) -> list[str]:
        """Return the names of other pools that overlap with a pool, sorted."""
        mine = self.ranges.get(pool)
        return sorted(
            name
            for name, other in self.ranges.items()
            if mine is not None
            and name != pool
            and other.space == mine.space
            and other.addresses.overlaps(mine.addresses)
        )

    def list_neighbors(self, pool: str) -> list[str]:
        """Return the names of pools whose second addresses wait for a first pool, sorted."""
        return sorted(
            name
            for name, waiting in self.open.items()
            if any(request.first_pool == pool for request in waiting.values())
        )

    def list_pools_with(self, entry: Entry) -> set[str]:
        """Return the pools whose capacity an entry affects: its own pool and overlapping ones."""
        overlapping = {
            name
            for name, held in self.ranges.items()
            if held.space == entry.space and entry.number in held.addresses
        }
        return overlapping | {entry.pool}


def _home(entry: Entry) -> tuple[str, str]:
    return entry.pool, entry.claim.namespace


def _take_out(numbers: list[int], number: int) -> None:
    del numbers[bisect_left(numbers, number)]


def _discard[K](index: dict[K, set[str]], key: K, name: str) -> None:
    names = index[key]
    names.discard(name)
    if not names:
        del index[key]
