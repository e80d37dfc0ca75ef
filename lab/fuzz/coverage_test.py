"""Coverage is gated: each field meets allowed values and, if it has bounds, refused ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from dataclasses import field as make_field

import pytest

from lab.fuzz.fields import walk_fields
from lab.fuzz.generators import Generator, generate
from lab.fuzz.subject import FuzzSubject, load_subjects


@dataclass
class Coverage:
    """Counts of results by field and generator.

    Attributes:
        kind: Kind that was covered.
        valid: Values that the schema lets in.
        refused: Values that it refuses.
    """

    kind: str
    valid: Counter[tuple[str, Generator]] = make_field(default_factory=Counter)
    refused: Counter[tuple[str, Generator]] = make_field(default_factory=Counter)

    @property
    def fields(self) -> list[str]:
        """Fields in the order of the schema."""
        return list(dict.fromkeys(name for name, _ in (*self.valid, *self.refused)))

    def count(self, name: str, *, valid: bool) -> int:
        """Count the values of a field with one verdict."""
        counts = self.valid if valid else self.refused
        return sum(number for (each, _), number in counts.items() if each == name)


def measure(subject: FuzzSubject) -> Coverage:
    """Count what the generators do to a kind."""
    coverage = Coverage(subject.kind.kind)
    for case in subject.cases():
        counts = coverage.refused if subject.find_offenses(case.manifest) else coverage.valid
        counts[case.field.name, case.generator] += 1
    return coverage


SUBJECTS = load_subjects()


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_every_field_meets_every_generator_of_its_type(subject: FuzzSubject) -> None:
    coverage = measure(subject)
    met = {*coverage.valid, *coverage.refused}

    for field in walk_fields(subject.schema):
        for generator, _ in generate(field):
            assert (field.name, generator) in met, field.name


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_every_field_is_let_in_with_some_value_and_refused_with_another(
    subject: FuzzSubject,
) -> None:
    coverage = measure(subject)

    for name in coverage.fields:
        assert coverage.count(name, valid=False), f"{name}: nothing is ever refused"
        let_in = coverage.count(name, valid=True) or name.startswith(subject.alternatives)
        assert let_in, f"{name}: nothing ever gets past the schema"


def test_generators_reach_all_sorts() -> None:
    met = {each for subject in SUBJECTS for _, each in measure(subject).valid}

    assert {Generator.INTEGER, Generator.STRING, Generator.INJECTION, Generator.ARRAY} <= met
