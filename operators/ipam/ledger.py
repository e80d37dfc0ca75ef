"""The ledger in memory: allocated addresses and waiting claims, updated with each change.

It is computed from the cache alone and never the last word: an address is given by the create of
its entry, which the API server lets one writer do. Everything here costs the same in a /24 and in a
/16: numbers are kept sorted, and each change moves one of them.
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
"""A realm, and whether its IPv6 addresses are meant."""


class Slot(StrEnum):
    """Which of the addresses of a claim is meant."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the ledger.

    Attributes:
        name: Its name, made of realm and address.
        uid: Which incarnation it is.
        realm: Space in which the address is there once.
        address: The address.
        number: The address as a number.
        pool: Pool that it was taken from.
        claim: Claim that has it, or had it.
        claim_uid: Which incarnation of the claim.
        released: Whether the claim is gone and the address rests.
        until: When the rest is over; None while it is not released.
        deleting: Whether its deletion was asked for.
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

    @property
    def v6(self) -> bool:
        """Whether the address is one of IPv6."""
        return ":" in self.address

    @property
    def space(self) -> Space:
        """The realm and family."""
        return self.realm, self.v6


@dataclass(frozen=True, slots=True)
class Request:
    """The request of one claim to one pool.

    Attributes:
        claim: The claim.
        uid: Which incarnation it is.
        pool: Name of the pool.
        slot: Which of its addresses this is.
        priority: Goes before age.
        created: Creation time of the claim as it is written, which sorts by time.
        requested: Address that the spec requests; empty for any.
        first_pool: Pool of the first address, if this is the second one; else empty.
        held: Address that the status says the claim has; empty for none.
        sticky: Whether the address that a claim of this name had before is preferred.
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
        """Return what the queue is sorted by: priority up to a limit, then age, then UID."""
        priority = self.priority if max_priority is None else min(self.priority, max_priority)
        return -priority, self.created, self.uid


@dataclass(frozen=True, slots=True)
class Range:
    """The addresses of a pool.

    Attributes:
        realm: Space in which its addresses are there once.
        v6: Whether they are of IPv6.
        addresses: What can be given.
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
        entries: Entries by name.
        ranges: What each pool has, by its name.
        open: Requests that have no entry yet, by pool and UID of the claim.
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

    # What changes it.

    def put_entry(self, entry: Entry) -> None:
        """Take in an entry as it is now."""
        self.remove_entry(entry.name)
        self.entries[entry.name] = entry
        insort(self._used.setdefault(entry.space, []), entry.number)
        if entry.released:
            self._tombs.setdefault((entry.pool, entry.claim), set()).add(entry.name)
            self._resting.setdefault(entry.pool, set()).add(entry.name)
        else:
            insort(self._live.setdefault(entry.pool, []), entry.number)
            self._held.setdefault((entry.pool, entry.claim), set()).add(entry.name)
            self._by_namespace[entry.pool, entry.claim.namespace] += 1
            self._by_claim.setdefault((entry.pool, entry.claim_uid), set()).add(entry.name)
        self._sort_out(entry.pool, entry.claim_uid)

    def remove_entry(self, name: str) -> None:
        """Take in that an entry is gone."""
        entry = self.entries.pop(name, None)
        if entry is None:
            return
        _take_out(self._used[entry.space], entry.number)
        if entry.released:
            _discard(self._tombs, (entry.pool, entry.claim), name)
            _discard(self._resting, entry.pool, name)
        else:
            _take_out(self._live[entry.pool], entry.number)
            _discard(self._held, (entry.pool, entry.claim), name)
            self._by_namespace[entry.pool, entry.claim.namespace] -= 1
            _discard(self._by_claim, (entry.pool, entry.claim_uid), name)
        self._sort_out(entry.pool, entry.claim_uid)

    def put_request(self, request: Request) -> None:
        """Take in what a claim wants of a pool."""
        self._requests[request.pool, request.uid] = request
        self._sort_out(request.pool, request.uid)

    def remove_request(self, pool: str, uid: str) -> None:
        """Take in that a claim wants nothing of a pool any more."""
        self._requests.pop((pool, uid), None)
        self._sort_out(pool, uid)

    def _sort_out(self, pool: str, uid: str) -> None:
        request = self._requests.get((pool, uid))
        waiting = self.open.setdefault(pool, {})
        if request is None or (pool, uid) in self._by_claim:
            waiting.pop(uid, None)
        else:
            waiting[uid] = request

    # What it tells.

    def list_open(self, pool: str, max_priority: int | None = None) -> list[Request]:
        """Return the requests of a pool that have no entry yet, the next to be served first."""
        waiting = self.open.get(pool, {}).values()
        return sorted(waiting, key=lambda request: request.rank(max_priority))

    def copy_used(self, space: Space) -> list[int]:
        """Return the numbers of a realm and family that have an entry, sorted, to be changed."""
        return list(self._used.get(space, _NO_NUMBERS))

    def count_used(self, within: Range) -> int:
        """Count the addresses of a pool that have an entry, of whatever pool."""
        return within.addresses.count(self._used.get(within.space, _NO_NUMBERS))

    def count_allocated(self, pool: str) -> int:
        """Count the addresses of a pool that claims have."""
        return len(self._live.get(pool, _NO_NUMBERS))

    def count_in_namespace(self, pool: str, namespace: str) -> int:
        """Count the addresses of a pool that the claims of a namespace have."""
        return self._by_namespace[pool, namespace]

    def count_outside(self, pool: str, addresses: AddressSet) -> int:
        """Count the addresses of a pool that claims have and that it does not have any more."""
        return self.count_allocated(pool) - addresses.count(self._live.get(pool, _NO_NUMBERS))

    def list_resting(self, pool: str) -> list[Entry]:
        """Return the entries of a pool that rest, in no order."""
        return [self.entries[name] for name in self._resting.get(pool, ())]

    def find_at(self, realm: str, address: str) -> Entry | None:
        """Return the entry of an address, or None."""
        return self.entries.get(allocation_name(realm, address))

    def entries_of(self, pool: str, claim_uid: str) -> list[Entry]:
        """Return the entries of a pool that a claim has, the lowest first; one, where all is well.

        Two are there after two leaders served one claim: the first that its status names counts.
        """
        names = self._by_claim.get((pool, claim_uid), ())
        return sorted((self.entries[name] for name in names), key=lambda entry: entry.number)

    def find_tombstone(self, pool: str, claim: Key) -> Entry | None:
        """Return the lowest address at rest that a claim of this name had of a pool."""
        found = (self.entries[name] for name in self._tombs.get((pool, claim), ()))
        return min(found, key=lambda entry: entry.number, default=None)

    def find_predecessor(self, request: Request) -> Entry | None:
        """Return the lowest address that an earlier claim of the same name has not released yet.

        Such an entry is there for a moment after a claim was replaced, and after a restore from a
        backup: the ledger then names the claims by the UIDs that they had before.
        """
        names = self._held.get((request.pool, request.claim), ())
        found = (self.entries[name] for name in names)
        earlier = (each for each in found if each.claim_uid != request.uid and not each.deleting)
        return min(earlier, key=lambda entry: entry.number, default=None)

    def list_sharers(self, pool: str) -> list[str]:
        """Return the other pools of the realm that have some address of a pool too, by name."""
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
        """Return the pools that claims of a pool wait for a second address of, by name."""
        return sorted(
            name
            for name, waiting in self.open.items()
            if any(request.first_pool == pool for request in waiting.values())
        )

    def list_pools_with(self, entry: Entry) -> set[str]:
        """Return the pools that count an entry: its own, and those that have the address too."""
        having = {
            name
            for name, held in self.ranges.items()
            if held.space == entry.space and entry.number in held.addresses
        }
        return having | {entry.pool}


def _take_out(numbers: list[int], number: int) -> None:
    del numbers[bisect_left(numbers, number)]


def _discard[K](index: dict[K, set[str]], key: K, name: str) -> None:
    names = index[key]
    names.discard(name)
    if not names:
        del index[key]
