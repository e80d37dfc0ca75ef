"""Computes the smallest number of blocks with exceptions that contain given addresses. Pure.

A NetworkPolicy names addresses by blocks: a prefix, and excepted prefixes. The blocks are combined,
so a block can contain an address that another block excepts: 10.0.0.0/8 without 10.1.0.0/16 but
with 10.1.1.0/24 needs two blocks and one exception, not one block with eight exceptions.

The tree of prefixes is traversed once from the leaves. For each node, two costs are computed: the
cost of covering the wanted addresses below it if no block above contains it (`alone`), and if a
block above contains all of it (`inside`). Each block and each exception costs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv4Address, IPv6Address

from operators.network.firewall.addresses import BITS, Span, Spans, cut

type _Prefix = tuple[int, int]
"""First address, and the number of bits after the prefix."""
type _Piece = tuple[Span, AddressClass]


class AddressClass(Enum):
    """The desired treatment of an address."""

    COVERED = auto()
    FREE = auto()
    EXCLUDED = auto()


@dataclass(frozen=True, slots=True)
class Block:
    """A prefix with exceptions.

    Attributes:
        excepts: Prefixes within it that are excluded.
    """

    cidr: str
    excepts: tuple[str, ...] = ()

    @property
    def cost(self) -> int:
        """Number of its entries in a policy."""
        return 1 + len(self.excepts)

    @property
    def family(self) -> int:
        """Address family: 4 or 6."""
        return 6 if ":" in self.cidr else 4


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the result; parts are joined by reference and written once at the end.

    Attributes:
        block: Prefix of a block that begins here; `below` contains its exceptions.
        taken: Prefix that is an exception of the block above; parts below it stand alone.
        below: Parts below this one.
    """

    cost: int = 0
    block: _Prefix | None = None
    taken: _Prefix | None = None
    below: tuple[_Part, ...] = ()


_NOTHING = _Part()


def plan_cover(held: Spans, free: Spans, family: int) -> list[Block]:
    """Plan the smallest number of blocks and exceptions that contain exactly the given addresses.

    Args:
        held: Addresses that the blocks must contain.
        free: Addresses that the blocks may contain; they can overlap with `held`.
        family: 4 or 6.
    """
    bits = BITS[family]
    pieces: list[_Piece] = []
    for span, marks in cut((held, free), 1 << bits):
        treatment = (
            AddressClass.COVERED
            if marks & 1
            else AddressClass.FREE if marks else AddressClass.EXCLUDED
        )
        pieces.append((span, treatment))
    alone, _ = _plan((0, bits), pieces)
    return _write_out(alone, family)


def _plan(node: _Prefix, pieces: Sequence[_Piece]) -> tuple[_Part, _Part]:
    """Return the cheapest parts of a node: alone, and inside a block."""
    first, bits = node
    treatments = {treatment for _, treatment in pieces}
    if AddressClass.COVERED not in treatments:
        return _NOTHING, (_Part(1, taken=node) if AddressClass.EXCLUDED in treatments else _NOTHING)
    if AddressClass.EXCLUDED not in treatments:
        return _Part(1, block=node), _NOTHING
    middle = first + (1 << (bits - 1))
    low = [(span, treatment) for span, treatment in pieces if span[0] < middle]
    high = [(span, treatment) for span, treatment in pieces if span[1] > middle]
    low_alone, low_inside = _plan((first, bits - 1), low)
    high_alone, high_inside = _plan((middle, bits - 1), high)
    apart = _join(low_alone, high_alone)
    inside = _join(low_inside, high_inside)
    around = _Part(1 + inside.cost, block=node, below=(inside,))
    # If both cost the same, the result without exceptions is easier to read.
    alone = around if around.cost < apart.cost else apart
    reassigned = _Part(1 + alone.cost, taken=node, below=(alone,))
    return alone, (reassigned if reassigned.cost < inside.cost else inside)


def _join(low: _Part, high: _Part) -> _Part:
    if low.cost == 0 or high.cost == 0:
        return low if high.cost == 0 else high
    return _Part(low.cost + high.cost, below=(low, high))


def _write_out(part: _Part, family: int) -> list[Block]:
    blocks: list[tuple[_Prefix, list[_Prefix]]] = []

    def walk(each: _Part, exceptions: list[_Prefix]) -> None:
        if each.block is not None:
            exceptions = []
            blocks.append((each.block, exceptions))
        if each.taken is not None:
            exceptions.append(each.taken)
        for below in each.below:
            walk(below, exceptions)

    walk(part, [])
    return [
        Block(_render(prefix, family), tuple(_render(each, family) for each in sorted(exceptions)))
        for prefix, exceptions in sorted(blocks)
    ]


def _render(prefix: _Prefix, family: int) -> str:
    first, bits = prefix
    address = IPv4Address(first) if family == 4 else IPv6Address(first)
    return f"{address}/{BITS[family] - bits}"
