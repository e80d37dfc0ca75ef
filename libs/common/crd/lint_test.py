"""Tests of the API lint: each rule finds its offense, and only an explained waiver excuses it."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from libs.common.crd.definition import CustomResource
from libs.common.crd.lint import RULES, _Field, lint_crd, lint_schema
from libs.common.crd.markers import Waive
from libs.common.crd.model import KubernetesModel
from libs.common.crd.objects import Conditions, PodTemplate
from libs.common.crd.types import Count, DnsLabel, LabelMap, Quantity, RawObject, Timestamp
from libs.common.kinds import Manifest

_BOUNDED = {"type": "string", "maxLength": 9}
_BOOLEAN = _Field("spec.on", "on", {"type": "boolean"}, required=False, is_property=True)


def find(field: Manifest, name: str = "x", *, required: bool = False) -> list[str]:
    """Lint a schema with one field below spec; return the names of the rules that it breaks."""
    spec: Manifest = {"type": "object", "description": "spec is it.", "properties": {name: field}}
    if required:
        spec["required"] = [name]
    schema = {"type": "object", "properties": {"spec": spec}}
    return [finding.rule for finding in lint_schema(schema, {}, kind="Probe v1")]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ("no-floats", {"type": "number"}),
        ("int-format", {"type": "integer"}),
        ("max-length", {"type": "string"}),
        ("max-length", {"x-kubernetes-int-or-string": True}),
        ("max-items", {"type": "array", "items": _BOUNDED, "x-kubernetes-list-type": "atomic"}),
        ("max-properties", {"type": "object", "additionalProperties": _BOUNDED}),
        ("list-type", {"type": "array", "items": _BOUNDED, "maxItems": 1}),
        (
            "list-type",
            {
                "type": "array",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "maxItems": 1,
                "x-kubernetes-list-type": "set",
            },
        ),
        ("no-booleans", {"type": "boolean"}),
        ("no-empty-objects", {"type": "object"}),
    ],
)
def test_rule_finds_its_offense(rule: str, field: Manifest) -> None:
    assert find({"description": "x is it.", **field}) == [rule]


def test_object_without_fields_is_accepted_if_it_says_so() -> None:
    assert find({"description": "x is it.", "type": "object", "maxProperties": 0}) == []


def test_phase_is_found_by_name() -> None:
    assert find({"description": "phase is it.", **_BOUNDED}, "phase") == ["no-phase"]


def test_name_must_be_camel_case() -> None:
    assert find({"description": "a_b is it.", **_BOUNDED}, "a_b") == ["camel-case"]


@pytest.mark.parametrize("text", ["", "It is x.", "The x.", "x is it"])
def test_description_is_a_sentence_about_the_field(text: str) -> None:
    assert find({"description": text, **_BOUNDED}) == ["description"]


def test_default_implies_not_required() -> None:
    field = {"description": "x is it.", "default": "a", **_BOUNDED}

    assert find(field, required=True) == ["default-not-required"]


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "enum": ["a"]},
        {"type": "string", "format": "date-time"},
        {"type": "integer", "format": "int32"},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ],
)
def test_bounded_field_passes(field: Manifest) -> None:
    assert find({"description": "x is it.", **field}) == []


@pytest.mark.parametrize(
    "status",
    [
        {"ready": {"description": "ready is it.", "type": "integer", "format": "int32"}},
        {
            "conditions": {
                "description": "conditions are.",
                "type": "array",
                "maxItems": 1,
                "items": _BOUNDED,
                "x-kubernetes-list-type": "atomic",
            }
        },
    ],
    ids=["not-first", "not-a-list-map"],
)
def test_status_begins_with_conditions_by_type(status: Manifest) -> None:
    schema = {
        "type": "object",
        "properties": {
            "status": {"type": "object", "description": "status is it.", "properties": status}
        },
    }

    assert [finding.rule for finding in lint_schema(schema, {}, kind="P")] == ["conditions"]


class GoodSpec(KubernetesModel):
    """GoodSpec breaks one rule and says why."""

    paused: Annotated[bool, Waive("no-booleans", "the predecessor had it so")] = False
    """paused stops all work."""
    sizes: Annotated[list[Quantity], Field(max_length=3)] = []
    """sizes are sizes."""
    labels: LabelMap = {}
    """labels are labels."""
    raw: RawObject = {}
    """raw is anything."""
    template: PodTemplate | None = None
    """template is a pod."""


class GoodStatus(KubernetesModel):
    """GoodStatus is observed."""

    conditions: Conditions = []
    """conditions show the state of the object."""
    ready: Count = 0
    """ready is a number."""
    since: Timestamp | None = None
    """since is a moment."""


class Good(CustomResource, group="example.com", version="v1", plural="goods"):
    """Good is a good kind."""

    spec: GoodSpec
    status: GoodStatus | None = None


class BadSpec(KubernetesModel):
    """BadSpec has waivers that excuse nothing."""

    name: Annotated[DnsLabel, Waive("no-booleans", "it never was one")]
    """name is a name."""
    on: Annotated[bool, Waive("no-booleans", "")] = False
    """on is a boolean without a reason."""


class Bad(CustomResource, group="example.com", version="v1", plural="bads"):
    """Bad is a bad kind."""

    spec: BadSpec


def test_kind_made_from_the_types_of_this_package_passes() -> None:
    assert lint_crd(Good) == []


def test_waiver_needs_a_reason_and_an_effect() -> None:
    findings = [str(finding) for finding in lint_crd(Bad)]

    no_effect = "the waiver of 'no-booleans' has no effect or no reason; remove or explain it"
    assert findings == [
        f"Bad v1: spec.on: no-booleans: {RULES['no-booleans'](_BOOLEAN)}",
        f"Bad v1: spec.name: waiver: {no_effect}",
        f"Bad v1: spec.on: waiver: {no_effect}",
    ]


def test_every_rule_has_a_test_in_this_file() -> None:
    tested = {"no-phase", "camel-case", "description", "default-not-required", "conditions"}
    marks = test_rule_finds_its_offense.pytestmark  # type: ignore[attr-defined]  # set by pytest

    assert tested | {case[0] for case in marks[0].args[1]} == set(RULES)
