"""Tests of custom resources: CRD manifests, parsing and rendering of objects."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import pytest
from pydantic import Field

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    DnsSubdomain,
    Immutable,
    IntOrQuantity,
    IntOrString,
    KubernetesModel,
    LabelSelector,
    ObjectMeta,
    ParseError,
    PodTemplate,
    PrinterColumn,
    Quantity,
    Rule,
    Scale,
    SchemaError,
    Timestamp,
    build_crd,
    kind_of,
    parse,
)
from libs.common.kinds import Key, Kind


class FleetSpec(KubernetesModel):
    """FleetSpec is what a user asks for."""

    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """replicas is the number of boats."""
    max_names: Annotated[list[DnsSubdomain], Field(max_length=9)] = []
    """maxNames are names."""
    size: IntOrQuantity = 1
    """size is the size of a boat."""
    memory: Quantity | None = None
    """memory is the memory of a boat."""
    surge: IntOrString = "25%"
    """surge is how many boats may be more."""
    home: Annotated[DnsSubdomain | None, Immutable()] = None
    """home is the harbor."""
    template: PodTemplate | None = None
    """template is the boat."""


class FleetStatus(KubernetesModel):
    """FleetStatus is what was observed."""

    conditions: Conditions = []
    """conditions show whether the fleet is ready."""
    ready: Count = 3
    """ready is the number of ready boats."""
    since: Timestamp | None = None
    """since is a moment."""


class Fleet(
    CustomResource,
    group="sea.example.com",
    version="v1",
    plural="fleets",
    short_names=("fl",),
    categories=("all",),
    scale=Scale(".spec.replicas", ".status.ready", ".status.selector"),
    columns=(PrinterColumn("Ready", "integer", ".status.ready", "ready boats", 1), AGE),
    rules=(Rule("size(self.metadata.name) < 9", "name must be short"),),
):
    """Fleet keeps boats."""

    spec: FleetSpec
    status: FleetStatus | None = None


class FleetV2(
    CustomResource,
    group="sea.example.com",
    version="v2",
    plural="fleets",
    kind="Fleet",
    short_names=("fl",),
    categories=("all",),
    storage=False,
    served=False,
    deprecated="use v1",
):
    """Fleet keeps boats."""

    spec: FleetSpec


FLEET = {
    "apiVersion": "sea.example.com/v1",
    "kind": "Fleet",
    "metadata": {"name": "web", "namespace": "default", "uid": "u1", "generation": 2},
    "spec": {"replicas": 2, "maxNames": ["a"]},
}


def test_crd_names_the_kind_and_its_version() -> None:
    crd = build_crd(Fleet)
    version = crd["spec"]["versions"][0]

    assert crd["metadata"] == {"name": "fleets.sea.example.com"}
    assert crd["spec"]["scope"] == "Namespaced"
    assert crd["spec"]["names"] == {
        "kind": "Fleet",
        "listKind": "FleetList",
        "plural": "fleets",
        "singular": "fleet",
        "shortNames": ["fl"],
        "categories": ["all"],
    }
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.ready",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert version["additionalPrinterColumns"] == [
        {
            "name": "Ready",
            "type": "integer",
            "jsonPath": ".status.ready",
            "description": "ready boats",
            "priority": 1,
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def test_object_schema_has_metadata_of_the_server_and_usual_sentences() -> None:
    schema = build_crd(Fleet)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert schema["properties"]["metadata"] == {"type": "object"}
    assert schema["properties"]["spec"]["description"] == "spec is the desired state of the Fleet."
    assert schema["required"] == ["spec"]
    assert schema["x-kubernetes-validations"][0]["message"] == "name must be short"


def test_status_has_no_defaults() -> None:
    schema = build_crd(Fleet)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert "default" not in schema["properties"]["status"]["properties"]["ready"]
    assert schema["properties"]["spec"]["properties"]["replicas"]["default"] == 1


def test_optional_immutable_field_can_be_neither_set_nor_removed() -> None:
    schema = build_crd(Fleet)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert schema["properties"]["spec"]["x-kubernetes-validations"] == [
        {
            "rule": "has(self.home) == has(oldSelf.home)",
            "message": "home cannot be set or removed after creation",
            "fieldPath": ".home",
        }
    ]


def test_several_versions_make_one_crd() -> None:
    versions = build_crd(Fleet, FleetV2)["spec"]["versions"]

    assert [version["name"] for version in versions] == ["v1", "v2"]
    assert versions[1]["deprecationWarning"] == "use v1"
    assert "subresources" not in versions[1]


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ((FleetV2,), "exactly one version must have storage=True"),
        ((Fleet, Fleet), "each version may occur once"),
        ((), "pass at least one model"),
    ],
    ids=["no-storage", "twice", "none"],
)
def test_versions_that_do_not_fit_are_refused(
    models: tuple[type[CustomResource], ...], problem: str
) -> None:
    with pytest.raises(SchemaError, match=problem):
        build_crd(*models)


def test_kind_of_a_model_is_the_runtimes_kind() -> None:
    assert kind_of(Fleet) == Kind("sea.example.com", "v1", "Fleet", "fleets")


def test_parse_reads_serialized_names_and_fills_defaults() -> None:
    fleet = Fleet.parse(FLEET)

    assert fleet.key == Key("default", "web")
    assert fleet.metadata.uid == "u1"
    assert (fleet.spec.replicas, fleet.spec.max_names, fleet.spec.size) == (2, ["a"], 1)
    assert fleet.status is None


def test_parse_ignores_fields_that_it_does_not_know() -> None:
    assert Fleet.parse({**FLEET, "spec": {"newer": 1, "max_names": ["x"]}}).spec.max_names == []


def test_parse_names_every_field_that_does_not_fit() -> None:
    spec = {"replicas": -1, "maxNames": ["A"], "template": {}, "size": "ten", "surge": 1.5}
    with pytest.raises(ParseError) as caught:
        parse(Fleet, {**FLEET, "kind": "Boat", "spec": spec})

    text = str(caught.value)
    assert text.startswith("Fleet default/web: kind: must be 'Fleet', not 'Boat'; ")
    assert "spec.replicas: must be greater than or equal to 0" in text
    assert "spec.maxNames[0]: must match pattern" in text
    assert "spec.template.spec: is required" in text
    assert "spec.size: 'ten' is not a quantity" in text
    assert "spec.surge: must be an integer or a string" in text
    assert [error.path for error in caught.value.errors] == [
        "kind",
        "spec.replicas",
        "spec.maxNames[0]",
        "spec.size",
        "spec.surge",
        "spec.template.spec",
    ]
    assert caught.value.reason == "InvalidSpec"


@pytest.mark.parametrize("since", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_parse_names_a_time_that_has_no_utc_form(since: str) -> None:
    with pytest.raises(ParseError, match=r"status\.since: must be in the years 1 to 9999"):
        Fleet.parse({**FLEET, "status": {"since": since}})


def test_parse_names_the_map_and_its_key_that_no_label_can_have() -> None:
    template = {"metadata": {"labels": {"bad key!": ""}}, "spec": {}}
    with pytest.raises(ParseError) as caught:
        Fleet.parse({**FLEET, "spec": {"template": template}})

    assert caught.value.field == "spec.template.metadata.labels"
    assert "labels: key 'bad key!' must be a qualified name such as app or" in str(caught.value)


def test_parse_survives_a_manifest_without_metadata() -> None:
    with pytest.raises(ParseError, match=r"^Fleet: spec: is required$"):
        Fleet.parse({})


@pytest.mark.parametrize("size", [3, "3Gi"])
def test_int_or_quantity_keeps_which_it_was(size: int | str) -> None:
    fleet = Fleet.parse({**FLEET, "spec": {"size": size}})

    assert fleet.spec.size == size
    assert type(fleet.spec.size) is type(size)


def test_quantity_reads_a_number_as_text() -> None:
    assert Fleet.parse({**FLEET, "spec": {"memory": 5}}).spec.memory == "5"


def test_to_manifest_uses_serialized_names_and_leaves_absent_out() -> None:
    status = FleetStatus(ready=1, since=datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=UTC))

    assert status.to_manifest() == {
        "conditions": [],
        "ready": 1,
        "since": "2026-01-02T03:04:05Z",
    }


def test_to_manifest_of_an_object_is_one_that_the_server_takes() -> None:
    fleet = Fleet(metadata=ObjectMeta(name="web"), spec=FleetSpec(replicas=2))

    manifest = fleet.to_manifest()

    assert manifest["apiVersion"] == "sea.example.com/v1"
    assert manifest["kind"] == "Fleet"
    assert manifest["metadata"] == {"name": "web"}
    assert Fleet.parse(manifest) == fleet


def test_label_selector_matches() -> None:
    selector = LabelSelector.from_manifest(
        {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}],
        }
    )

    assert selector.matches({"a": "b", "c": "d"})
    assert not selector.matches({"a": "b"})


def test_models_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        FleetSpec().replicas = 3  # type: ignore[misc]  # that it is refused is the point


def test_columns_default_to_ready_and_age_of_kinds_that_become_ready() -> None:
    class Type(StrEnum):
        READY = "Ready"

    class Other(StrEnum):
        FINISHED = "Finished"

    group = {"group": "sea.example.com", "version": "v1", "plural": "rafts"}

    class Raft(CustomResource, **group, conditions=Type):
        """Raft floats."""

    class Race(CustomResource, **group, conditions=Other):
        """Race ends."""

    class Bare(CustomResource, **group, conditions=Type, columns=()):
        """Bare has no columns."""

    assert [each.name for each in Raft.crd_meta.columns] == ["Ready", "Age"]
    assert Race.crd_meta.columns == Bare.crd_meta.columns == ()
