"""Row 19: schemas bound everything, and what must not change cannot be changed."""

from __future__ import annotations

import pytest

from lab.fuzz.fields import PRESERVE, walk_fields
from lab.fuzz.subject import FuzzSubject, load_subjects
from libs.common.crd import CustomResource, build_crd, lint_crd

SUBJECTS = load_subjects()
_OPEN = {
    "PodSet spec.template.spec": "the API server checks it when it takes the pod",
    "PodSet spec.template.spec.containers[]": "the same",
    "PulsarConsumer spec.template.spec": "the API server checks it when it takes the Deployment",
}
"""Places that take any fields, and who checks them."""


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_schema_breaks_no_rule_that_is_not_waived(subject: FuzzSubject) -> None:
    assert lint_crd(subject.model) == []


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_fields_of_any_shape_are_known(subject: FuzzSubject) -> None:
    found = {
        f"{subject.kind.kind} {field.name}"
        for field in walk_fields(subject.schema)
        if field.schema.get(PRESERVE)
    }

    assert not found - _OPEN.keys(), "say who checks what stands there"


def test_schema_without_bounds_is_found() -> None:
    class Loose(
        CustomResource, group="example.com", version="v1", plural="looses", conditions=None
    ):
        """Loose has a text of any length."""

        spec: dict[str, str]
        """spec is open."""

    assert lint_crd(Loose) != []
    assert build_crd(Loose)["kind"] == "CustomResourceDefinition"
