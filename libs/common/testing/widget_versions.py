"""Versions of a Widget, on which conversion is tested: one field of each sort that differs.

| v1alpha1 | v1 | difference |
|---|---|---|
| `replicas` | `count` | renamed |
| `sizeGiB` | `size` | v1alpha1 only has whole numbers |
| `note` | | only in v1alpha1 |
| | `color` | only in v1 |
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from libs.common.crd import (
    Conditions,
    Conversion,
    ConversionError,
    CustomResource,
    KubernetesModel,
    Quantity,
    ShortText,
    Spoke,
    kind_of,
)
from libs.common.kinds import Kind, Manifest
from libs.common.quantity import parse_quantity

GROUP: Final = "versions.test.slipway.dev"
_GIB: Final = 1 << 30

type Small = Annotated[int, Field(ge=0, le=100)]


class WidgetSpec(KubernetesModel):
    """WidgetSpec is the desired state in v1."""

    count: Small = 2
    """count is the number of ConfigMaps."""
    text: ShortText = ""
    """text is the content of each ConfigMap."""
    size: Quantity = "1Gi"
    """size is an amount of memory."""
    color: Literal["Blue", "Red"] = "Blue"
    """color is a field that v1alpha1 does not have."""


class WidgetStatus(KubernetesModel):
    """WidgetStatus is the observed state in both versions."""

    conditions: Conditions = []
    """conditions show the state of the Widget."""
    made: Small = 0
    """made is the number of ConfigMaps that exist."""


class Widget(CustomResource, group=GROUP, version="v1", plural="widgets"):
    """Widget requests a number of ConfigMaps."""

    spec: WidgetSpec
    status: WidgetStatus | None = None


class WidgetV1alpha1Spec(KubernetesModel):
    """WidgetV1alpha1Spec is the desired state in v1alpha1."""

    replicas: Small = 2
    """replicas is the number of ConfigMaps."""
    text: ShortText = ""
    """text is the content of each ConfigMap."""
    size_gib: Annotated[int, Field(alias="sizeGiB", ge=0, le=1000)] = 1
    """sizeGiB is an amount of memory in GiB."""
    note: ShortText | None = None
    """note is a field that v1 does not have."""


class WidgetV1alpha1(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="widgets",
    kind="Widget",
    singular="widget",
    storage=False,
):
    """Widget requests a number of ConfigMaps."""

    spec: WidgetV1alpha1Spec
    status: WidgetStatus | None = None


def to_hub(widget: Manifest) -> Manifest:
    """Convert v1alpha1 to v1."""
    spec = widget["spec"]
    if "replicas" in spec:
        spec["count"] = spec["replicas"]
    if "sizeGiB" in spec:
        spec["size"] = f"{spec['sizeGiB']}Gi"
    return widget


def from_hub(widget: Manifest) -> Manifest:
    """Convert v1 to v1alpha1."""
    spec = widget["spec"]
    if "count" in spec:
        spec["replicas"] = spec["count"]
    if "size" in spec:
        try:
            size = parse_quantity(spec["size"])
        except ValueError as error:
            raise ConversionError(str(error), field="spec.size") from error
        spec["sizeGiB"] = max(0, min(1000, int(size / _GIB)))
    return widget


CONVERSION: Final = Conversion(Widget, (Spoke(WidgetV1alpha1, to_hub, from_hub),))
WIDGET: Final = kind_of(Widget)
WIDGET_V1ALPHA1: Final[Kind] = kind_of(WidgetV1alpha1)
