from __future__ import annotations

from typing import Any

import pytest

from lab.sweep.mutants import MUTANTS, operator_mutants, runtime_mutants
from lab.sweep.mutants.mutant import Mutant


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.id)
def test_mutant_changes_what_there_is(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = []

    def look(owner: Any, name: str, value: Any) -> Any:
        swapped.append(name)
        return getattr(owner, name)

    for module in (operator_mutants, runtime_mutants):
        monkeypatch.setattr(module, "swap", look)
    mutant.change()

    assert swapped
