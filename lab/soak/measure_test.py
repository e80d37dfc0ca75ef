from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from lab.soak.measure import Sample, find_growth, take_sample

FLAT = [Sample(float(second), 100_000 + second % 3, 20, 5, 2.0) for second in range(39)]
END = Sample(39.0, 100_000, 20, 5, 0.0)


def test_flat_run_shows_no_growth() -> None:
    assert find_growth([*FLAT, END]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda n: Sample(n, 100_000 + 1000 * n, 20, 5, 0), "memory grew"),
        (lambda n: Sample(n, 100_000, 20 + n, 5, 0), "files grew"),
        (lambda n: Sample(n, 100_000, 20, 5 + n, 0), "threads grew"),
        (lambda n: Sample(n, 100_000, 20, 5, 3), "3 keys still wait"),
    ],
)
def test_growth_is_found(change: Callable[[int], Sample], words: str) -> None:
    (found,) = find_growth([change(number) for number in range(40)])

    assert words in found


def test_own_process_can_be_looked_at() -> None:
    metrics = 'workqueue_depth{controller="a",name="a"} 3\nworkqueue_depth{name="b"} 1\n'

    sample = take_sample(os.getpid(), 1.0, metrics)

    assert sample.memory > 1000
    assert sample.files > 2
    assert sample.depth == 4
