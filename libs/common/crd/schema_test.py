"""Tests of the translation from pydantic models to structural schemas: one for each rule."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from libs.common.crd.errors import SchemaError
from libs.common.crd.markers import (
    Immutable,
    IntFormat,
    ListMap,
    ListSet,
    MapAtomic,
    Rule,
    Waive,
)
from libs.common.crd.model import KubernetesModel
from libs.common.crd.objects import Conditions, PodTemplate
from libs.common.crd.schema import build_schema, reflow
from libs.common.crd.types import (
    Count,
    DnsLabel,
    IntOrQuantity,
    IntOrString,
    LabelMap,
    Quantity,
    RawObject,
    Timestamp,
)
from libs.common.kinds import Manifest


class Color(StrEnum):
    """Colors that a thing may have."""

    RED = "Red"
    BLUE = "Blue"


class Inner(KubernetesModel):
    """Inner is a part."""

    some_name: DnsLabel
    """someName is a name."""
    size: int = 3
    """size is a size."""


def field_schema(annotation: Any, default: Any = ...) -> Manifest:
    """Build a model of one field `x` and return the schema of that field."""
    namespace = {"__annotations__": {"x": annotation}, "__module__": __name__}
    if default is not ...:
        namespace["x"] = default
    model = type("Probe", (KubernetesModel,), namespace)
    schema: Manifest = build_schema(model).schema["properties"]["x"]
    return schema


def problems_of(annotation: Any, default: Any = ...) -> tuple[str, ...]:
    with pytest.raises(SchemaError) as caught:
        field_schema(annotation, default)
    return caught.value.problems


def test_reference_is_inlined_and_titles_go() -> None:
    assert field_schema(Inner) == {
        "description": "Inner is a part.",
        "type": "object",
        "required": ["someName"],
        "properties": {
            "someName": {
                "description": "someName is a name.",
                "type": "string",
                "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                "minLength": 1,
                "maxLength": 63,
            },
            "size": {
                "description": "size is a size. Defaults to 3.",
                "type": "integer",
                "format": "int64",
                "default": 3,
            },
        },
    }


def test_optional_is_the_type_itself_and_not_required() -> None:
    class Probe(KubernetesModel):
        x: Inner | None = None

    schema = build_schema(Probe).schema

    assert schema["properties"]["x"]["type"] == "object"
    assert "required" not in schema
    assert "default" not in schema["properties"]["x"]


@pytest.mark.parametrize(
    ("annotation", "default", "text", "expected"),
    [
        (int, 3, "x is a number.", "x is a number. Defaults to 3."),
        (bool, False, "x is a switch.", "x is a switch. Defaults to false."),
        (list[str], ["a", "b"], "x are names.", "x are names. Defaults to a, b."),
        (str, "a", "x is a name. Immutable.", "x is a name. Defaults to a. Immutable."),
        (str, "a", "x is a name. Defaults to the first.", "x is a name. Defaults to the first."),
        (str, "", "x is a name.", "x is a name."),
        (str | None, None, "x is a name.", "x is a name."),
    ],
)
def test_description_states_the_default(
    annotation: Any, default: Any, text: str, expected: str
) -> None:
    schema = field_schema(Annotated[annotation, Field(description=text)], default)

    assert schema["description"] == expected


def test_description_of_the_field_wins_over_that_of_its_type() -> None:
    class Probe(KubernetesModel):
        x: Inner
        """x is
        a part.

        It has two paragraphs."""

    schema = build_schema(Probe).schema["properties"]["x"]

    assert schema["description"] == "x is a part.\n\nIt has two paragraphs."


@pytest.mark.parametrize(
    ("annotation", "default", "expected"),
    [
        (Literal["a"], ..., {"type": "string", "enum": ["a"]}),
        (Literal["a", "b"], "a", {"type": "string", "enum": ["a", "b"], "default": "a"}),
        (
            Color,
            Color.RED,
            {
                "description": "Colors that a thing may have. Defaults to Red.",
                "type": "string",
                "enum": ["Red", "Blue"],
                "default": "Red",
            },
        ),
        (bool, False, {"type": "boolean", "default": False}),
        (Annotated[str, Field(max_length=3)] | None, None, {"type": "string", "maxLength": 3}),
        (str, "", {"type": "string"}),
        (Timestamp | None, None, {"type": "string", "format": "date-time"}),
        (
            Annotated[float, Field(gt=0)],
            ...,
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        ),
    ],
    ids=["const", "literal", "enum", "bool", "optional-text", "empty-text", "time", "float"],
)
def test_scalar_is_translated(annotation: Any, default: Any, expected: Manifest) -> None:
    assert field_schema(annotation, default) == expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, {"type": "integer", "format": "int64"}),
        (Annotated[int, Field(ge=0)], {"type": "integer", "format": "int64", "minimum": 0}),
        (
            Annotated[int, Field(ge=0, le=9)],
            {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9},
        ),
        (
            Annotated[int, Field(gt=0, lt=9)],
            {
                "type": "integer",
                "format": "int32",
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 9,
                "exclusiveMaximum": True,
            },
        ),
        (Annotated[int, IntFormat("int32")], {"type": "integer", "format": "int32"}),
        (Count, {"type": "integer", "format": "int32", "minimum": 0}),
    ],
    ids=["unbounded", "half-bounded", "small", "exclusive", "marked", "count"],
)
def test_integer_gets_a_width(annotation: Any, expected: Manifest) -> None:
    assert field_schema(annotation) == expected


@pytest.mark.parametrize("annotation", [IntOrString, IntOrQuantity, Quantity])
def test_number_or_text_is_one_type(annotation: Any) -> None:
    schema = field_schema(annotation, "1")

    assert schema["x-kubernetes-int-or-string"] is True
    assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in schema
    assert schema["maxLength"] == 64
    assert schema["default"] == "1"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (list[DnsLabel], {"x-kubernetes-list-type": "atomic"}),
        (Annotated[list[DnsLabel], ListSet()], {"x-kubernetes-list-type": "set"}),
        (frozenset[DnsLabel], {"x-kubernetes-list-type": "set"}),
        (
            Annotated[list[Inner], ListMap("someName")],
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["someName"]},
        ),
        (
            Conditions,
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ],
    ids=["plain", "set", "frozenset", "map", "conditions"],
)
def test_list_gets_a_list_type(annotation: Any, expected: Manifest) -> None:
    schema = field_schema(annotation)

    extensions = {name: schema[name] for name in schema if name.startswith("x-")}
    assert extensions == expected
    assert schema["type"] == "array"
    assert "uniqueItems" not in schema


def test_markers_work_around_an_optional_list() -> None:
    schema = field_schema(Annotated[list[DnsLabel] | None, ListSet(), Field(max_length=3)], None)

    assert (schema["maxItems"], schema["x-kubernetes-list-type"]) == (3, "set")


def test_list_map_key_must_be_present_in_each_item() -> None:
    assert problems_of(Annotated[list[Inner], ListMap("missing")]) == (
        "x: list-map key 'missing' must be required or have a default",
    )
    assert field_schema(Annotated[list[Inner], ListMap("size")])


def test_map_has_a_schema_for_its_values() -> None:
    schema = field_schema(Annotated[LabelMap, MapAtomic()], {})

    assert schema["type"] == "object"
    assert schema["maxProperties"] == 64
    assert schema["additionalProperties"]["maxLength"] == 63
    assert schema["x-kubernetes-map-type"] == "atomic"
    assert "default" not in schema


def test_model_without_fields_becomes_an_object_that_has_none() -> None:
    """The API server drops empty maps, and tools that compare would set them forever."""

    class Nothing(KubernetesModel):
        """Nothing has no options."""

    class Spec(KubernetesModel):
        nothing: Nothing | None = None

    assert build_schema(Spec).schema["properties"]["nothing"] == {
        "description": "Nothing has no options.",
        "type": "object",
        "maxProperties": 0,
    }


def test_free_object_keeps_unknown_fields() -> None:
    assert field_schema(RawObject) == {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_model_that_allows_extras_keeps_unknown_fields_beside_its_own() -> None:
    class Open(KubernetesModel, extra="allow"):
        name: DnsLabel

    schema = field_schema(Open)

    assert schema["x-kubernetes-preserve-unknown-fields"] is True
    assert list(schema["properties"]) == ["name"]


def test_model_that_forbids_extras_says_nothing_about_them() -> None:
    class Closed(KubernetesModel, extra="forbid"):
        name: DnsLabel

    schema = field_schema(Closed)

    assert "additionalProperties" not in schema


def test_pod_template_has_typed_labels_and_a_free_spec() -> None:
    schema = field_schema(PodTemplate)

    assert "maxProperties" in schema["properties"]["metadata"]["properties"]["labels"]
    spec = schema["properties"]["spec"]
    assert spec["x-kubernetes-preserve-unknown-fields"] is True
    assert spec["required"] == ["containers"]


def test_rules_of_field_and_model_are_joined() -> None:
    class Ruled(KubernetesModel, rules=(Rule("self.a > 0", "a must be positive"),)):
        a: Count

    class More(Ruled, rules=(Rule("self.a < 9", "a must be small", field_path=".a"),)):
        pass

    schema = field_schema(Annotated[More, Rule("self.a != 5", "a must not be five")])

    assert schema["x-kubernetes-validations"] == [
        {"rule": "self.a > 0", "message": "a must be positive"},
        {"rule": "self.a < 9", "message": "a must be small", "fieldPath": ".a"},
        {"rule": "self.a != 5", "message": "a must not be five"},
    ]


def test_object_default_stands_in_full_without_what_means_absent() -> None:
    class Outer(KubernetesModel):
        inner: Inner
        labels: LabelMap = {}
        note: DnsLabel | None = None

    outer = Outer(inner=Inner(some_name="a"))

    # Rules of Outer may read inner.size before the server has filled in its default.
    assert field_schema(Outer, outer)["default"] == {"inner": {"someName": "a", "size": 3}}


def test_default_in_a_list_or_map_has_no_nulls() -> None:
    """The API server refuses a CRD with a null in a default."""

    class Item(KubernetesModel):
        name: str
        note: str | None = None

    item = Item(name="a")
    assert field_schema(list[Item], [item])["default"] == [{"name": "a"}]
    assert field_schema(dict[str, Item], {"k": item})["default"] == {"k": {"name": "a"}}


def test_default_that_a_factory_makes_is_one_of_the_schema() -> None:
    """Else the object would say nothing where the operator reads three."""
    assert field_schema(int, Field(default_factory=lambda: 3))["default"] == 3
    assert "default" not in field_schema(list[str], Field(default_factory=list))


def test_waivers_are_collected_by_path_and_leave_the_schema() -> None:
    class Probe(KubernetesModel):
        items: list[Annotated[bool, Waive("no-booleans", "old")]] = []
        on: Annotated[bool | None, Waive("no-booleans", "old"), Waive("description", "old")] = None

    built = build_schema(Probe)

    assert built.waivers == {
        "items[]": {"no-booleans": "old"},
        "on": {"no-booleans": "old", "description": "old"},
    }
    assert "x-slipway" not in str(built.schema)


def test_immutable_marker_leaves_the_schema() -> None:
    schema = field_schema(Annotated[IntOrString, Immutable()])

    assert "x-slipway" not in str(schema)
    assert schema["x-kubernetes-validations"] == [
        {"rule": "self == oldSelf", "message": "x is immutable"}
    ]


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (int | str, "x: a union must be IntOrString"),
        (Inner | Color, "x: a union must be IntOrString"),
        (dict[str, Any], "x: is an object of any shape"),
        (Any, "x: has no type"),
        (list[Any], "x[]: has no type"),
        (list, "x[]: has no type"),
        (dt.timedelta, "x: format 'duration' is not known"),
        (dict[DnsLabel, str], "x: keyword 'propertyNames' has no counterpart"),
        (tuple[int, str], "x: keyword 'prefixItems' has no counterpart"),
        (
            Annotated[str, Field(json_schema_extra={"pattern": "(?=a)"})],
            "x: the pattern uses lookaround",
        ),
        (Annotated[str, Field(examples=["a"])], "x: keyword 'examples' has no counterpart"),
        (Literal["a", 1], "x: has no type"),
    ],
    ids=str,
)
def test_what_has_no_counterpart_is_an_error_with_its_path(annotation: Any, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems_of(annotation))


def test_recursive_model_is_an_error() -> None:
    class Holder(KubernetesModel):
        tree: Tree

    Holder.model_rebuild(_types_namespace={"Tree": Tree})
    with pytest.raises(SchemaError, match=r"tree\.children\[\]: Tree contains itself"):
        build_schema(Holder)


def test_type_without_json_schema_is_an_error() -> None:
    with pytest.raises(SchemaError, match="Probe cannot become a structural schema"):
        field_schema(Callable[[], int])


def test_all_problems_are_listed_at_once() -> None:
    class Probe(KubernetesModel):
        a: int | str
        b: dict[str, Any]

    with pytest.raises(SchemaError) as caught:
        build_schema(Probe)

    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["a", "b"]


def test_reflow_joins_lines_and_keeps_paragraphs() -> None:
    assert reflow("one\n  two\n\n three ") == "one two\n\nthree"


class Tree(KubernetesModel):
    """Tree holds trees."""

    children: list[Tree] = []
    """children are trees."""
