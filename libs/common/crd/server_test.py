"""Tests on a real API server: it takes the schemas, and enforces what the models say."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pytest
from pydantic import Field

from libs.common.client import Client
from libs.common.crd import (
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    Immutable,
    IntOrQuantity,
    IntOrString,
    KubernetesModel,
    LabelMap,
    LabelSelector,
    ListMap,
    ListSet,
    MapAtomic,
    ObservedGeneration,
    PodTemplate,
    Quantity,
    RawObject,
    Rule,
    Scale,
    Selector,
    Timestamp,
    build_crd,
    kind_of,
    lint_crd,
)
from libs.common.errors import Invalid, NotFound
from libs.common.kinds import CRD, Key, Manifest, build_object
from libs.common.testing.kstatus import compute_status

pytestmark = pytest.mark.apiserver

_WAIT_SECONDS = 120.0


class Part(KubernetesModel):
    """Part is an item of a list-map."""

    name: DnsLabel
    """name tells parts apart."""
    weight: Annotated[int, Field(gt=0, le=10)] = 1
    """weight is how heavy the part is."""


class Limits(KubernetesModel, rules=(Rule("self.low <= self.high", "low must not exceed high"),)):
    """Limits have a rule over fields that have defaults."""

    low: Annotated[int, Field(ge=0, le=9)] = 1
    """low is the low end."""
    high: Annotated[int, Field(ge=0, le=9)] = 5
    """high is the high end."""


class GadgetSpec(KubernetesModel):
    """GadgetSpec uses every type and marker."""

    replicas: Annotated[int, Field(ge=0, le=10)] = 1
    """replicas is a number."""
    parts: Annotated[list[Part], ListMap("name"), Field(max_length=5)] = []
    """parts are a list-map."""
    names: Annotated[list[DnsSubdomain], ListSet(), Field(max_length=5)] = []
    """names are a set."""
    labels: Annotated[LabelMap, MapAtomic()] = {}
    """labels are a map."""
    limits: Limits = Limits()
    """limits have a default that their own rule reads."""
    size: Annotated[IntOrQuantity, Immutable()] = "1Gi"
    """size cannot change."""
    memory: Quantity | None = None
    """memory is a quantity."""
    surge: IntOrString = "25%"
    """surge is a number or a percentage."""
    home: Annotated[DnsSubdomain | None, Immutable()] = None
    """home cannot be set later."""
    namespace: Annotated[DnsSubdomain | None, Immutable(once=True)] = None
    """namespace can be set once; its name is a reserved word of CEL."""
    selector: LabelSelector | None = None
    """selector is a label selector."""
    template: PodTemplate | None = None
    """template is a pod."""
    raw: RawObject | None = None
    """raw is anything."""
    until: Timestamp | None = None
    """until is a moment."""


class GadgetStatus(KubernetesModel):
    """GadgetStatus is what was observed."""

    conditions: Conditions = []
    """conditions show the state of the object."""
    observed_generation: ObservedGeneration = 0
    """observedGeneration is the generation that was looked at."""
    replicas: Count = 0
    """replicas is a number."""
    selector: Selector = ""
    """selector is text."""


class Gadget(
    CustomResource,
    group="test.slipway.dev",
    version="v1",
    plural="gadgets",
    scale=Scale(label_selector=".status.selector"),
    selectable=(".spec.home",),
    rules=(Rule("size(self.metadata.name) <= 9", "name must be short"),),
):
    """Gadget is a kind for tests."""

    spec: GadgetSpec
    status: GadgetStatus | None = None


GADGET = kind_of(Gadget)


@pytest.fixture
async def namespace(kube_client: Client, kube_namespace: str) -> str:
    """Make a namespace on a server that serves gadgets."""
    await kube_client.apply(CRD, build_crd(Gadget), field_manager="test")
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            try:
                await kube_client.list(GADGET, kube_namespace)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return kube_namespace


def build_gadget(namespace: str, /, **spec: object) -> Manifest:
    return build_object(GADGET, "one", namespace, spec=spec)


def test_kind_of_these_tests_passes_the_lint() -> None:
    assert lint_crd(Gadget) == []


@pytest.mark.usefixtures("namespace")
async def test_server_accepts_the_schema_as_structural(kube_client: Client) -> None:
    conditions: dict[str, str] = {}
    async with asyncio.timeout(_WAIT_SECONDS):
        # A kind whose names are accepted is served, and established after that.
        while conditions.get("Established") != "True":
            crd = await kube_client.get(CRD, Key("", "gadgets.test.slipway.dev"))
            conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
            await asyncio.sleep(0.05)
    assert "NonStructuralSchema" not in conditions


@pytest.mark.usefixtures("namespace")
async def test_server_stores_the_crd_as_it_was_built(kube_client: Client) -> None:
    crd = await kube_client.get(CRD, Key("", "gadgets.test.slipway.dev"))

    built = build_crd(Gadget)["spec"]
    assert crd["spec"]["versions"] == built["versions"]
    assert crd["spec"]["names"] == built["names"]


async def test_server_fills_in_the_defaults_that_the_model_has(
    kube_client: Client, namespace: str
) -> None:
    created = await kube_client.create(GADGET, build_gadget(namespace))

    assert created["spec"] == {
        "replicas": 1,
        "limits": {"low": 1, "high": 5},
        "size": "1Gi",
        "surge": "25%",
    }
    assert Gadget.parse(created).spec == GadgetSpec()


async def test_object_that_nobody_has_seen_is_not_current_for_kstatus(
    kube_client: Client, namespace: str
) -> None:
    created = await kube_client.create(GADGET, build_gadget(namespace))
    read = await kube_client.get(GADGET, Key(namespace, "one"))

    assert created["status"] == read["status"] == {"observedGeneration": 0}
    assert compute_status(read) == "InProgress"


async def test_object_that_the_model_renders_is_taken_and_read_back(
    kube_client: Client, namespace: str
) -> None:
    spec = GadgetSpec.from_manifest(
        {
            "parts": [{"name": "a"}, {"name": "b", "weight": 2}],
            "names": ["a.b"],
            "labels": {"a": ""},
            "memory": "1.5Gi",
            "surge": 3,
            "selector": {"matchExpressions": [{"key": "a/b", "operator": "Exists"}]},
            "template": {"spec": {"containers": [{"name": "a", "image": "b"}], "hostPID": True}},
            "raw": {"any": [1, {"thing": None}]},
            "until": "2026-01-02T03:04:05Z",
        }
    )
    created = await kube_client.create(GADGET, build_gadget(namespace, **spec.to_manifest()))

    assert Gadget.parse(created).spec == spec


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": 11}, "spec.replicas"),
        ({"replicas": "1"}, "spec.replicas"),
        ({"parts": [{"weight": 1}]}, "spec.parts[0].name"),
        ({"parts": [{"name": "a", "weight": 0}]}, "spec.parts[0].weight"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]"),
        ({"names": ["a", "a"]}, "spec.names[1]"),
        ({"names": ["A"]}, "spec.names[0]"),
        ({"labels": {"a": "b" * 64}}, "spec.labels.a"),
        ({"labels": {"bad key!": ""}}, "spec.labels"),
        ({"labels": {"a" * 64: ""}}, "spec.labels"),
        ({"labels": {"a" * 254 + "/b": ""}}, "spec.labels"),
        (
            {
                "template": {
                    "metadata": {"annotations": {"": ""}},
                    "spec": {"containers": [{"name": "a"}]},
                }
            },
            "spec.template.metadata.annotations",
        ),
        ({"limits": {"low": 6}}, "spec.limits"),
        *(
            (
                {"selector": {"matchExpressions": [{"key": "a", "operator": operator, **values}]}},
                "spec.selector.matchExpressions[0].values",
            )
            for operator, values in (
                ("In", {}),
                ("NotIn", {"values": []}),
                ("Exists", {"values": ["x"]}),
            )
        ),
        ({"memory": "much"}, "spec.memory"),
        ({"surge": 1.5}, "spec.surge"),
        ({"until": "yesterday"}, "spec.until"),
        ({"template": {"spec": {}}}, "spec.template.spec.containers"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
    ],
    ids=str,
)
async def test_server_refuses_the_field(
    kube_client: Client, namespace: str, spec: Manifest, field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await kube_client.create(GADGET, build_gadget(namespace, **spec))

    assert field in [where for where, _ in caught.value.causes()]


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ({}, {"size": "2Gi"}, False),
        ({"size": 1}, {"size": 1}, True),
        ({}, {"home": "a"}, False),
        ({"home": "a"}, {"home": "b"}, False),
        ({"home": "a"}, {"home": None}, False),
        ({}, {"namespace": "a"}, True),
        ({"namespace": "a"}, {"namespace": "b"}, False),
        ({"namespace": "a"}, {"namespace": None}, False),
    ],
    ids=str,
)
async def test_immutable_field_keeps_its_value(
    kube_client: Client, namespace: str, before: Manifest, after: Manifest, *, allowed: bool
) -> None:
    await kube_client.create(GADGET, build_gadget(namespace, **before))
    key = Key(namespace, "one")

    if allowed:
        await kube_client.patch(GADGET, key, {"spec": after})
        return
    with pytest.raises(Invalid) as caught:
        await kube_client.patch(GADGET, key, {"spec": after})

    assert f"spec.{next(iter(after))}" in [where for where, _ in caught.value.causes()]


async def test_rule_on_the_whole_object_reads_its_name(kube_client: Client, namespace: str) -> None:
    gadget = build_gadget(namespace)
    gadget["metadata"]["name"] = "longer-than-nine"

    with pytest.raises(Invalid, match="name must be short"):
        await kube_client.create(GADGET, gadget)


async def test_appliers_own_single_items_of_list_maps(kube_client: Client, namespace: str) -> None:
    for manager, name in (("one", "a"), ("two", "b")):
        gadget = build_gadget(namespace, parts=[{"name": name}])
        await kube_client.apply(GADGET, gadget, field_manager=manager)

    found = await kube_client.get(GADGET, Key(namespace, "one"))

    assert [part["name"] for part in found["spec"]["parts"]] == ["a", "b"]


async def test_selectable_field_selects(kube_client: Client, namespace: str) -> None:
    await kube_client.create(GADGET, build_gadget(namespace, home="a"))

    found = await kube_client.list(GADGET, namespace, field_selector="spec.home=a")
    others = await kube_client.list(GADGET, namespace, field_selector="spec.home=b")

    assert (len(found.items), len(others.items)) == (1, 0)


async def test_scale_subresource_sets_replicas(kube_client: Client, namespace: str) -> None:
    await kube_client.create(GADGET, build_gadget(namespace))

    await kube_client.patch(
        GADGET, Key(namespace, "one"), {"spec": {"replicas": 4}}, subresource="scale"
    )

    found = await kube_client.get(GADGET, Key(namespace, "one"))
    assert found["spec"]["replicas"] == 4
