"""Sets of addresses as sorted runs of numbers. Pure.

A /64 has too many addresses to enumerate. So sizes are computed as sums, membership is tested by
bisection, and the next free number is found by bisection over the gaps between used numbers.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Self

type Run = tuple[int, int]
"""The first and the last number of a run, both inclusive."""

_SMALLEST_WITH_BROADCAST: Final = 4
"""A network of one or two addresses (RFC 3021) has neither a network nor a broadcast address."""


@dataclass(frozen=True, slots=True)
class AddressSet:
    """A set of numbers as sorted, disjoint runs that are not empty.

    Attributes:
        runs: First and last number of each run.
    """

    runs: tuple[Run, ...] = ()

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Self:
        """Build a set from runs, which can overlap and be in any order."""
        merged: list[Run] = []
        for first, last in sorted(run for run in runs if run[0] <= run[1]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(last - first + 1 for first, last in self.runs)

    def __contains__(self, number: int) -> bool:
        """Return whether a number is in the set."""
        index = bisect_right(self.runs, number, key=itemgetter(0)) - 1
        return index >= 0 and number <= self.runs[index][1]

    def without(self, other: AddressSet) -> AddressSet:
        """Return the difference: the numbers that are not in the other set."""
        left: list[Run] = []
        for first, last in self.runs:
            for hole_first, hole_last in other.runs:
                if hole_last < first or hole_first > last:
                    continue
                if hole_first > first:
                    left.append((first, hole_first - 1))
                first = hole_last + 1
            if first <= last:
                left.append((first, last))
        return AddressSet(tuple(left))

    def overlaps(self, other: AddressSet) -> bool:
        """Return whether the sets have a number in common."""
        return any(
            first <= other_last and other_first <= last
            for first, last in self.runs
            for other_first, other_last in other.runs
        )

    def count(self, numbers: Sequence[int]) -> int:
        """Return how many of the given sorted, distinct numbers are in the set."""
        return sum(
            bisect_right(numbers, last) - bisect_left(numbers, first) for first, last in self.runs
        )

    def list_blocks(self, limit: int, *, v6: bool) -> list[str]:
        """Return CIDRs with all elements, sorted by address.

        If there are too many, the smallest ones grow until they merge, so that they contain other
        numbers as well.

        Args:
            limit: Maximum number of CIDRs.
            v6: Whether the numbers are IPv6 addresses.
        """
        address: Any = ipaddress.IPv6Address if v6 else ipaddress.IPv4Address
        blocks: list[Any] = [
            block
            for first, last in self.runs
            for block in ipaddress.summarize_address_range(address(first), address(last))
        ]
        while len(blocks) > limit:
            smallest = max(block.prefixlen for block in blocks)
            grown = [each.supernet() if each.prefixlen == smallest else each for each in blocks]
            blocks = list(ipaddress.collapse_addresses(grown))
        return [str(block) for block in blocks]

    def find_free(self, used: Sequence[int], start: int) -> int | None:
        """Return the first unused number at or after `start`, wrapping around once.

        Args:
            used: Sorted, distinct numbers; numbers outside of the set are ignored.
            start: Any number.

        Returns:
            The number; None if every number of the set is used.
        """
        split = bisect_left(self.runs, start, key=itemgetter(1))
        for index in (*range(split, len(self.runs)), *range(split)):
            first, last = self.runs[index]
            found = find_gap(used, max(first, start) if index == split else first)
            if found <= last:
                return found
        if split < len(self.runs) and self.runs[split][0] < start:
            # The part of the run before the start comes last.
            found = find_gap(used, self.runs[split][0])
            return found if found < start else None
        return None

    def at(self, rank: int) -> int:
        """Return the element at an index, counted from 0.

        Raises:
            IndexError: The set has fewer elements.
        """
        for first, last in self.runs:
            if rank <= last - first:
                return first + rank
            rank -= last - first + 1
        raise IndexError(rank)


def find_gap(used: Sequence[int], start: int) -> int:
    """Return the smallest number at or after `start` that is not in sorted, distinct numbers.

    The difference between a used number and its index increases only after a missing number, so
    bisection finds the end of a run of used numbers.
    """
    begin = bisect_left(used, start)
    low, high = begin, len(used)
    while low < high:
        middle = (low + high) // 2
        if used[middle] - start > middle - begin:
            high = middle
        else:
            low = middle + 1
    return start + low - begin


def parse_range(text: str, *, skip_reserved: bool = False) -> Run:
    """Parse an address, a CIDR or a range, and return its first and last number.

    Args:
        text: `203.0.113.7`, `203.0.113.0/26` or `203.0.113.10-203.0.113.20`.
        skip_reserved: Whether to exclude the network and broadcast address of an IPv4 CIDR, and the
            subnet-router anycast address of an IPv6 CIDR.

    Raises:
        ValueError: The text has none of these formats, the range ends before it begins, or the CIDR
            has host bits set, so that it could mean one address or the whole network.
    """
    if "-" in text:
        first, last = (ipaddress.ip_address(part) for part in text.split("-", 1))
        if first.version != last.version or int(first) > int(last):
            raise ValueError(f"{text}: the first address must not be after the last")
        return int(first), int(last)
    if "/" not in text:
        number = int(ipaddress.ip_address(text))
        return number, number
    network = ipaddress.ip_network(text)
    low, high = int(network.network_address), int(network.broadcast_address)
    if not skip_reserved or network.num_addresses < _SMALLEST_WITH_BROADCAST:
        return low, high
    return low + 1, high - (network.version == 4)


def parse_address(text: str) -> int:
    """Parse an address, and return its number.

    Raises:
        ValueError: The text is not an address.
    """
    return int(ipaddress.ip_address(text))


def render_address(number: int, *, v6: bool) -> str:
    """Render a number as an address, in its shortest form."""
    return str(ipaddress.IPv6Address(number) if v6 else ipaddress.IPv4Address(number))
