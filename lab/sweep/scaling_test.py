"""The waits that a sweep shortens exist: a child in which one is missing would only exit."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

from lab.sweep import scaling
from lab.sweep.workload import OPERATORS, load_workloads


def test_each_wait_of_the_runtime_that_is_shortened_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[str] = set()

    def check(module: ModuleType, **values: Any) -> None:
        assert set(values) <= set(vars(module)), module.__name__
        for name, value in values.items():
            number = isinstance(value, int | float)
            assert isinstance(vars(module)[name], int | float) is number, name
        seen.update(values)

    monkeypatch.setattr(scaling, "_set", check)
    scaling.scale_time()

    assert seen


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_wait_of_an_operator_that_is_shortened_is_there(operator: str) -> None:
    for workload in load_workloads(operator):
        for name, waits in workload.scaled.items():
            module = importlib.import_module(name)
            assert set(waits) <= set(vars(module)), name
            for wait, value in waits.items():
                assert isinstance(vars(module)[wait], int | float), f"{name}.{wait}"
                assert isinstance(value, int | float), f"{name}.{wait}"
