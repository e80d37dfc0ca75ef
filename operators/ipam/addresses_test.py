"""Sets of addresses, compared with sets of numbers."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.ipam.addresses import AddressSet, find_gap, parse_range, render_address

NUMBERS = st.integers(0, 60)
RUNS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6)


def list_members(addresses: AddressSet) -> list[int]:
    return [number for first, last in addresses.runs for number in range(first, last + 1)]


def list_runs(runs: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in runs for number in range(first, last + 1)}


@given(RUNS, NUMBERS)
def test_set_has_what_its_runs_have(runs: list[tuple[int, int]], number: int) -> None:
    addresses = AddressSet.of(runs)

    assert list_members(addresses) == sorted(list_runs(runs))
    assert addresses.size == len(list_runs(runs))
    assert (number in addresses) == (number in list_runs(runs))


@given(RUNS, RUNS)
def test_difference_and_overlap_are_those_of_sets(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    left = AddressSet.of(mine).without(AddressSet.of(theirs))

    assert list_members(left) == sorted(list_runs(mine) - list_runs(theirs))
    common = list_runs(mine) & list_runs(theirs)
    assert AddressSet.of(mine).overlaps(AddressSet.of(theirs)) == bool(common)


@given(RUNS, st.sets(NUMBERS), st.integers(-5, 70))
def test_next_free_goes_round_once_and_finds_any(
    runs: list[tuple[int, int]], used: set[int], start: int
) -> None:
    addresses = AddressSet.of(runs)
    free = sorted(list_runs(runs) - used)
    expected = next((number for number in free if number >= start), free[0] if free else None)

    assert addresses.find_free(sorted(used), start) == expected
    assert addresses.count(sorted(used)) == len(list_runs(runs) & used)


@given(st.sets(NUMBERS), NUMBERS)
def test_gap_is_the_first_number_that_is_missing(used: set[int], start: int) -> None:
    found = find_gap(sorted(used), start)

    assert found not in used
    assert all(number in used for number in range(start, found))


@given(RUNS.filter(lambda runs: bool(list_runs(runs))), st.data())
def test_rank_counts_members(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    addresses = AddressSet.of(runs)
    rank = data.draw(st.integers(0, addresses.size - 1))

    assert addresses.at(rank) == sorted(list_runs(runs))[rank]
    with pytest.raises(IndexError):
        addresses.at(addresses.size)


@pytest.mark.parametrize("v6", [False, True])
def test_too_many_blocks_grow_and_leave_no_address_out(v6: bool) -> None:
    base = 0x20010DB8 << 96 if v6 else 10 << 24
    runs = [(base + (each << 8) + 1, base + (each << 8) + 100) for each in range(64)]
    runs += [(base + (each << 8) + 102, base + (each << 8) + 254) for each in range(64)]
    addresses = AddressSet.of(runs)
    exact = addresses.list_blocks(10_000, v6=v6)
    blocks = [ipaddress.ip_network(each) for each in addresses.list_blocks(64, v6=v6)]

    assert len(exact) > 1024
    assert len(blocks) <= 64
    for number in (base + (each << 8) + low for each in range(64) for low in (1, 100, 102, 254)):
        assert any(ipaddress.ip_address(render_address(number, v6=v6)) in each for each in blocks)
    outside = render_address(base + (64 << 8) + 1, v6=v6)
    assert not any(ipaddress.ip_address(outside) in each for each in blocks)


def test_huge_network_is_never_counted_through() -> None:
    first, last = parse_range("2001:db8::/32", skip_reserved=True)
    addresses = AddressSet.of([(first, last)])

    assert addresses.size == 2**96 - 1
    assert addresses.find_free(range(first, first + 10**6), first) == first + 10**6
    assert render_address(addresses.at(2**95), v6=True) == "2001:db8:8000::1"


@pytest.mark.parametrize(
    ("text", "skip", "size"),
    [
        ("203.0.113.7", True, 1),
        ("203.0.113.0/24", True, 254),
        ("203.0.113.0/24", False, 256),
        ("203.0.113.0/31", True, 2),
        ("203.0.113.0/32", True, 1),
        ("203.0.113.0-203.0.113.255", True, 256),
        ("2001:db8::/126", True, 3),
        ("2001:db8::-2001:db8::f", True, 16),
    ],
)
def test_notation_says_how_many_addresses(text: str, skip: bool, size: int) -> None:
    first, last = parse_range(text, skip_reserved=skip)

    assert last - first + 1 == size


@pytest.mark.parametrize(
    "text",
    ["", "a", "1.2.3", "1.2.3.4-1.2.3.3", "1.2.3.4-::1", "203.0.113.5/26", "2001:db8::1/64"],
)
def test_notation_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|range|host bits"):
        parse_range(text)
