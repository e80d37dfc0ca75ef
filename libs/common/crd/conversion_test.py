"""Conversions between versions: lossless, and robust against any object."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from libs.common.crd import Conversion, ConversionError, CustomResource, SchemaError, Spoke
from libs.common.kinds import Manifest
from libs.common.labels import CONVERSION_DATA
from libs.common.testing.conversion import check_round_trips
from libs.common.testing.widget_versions import (
    CONVERSION,
    GROUP,
    Widget,
    WidgetSpec,
    WidgetV1alpha1,
    from_hub,
    to_hub,
)

V1, V1ALPHA1 = f"{GROUP}/v1", f"{GROUP}/v1alpha1"
HUB: Manifest = {
    "apiVersion": V1,
    "kind": "Widget",
    "metadata": {"name": "w", "namespace": "default", "uid": "u1", "annotations": {"a": "b"}},
    "spec": {"count": 3, "text": "hi", "size": "1536Mi", "color": "Red"},
    "status": {"made": 3},
}


def convert(manifest: Manifest, api_version: str) -> Manifest:
    before = copy.deepcopy(manifest)
    converted = CONVERSION.convert(manifest, api_version)
    assert manifest == before, "the input is not changed"
    return converted


def edit(manifest: Manifest, **spec: Any) -> Manifest:
    return {**manifest, "spec": {**manifest["spec"], **spec}}


def test_conversion_loses_nothing() -> None:
    check_round_trips(CONVERSION)


def test_older_version_has_its_own_fields_and_the_metadata() -> None:
    converted = convert(HUB, V1ALPHA1)

    assert converted["apiVersion"] == V1ALPHA1
    assert converted["spec"] == {"replicas": 3, "text": "hi", "sizeGiB": 1}
    assert converted["status"] == {"made": 3}
    assert converted["metadata"]["uid"] == "u1"
    assert converted["metadata"]["annotations"]["a"] == "b"


def test_change_through_the_older_version_wins_over_the_recorded_value() -> None:
    older = convert(HUB, V1ALPHA1)

    assert convert(edit(older, replicas=5), V1)["spec"] == {**HUB["spec"], "count": 5}
    assert convert(edit(older, sizeGiB=3), V1)["spec"] == {**HUB["spec"], "size": "3Gi"}


def test_default_needs_no_annotation() -> None:
    hub = edit(HUB, size="1Gi", color="Blue")

    assert convert(hub, V1ALPHA1)["metadata"] == hub["metadata"]


def test_field_that_the_hub_does_not_have_survives_changes_of_the_hub() -> None:
    older = {**convert(HUB, V1ALPHA1), "spec": {"replicas": 1, "note": "keep"}}
    hub = convert(older, V1)
    assert "note" not in hub["spec"]

    returned = convert(edit(hub, count=4, color="Blue"), V1ALPHA1)

    assert returned["spec"] == {"replicas": 4, "sizeGiB": 1, "note": "keep"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", "null", '{"v1": 1}', '{"v1": [{}]}', '{"v1": [{"path": []}]}'),
        '{"v1": [{"path": ["spec", "count"], "before": 3, "after": 1000}]}',
        '{"v1": [{"path": ["metadata", "name"], "before": "w", "after": "x"}]}',
        '{"v1": [{"path": ["kind", "a", "b"], "after": "x"}]}',
    ],
)
def test_forged_annotation_does_not_make_an_object_invalid(text: str) -> None:
    older = convert(edit(HUB, size="1Gi", color="Blue"), V1ALPHA1)
    older["metadata"] = {**older["metadata"], "annotations": {CONVERSION_DATA: text}}

    hub = convert(older, V1)

    assert hub["spec"] == {"count": 3, "text": "hi", "size": "1Gi", "color": "Blue"}
    assert hub["metadata"]["name"] == "w"


def test_object_that_violates_its_model_can_still_be_converted() -> None:
    hub = edit(HUB, count=1000, color="Green")

    older = convert(hub, V1ALPHA1)

    assert older["spec"]["replicas"] == 1000
    assert convert(older, V1) == hub


@pytest.mark.parametrize(
    ("manifest", "version", "message"),
    [
        (edit(HUB, size="much"), V1ALPHA1, "^Widget default/w: spec.size: .*much"),
        (HUB, f"{GROUP}/v9", f"^Widget default/w: desiredAPIVersion: {GROUP}/v9 is unknown; .*v1"),
        ({**HUB, "apiVersion": "v9"}, V1, "^Widget default/w: apiVersion: v9 is unknown"),
        ({**HUB, "kind": "Boat"}, V1, "^Boat default/w: kind: must be Widget"),
        ({**HUB, "spec": 1}, V1ALPHA1, "^Widget default/w: cannot convert to .*: TypeError: "),
        ({**HUB, "metadata": 1}, V1ALPHA1, "^Widget: cannot convert to .*: AttributeError: "),
        ({}, V1, "^None: kind: must be Widget"),
    ],
)
def test_failure_names_object_and_field(manifest: Manifest, version: str, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        CONVERSION.convert(manifest, version)


def test_conversion_must_not_change_other_metadata() -> None:
    def rename(manifest: Manifest) -> Manifest:
        manifest["metadata"]["name"] = "other"
        return manifest

    broken = Conversion(Widget, (Spoke(WidgetV1alpha1, to_hub, rename),))

    with pytest.raises(ConversionError, match=r"^Widget default/w: metadata\.name: a conversion"):
        broken.convert(HUB, V1ALPHA1)


def test_conversion_can_change_labels() -> None:
    def label(manifest: Manifest) -> Manifest:
        manifest["metadata"]["labels"] = {"color": manifest["spec"]["color"]}
        return from_hub(manifest)

    labelling = Conversion(Widget, (Spoke(WidgetV1alpha1, to_hub, label),))

    assert labelling.convert(HUB, V1ALPHA1)["metadata"]["labels"] == {"color": "Red"}


class WidgetV1beta1(
    CustomResource,
    group=GROUP,
    version="v1beta1",
    plural="widgets",
    kind="Widget",
    storage=False,
):
    """Widget is the version of another spoke, which has the fields of v1."""

    spec: WidgetSpec


def identity(manifest: Manifest) -> Manifest:
    return manifest


THREE = Conversion(
    Widget,
    (Spoke(WidgetV1alpha1, to_hub, from_hub), Spoke(WidgetV1beta1, identity, identity)),
)


def test_spokes_are_converted_through_the_hub_without_loss() -> None:
    check_round_trips(THREE, examples=40)


def test_field_of_one_spoke_survives_the_other() -> None:
    older: Manifest = {**convert(HUB, V1ALPHA1), "spec": {"replicas": 1, "note": "keep"}}

    beta = THREE.convert(older, f"{GROUP}/v1beta1")

    assert set(json.loads(beta["metadata"]["annotations"][CONVERSION_DATA])) >= {"v1alpha1"}
    assert THREE.convert(beta, V1ALPHA1)["spec"]["note"] == "keep"


def test_versions_of_several_kinds_are_refused() -> None:
    class Boat(CustomResource, group=GROUP, version="v2", plural="boats", storage=False):
        """Boat is another kind."""

        spec: WidgetSpec

    with pytest.raises(SchemaError, match="group, kind, plural and scope"):
        Conversion(Widget, (Spoke(Boat, identity, identity),))


def test_chart_entry_names_the_crd_and_its_path() -> None:
    assert CONVERSION.to_chart() == {
        "name": f"widgets.{GROUP}",
        "path": f"/convert/widgets.{GROUP}",
        "group": GROUP,
        "plural": "widgets",
    }
