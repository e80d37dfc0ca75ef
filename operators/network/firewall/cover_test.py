"""Covers hold what is wanted, nothing else, and are as short as any can be."""

from __future__ import annotations

import heapq
from functools import cache
from ipaddress import ip_network
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from operators.network.firewall.addresses import Spans, cut, join
from operators.network.firewall.cover import Block, plan_cover

BASE = 0x0A000000
"""The tests live in 10.0.0.0/29: eight addresses, few enough to try every cover."""
SIZE = 8


def spans_of(numbers: set[int]) -> Spans:
    return join((BASE + number, BASE + number + 1) for number in numbers)


def held_by(blocks: list[Block]) -> set[int]:
    """Return which of the eight addresses some blocks hold."""
    held: set[int] = set()
    for block in blocks:
        inside = _members(block.cidr)
        for each in block.excepts:
            assert _members(each) < inside, "an exception is within its block, and less than it"
            inside = inside - _members(each)
        held |= inside
    return held


def _members(cidr: str) -> set[int]:
    block = ip_network(cidr)
    first, last = int(block[0]) - BASE, int(block[-1]) - BASE
    return {number for number in range(SIZE) if first <= number <= last}


NODES = [frozenset(range(i, i + s)) for s in (8, 4, 2, 1) for i in range(0, 8, s)]


@cache
def shortest() -> dict[frozenset[int], int]:
    """Find the least cost of each set by trying: from nothing, block by block."""
    cheapest: dict[frozenset[int], int] = {}
    for node in NODES:
        below = [each for each in NODES if each < node]
        taken = {frozenset[int](): 0}
        for each in below:
            for held, cost in list(taken.items()):
                union = held | each
                taken[union] = min(taken.get(union, 99), cost + 1)
        for held, cost in taken.items():
            left = node - held
            cheapest[left] = min(cheapest.get(left, 99), cost + 1)
    costs = {frozenset[int](): 0}
    queue: list[tuple[int, list[int]]] = [(0, [])]
    while queue:
        cost, members = heapq.heappop(queue)
        for block, more in cheapest.items():
            union = frozenset(members) | block
            if cost + more < costs.get(union, 99):
                costs[union] = cost + more
                heapq.heappush(queue, (cost + more, sorted(union)))
    return costs


def test_cover_is_exact_and_the_shortest_for_every_set_of_eight_addresses() -> None:
    for bits in product([False, True], repeat=SIZE):
        wanted = {number for number, bit in enumerate(bits) if bit}
        blocks = plan_cover(spans_of(wanted), (), 4)

        assert held_by(blocks) == wanted
        assert sum(block.cost for block in blocks) == shortest()[frozenset(wanted)], wanted


@given(held=st.sets(st.integers(0, 7)), free=st.sets(st.integers(0, 7)))
def test_free_addresses_are_used_where_they_make_it_shorter(held: set[int], free: set[int]) -> None:
    blocks = plan_cover(spans_of(held), spans_of(free), 4)

    assert held <= held_by(blocks) <= held | free
    best = min(cost for each, cost in shortest().items() if held <= each <= held | free)
    assert sum(block.cost for block in blocks) == best


def test_hole_in_a_hole_is_a_block_of_its_own() -> None:
    held = join([(0, BASE), (BASE + 2, BASE + 3), (BASE + 8, 1 << 32)])

    assert plan_cover(held, (), 4) == [
        Block("0.0.0.0/0", ("10.0.0.0/29",)),
        Block("10.0.0.2/32"),
    ]


def test_whole_line_of_the_second_family_is_one_block() -> None:
    assert plan_cover(((0, 1 << 128),), (), 6) == [Block("::/0")]


spans = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4).map(
    lambda pairs: join((min(pair), max(pair)) for pair in pairs)
)


@given(sets=st.lists(spans, max_size=4))
def test_line_is_cut_into_pieces_that_each_set_holds_or_does_not(sets: list[Spans]) -> None:
    pieces = list(cut(sets, 32))

    assert [span[0] for span, _ in pieces[1:]] == [span[1] for span, _ in pieces[:-1]]
    assert (pieces[0][0][0], pieces[-1][0][1]) == (0, 32)
    for (first, end), marks in pieces:
        for point in range(first, end):
            holders = [any(low <= point < high for low, high in each) for each in sets]
            assert marks == sum(bit << number for number, bit in enumerate(holders))
