"""Which harms the conformance suite does at which write."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from libs.common.testing.write_faults import spread

_MODES = ("a", "b", "c")


@given(writes=st.integers(0, 200))
def test_each_write_is_harmed_and_each_mode_has_its_turn(writes: int) -> None:
    modes = defaultdict(list)
    for index, mode in spread(writes, _MODES):
        modes[index].append(mode)
    assert sorted(modes) == list(range(writes))
    assert all(len(set(each)) == len(each) for each in modes.values())
    if writes >= len(_MODES):
        assert {mode for each in modes.values() for mode in each} == set(_MODES)


def test_short_workload_meets_each_mode_at_each_write() -> None:
    assert len(list(spread(4, _MODES))) == 4 * len(_MODES)


def test_long_workload_is_harmed_once_at_each_write() -> None:
    assert len(list(spread(60, _MODES))) == 60
