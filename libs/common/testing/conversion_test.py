"""The round-trip check finds conversions that lose data or give invalid objects."""

from __future__ import annotations

from typing import Annotated

import pytest
from hypothesis import find
from pydantic import Field

from libs.common.crd import (
    Conditions,
    Conversion,
    CustomResource,
    DnsSubdomain,
    IntOrQuantity,
    IntOrString,
    KubernetesModel,
    LabelMap,
    ListMap,
    ListSet,
    RawObject,
    Spoke,
    Timestamp,
)
from libs.common.kinds import Manifest
from libs.common.testing.conversion import build_objects, check_round_trips
from libs.common.testing.widget_versions import Widget, WidgetV1alpha1, from_hub, to_hub


def overflow(widget: Manifest) -> Manifest:
    widget["spec"]["count"] = widget["spec"].get("replicas", 2) + 101
    return widget


def test_invalid_result_is_found() -> None:
    broken = Conversion(Widget, (Spoke(WidgetV1alpha1, overflow, from_hub),))

    with pytest.raises(AssertionError, match=r"v1alpha1 to .*spec\.count: must be less than or"):
        check_round_trips(broken)


def test_label_that_gets_lost_is_found() -> None:
    def to_hub_without_labels(widget: Manifest) -> Manifest:
        widget["metadata"]["labels"] = {"converted": "yes"}
        return to_hub(widget)

    broken = Conversion(Widget, (Spoke(WidgetV1alpha1, to_hub_without_labels, from_hub),))

    with pytest.raises(AssertionError, match="and back loses data"):
        check_round_trips(broken)


class Part(KubernetesModel):
    """Part is an item of a list."""

    name: DnsSubdomain
    """name identifies the part."""


class ManySpec(KubernetesModel):
    """ManySpec has a field of each type."""

    parts: Annotated[list[Part], ListMap("name"), Field(max_length=5)] = []
    """parts are a list-map."""
    names: Annotated[list[DnsSubdomain], ListSet(), Field(max_length=5)] = []
    """names are a set."""
    labels: LabelMap = {}
    """labels are a map."""
    size: IntOrQuantity | None = None
    """size is a number or a quantity."""
    surge: IntOrString = "25%"
    """surge is a number or a percentage."""
    raw: RawObject | None = None
    """raw is anything."""
    until: Timestamp | None = None
    """until is a time."""
    exact: bool = False
    """exact is a flag."""


class ManyStatus(KubernetesModel):
    """ManyStatus has conditions."""

    conditions: Conditions = []
    """conditions show the state of the object."""


class Many(CustomResource, group="test.slipway.dev", version="v1", plural="manies"):
    """Many has a field of each type."""

    spec: ManySpec
    status: ManyStatus | None = None


@pytest.mark.parametrize("field", [*ManySpec.model_fields])
def test_objects_have_values_of_every_type(field: str) -> None:
    default = ManySpec.model_fields[field].default

    found = find(build_objects(Many), lambda it: it["spec"].get(field, default) != default)

    assert Many.parse(found).spec != ManySpec()


def test_objects_have_a_status() -> None:
    assert find(build_objects(Many), lambda it: it.get("status", {}).get("conditions"))
