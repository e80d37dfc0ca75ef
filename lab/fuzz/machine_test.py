"""Operations in any order, with misfortune: create, change, roll back, delete, recreate."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lab.fuzz.fields import put
from lab.fuzz.harness import MISFORTUNES, FuzzHarness, Misfortune
from lab.fuzz.model import find_offenses
from lab.fuzz.subject import Case, FuzzSubject, load_subjects
from libs.common.kinds import Manifest

SUBJECTS = [subject for subject in load_subjects() if subject.live is not None]
_NAMES = st.sampled_from(["data", "web"])
_MISFORTUNES = st.sampled_from(MISFORTUNES)
_NUMBERS = st.integers(0, 1000)
_COUNTS = ("replicas", "count")
_MANY = 5
_SETTINGS = settings(
    max_examples=int(os.environ.get("SLIPWAY_FUZZ_EXAMPLES", "1")),
    stateful_step_count=8,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    # Shrinking what ends in a deadline takes minutes; the steps are printed as they are.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


class Operations(RuleBasedStateMachine):
    """Do to an operator what users and bad luck do."""

    subject: FuzzSubject
    cases: list[Case]

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._harness = FuzzHarness(self.subject)
        self._specs: dict[str, list[Manifest]] = {}

    @initialize()
    def start(self) -> None:
        self._loop.run(self._harness.open())

    def teardown(self) -> None:
        self._loop.run(self._harness.close())
        self._loop.close()

    @rule(name=_NAMES, number=_NUMBERS, misfortune=_MISFORTUNES)
    def create_or_change_one_field(self, name: str, number: int, misfortune: Misfortune) -> None:
        self._write(name, self._mutate(self._spec(name), number), misfortune)

    @rule(name=_NAMES, first=_NUMBERS, second=_NUMBERS, misfortune=_MISFORTUNES)
    def change_two_fields(self, name: str, first: int, second: int, misfortune: Misfortune) -> None:
        spec = self._mutate(self._mutate(self._spec(name), first), second)
        self._write(name, spec, misfortune)

    @rule(name=_NAMES, misfortune=_MISFORTUNES)
    def apply_what_is_valid(self, name: str, misfortune: Misfortune) -> None:
        self._write(name, dict(self.subject.spec), misfortune)

    @precondition(lambda self: any(len(held) > 1 for held in self._specs.values()))
    @rule(misfortune=_MISFORTUNES)
    def roll_back(self, misfortune: Misfortune) -> None:
        name = next(name for name, held in self._specs.items() if len(held) > 1)
        self._specs[name].pop()
        self._write(name, self._specs[name].pop(), misfortune)

    @rule(name=_NAMES, misfortune=_MISFORTUNES)
    def delete(self, name: str, misfortune: Misfortune) -> None:
        self._harness.inject(misfortune)
        self._harness.delete(name)
        self._specs.pop(name, None)
        self._loop.run(self._harness.settle())

    @rule(name=_NAMES, misfortune=_MISFORTUNES)
    def delete_and_create_at_once(self, name: str, misfortune: Misfortune) -> None:
        self._harness.delete(name)
        self._write(name, dict(self.subject.spec), misfortune)

    @rule(number=_NUMBERS)
    def lose_a_child(self, number: int) -> None:
        self._harness.lose_child(number)
        self._loop.run(self._harness.settle())

    @rule()
    def restart(self) -> None:
        self._harness.inject("none")
        self._loop.run(self._harness.restart())

    @invariant()
    def operator_rests_and_says_what_is(self) -> None:
        if self._harness.harness is not None:
            assert self._loop.run(self._harness.find_problems()) == []

    def _spec(self, name: str) -> Manifest:
        held = self._harness.find(name)
        return dict(self.subject.spec) if held is None else dict(held["spec"])

    def _mutate(self, spec: Manifest, number: int) -> Manifest:
        case = self.cases[number % len(self.cases)]
        manifest = {"spec": copy.deepcopy(spec)}
        try:
            changed = put(manifest, self.subject.schema, case.field, case.value)
        except (AttributeError, KeyError, IndexError, TypeError):
            return spec  # The present content has no place for this value.
        if find_offenses(self.subject.root, changed):
            return spec
        found: Manifest = changed["spec"]
        return found if is_small(changed) else spec

    def _write(self, name: str, spec: Manifest, misfortune: Misfortune) -> None:
        self._harness.inject(misfortune)
        self._loop.run(self._harness.write(name, spec))
        self._specs.setdefault(name, []).append(spec)
        self._loop.run(self._harness.settle())


def is_small(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object asks for no more than a test should make."""
    return all(number <= _MANY for number in _list_counts(manifest["spec"]))


def _list_counts(value: Any) -> Iterator[int]:
    """Yield how many of something a spec asks for, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from _list_counts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in _COUNTS and isinstance(each, int):
                yield each
            else:
                yield from _list_counts(each)


def is_lasting(case: Case) -> bool:
    """Return whether a case is valid and small."""
    return isinstance(case.manifest.get("spec"), dict) and is_small(case.manifest)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_operations_in_any_order_end_well(subject: FuzzSubject) -> None:
    run(subject, _SETTINGS)


def run(subject: FuzzSubject, chosen: settings) -> None:
    """Run the machine on one kind."""
    cases = [
        case
        for case in subject.cases()
        if is_lasting(case)
        and not case.field.name.startswith((*subject.passthrough, *subject.ruled))
        and not find_offenses(subject.root, case.manifest)
    ]
    machine = type("Machine", (Operations,), {"subject": subject, "cases": cases})

    run_state_machine_as_test(machine, settings=chosen)


def test_offense_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative case: an operator that is said to offend fails the machine."""

    async def find_problems(self: FuzzHarness) -> list[str]:
        return ["something"]

    monkeypatch.setattr(FuzzHarness, "find_problems", find_problems)
    with pytest.raises(AssertionError, match="something"):
        run(SUBJECTS[0], settings(_SETTINGS, max_examples=1, stateful_step_count=1))
