"""Each value of each field, and several together, through the pure core of an operator."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.fuzz.fields import put
from lab.fuzz.subject import Case, FuzzSubject, load_subjects
from libs.common.crd import ParseError
from libs.common.errors import TerminalError
from libs.common.kinds import Manifest

SUBJECTS = load_subjects()
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_NAME = 253
_LONGEST_LABEL = 63
_SETTINGS = settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def render(subject: FuzzSubject, manifest: Manifest) -> list[Manifest] | None:
    """Render twice and compare; None where the operator refuses the object and says why."""
    before = copy.deepcopy(manifest)
    refusal: TerminalError | None = None
    children: list[Manifest] = []
    try:
        children = list(subject.render(manifest))
    except TerminalError as err:
        refusal = err
    if refusal is not None:
        errors = refusal.errors if isinstance(refusal, ParseError) else ()
        assert refusal.field, f"a refusal names the field: {refusal}"
        assert all(each.path.startswith(("spec", "metadata")) for each in errors), str(refusal)
        return None
    assert manifest == before, "rendering changed the object"
    assert list(subject.render(manifest)) == children, "rendering twice gave two results"
    return children


def check_children(subject: FuzzSubject, manifest: Manifest, children: Sequence[Manifest]) -> None:
    """Check what holds of every child, whatever its owner says."""
    owner = manifest["metadata"]
    for child in children:
        metadata = child["metadata"]
        assert _NAME.fullmatch(metadata["name"]), metadata["name"]
        assert len(metadata["name"]) <= _LONGEST_NAME
        assert metadata.get("namespace") == owner.get("namespace"), "a child in another namespace"
        assert "generateName" not in metadata
        for value in (metadata.get("labels") or {}).values():
            assert isinstance(value, str) and len(value) <= _LONGEST_LABEL
        owners = metadata.get("ownerReferences") or ()
        assert all(each["uid"] == owner["uid"] for each in owners), "a child of somebody else"


def is_valid(subject: FuzzSubject, manifest: Manifest) -> bool:
    """Return whether the schema lets an object in."""
    return not subject.find_offenses(manifest)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_each_value_of_each_field_is_rendered_or_refused_by_name(subject: FuzzSubject) -> None:
    assert is_valid(subject, subject.build())
    for case in subject.cases():
        try:
            children = render(subject, case.manifest)
            if children is not None and is_valid(subject, case.manifest):
                check_children(subject, case.manifest, children)
        except Exception as err:
            raise AssertionError(f"{subject.kind.kind}: {case}: {err}") from err


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_several_values_together_are_rendered_or_refused(subject: FuzzSubject) -> None:
    chosen = st.lists(st.sampled_from(list(subject.cases())), min_size=2, max_size=4)

    @_SETTINGS
    @given(cases=chosen)
    def try_together(cases: list[Case]) -> None:
        manifest = subject.build()
        for case in cases:
            try:
                manifest = put(manifest, subject.schema, case.field, case.value)
            except (AttributeError, TypeError, KeyError, IndexError):
                return  # An earlier value left no place for this one.
        children = render(subject, manifest)
        if children is not None and is_valid(subject, manifest):
            check_children(subject, manifest, children)

    try_together()
