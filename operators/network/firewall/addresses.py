"""Sets of IP addresses of both families. Pure.

A set consists of two lists of half-open spans, one list for each family. The spans are sorted and
do not touch. They are spans and not prefixes, because the difference of two sets can begin and end
at any address; `cover.py` converts spans to prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from operators.network.api.v1alpha1.fields import parse_block

type Span = tuple[int, int]
"""First address, and the address after the last one, as numbers."""
type Spans = tuple[Span, ...]

BITS: Final = {4: 32, 6: 128}
"""Number of bits of an address, by family."""


@dataclass(frozen=True, slots=True)
class AddressSet:
    """A set of addresses of both families.

    Attributes:
        v4: Spans of IPv4.
        v6: Spans of IPv6.
    """

    v4: Spans = ()
    v6: Spans = ()

    @classmethod
    def of(cls, cidrs: Iterable[str]) -> Self:
        """Build the set of all addresses in the given blocks.

        Raises:
            ValueError: A text is not CIDR notation.
        """
        spans: dict[int, list[Span]] = {4: [], 6: []}
        for block in map(parse_block, cidrs):
            first = int(block.network_address)
            spans[block.version].append((first, first + block.num_addresses))
        return cls(join(spans[4]), join(spans[6]))

    def meets(self, other: AddressSet) -> bool:
        """Return whether two sets have an address in common."""
        return any(
            first < there_end and there < end
            for family in BITS
            for first, end in self.spans(family)
            for there, there_end in other.spans(family)
        )

    def spans(self, family: int) -> Spans:
        """Return the spans of one family, 4 or 6."""
        return self.v4 if family == 4 else self.v6


EVERYWHERE: Final = AddressSet(((0, 1 << BITS[4]),), ((0, 1 << BITS[6]),))
"""Every address of both families."""

NOWHERE: Final = AddressSet()
"""No address."""


def join(spans: Iterable[Span]) -> Spans:
    """Sort spans, and join spans that touch or overlap."""
    joined: list[Span] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif first < end:
            joined.append((first, end))
    return tuple(joined)


def cut(sets: Iterable[Spans], end: int) -> Iterator[tuple[Span, int]]:
    """Cut a range into the longest pieces that each set contains completely or not at all.

    Args:
        sets: The sets.
        end: Exclusive end of the range, which begins at 0.

    Yields:
        Each piece in order, with a number whose bit n is set if set n contains the piece.
    """
    turns: dict[int, int] = {0: 0}
    for number, spans in enumerate(sets):
        for span in spans:
            for edge in span:
                turns[edge] = turns.get(edge, 0) ^ (1 << number)
    edges = sorted(edge for edge in turns if edge < end)
    held = 0
    for edge, following in zip(edges, [*edges[1:], end], strict=True):
        held ^= turns[edge]
        yield (edge, following), held
