"""Coverage is gated: each field meets allowed values and, if it has bounds, refused ones."""

from __future__ import annotations

import pytest

from lab.fuzz.coverage import PAGE, measure, render_page
from lab.fuzz.fields import walk_fields
from lab.fuzz.generators import Generator, generate
from lab.fuzz.subject import FuzzSubject, load_subjects

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


def test_page_has_the_table_of_today() -> None:
    text = PAGE.read_text()

    assert render_page(text) == text, "write it anew: python -m lab.fuzz.coverage"
