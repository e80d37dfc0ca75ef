"""Tests of lists, discovery, CRDs, schemas and scales."""

from __future__ import annotations

import asyncio

import kopf
import pytest

from libs.common.kinds import (
    CONFIG_MAP,
    CORE_EVENT,
    CRD,
    EVENT,
    POD,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.fakeapi.rest import RestClient

WIDGET = Kind("example.com", "v1", "Widget", "widgets")
WIDGETS = WIDGET.path("default")
MAPS = CONFIG_MAP.path("default")
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
SCHEMA: Manifest = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
                "name": {"type": "string", "pattern": "^[a-z]+$"},
                "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}


def build_widget(name: str = "w", /, **spec: object) -> Manifest:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def build_map(name: str, **labels: str) -> Manifest:
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def names(body: Manifest) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=x", ["a", "b"]),
        ("app==x,tier!=db", ["a"]),
        ("app in (x, y),tier", ["b", "c"]),
        ("tier notin (db)", ["a", "c"]),
        ("!tier", ["a"]),
    ],
)
async def test_labels_select(
    rest: RestClient, api: FakeApi, selector: str, expected: list[str]
) -> None:
    api.create(build_map("a", app="x"))
    api.create(build_map("b", app="x", tier="db"))
    api.create(build_map("c", app="y", tier="web"))

    assert names((await rest.get(MAPS, labelSelector=selector)).body) == expected


async def test_fields_select_pods(rest: RestClient, api: FakeApi) -> None:
    for name in ("a", "b"):
        api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"containers": [{"name": "m", "image": "i"}]},
            }
        )
    api.bind(("default", "a"), "n1")
    api.patch_status(POD, ("default", "b"), {"phase": "Running"})
    path = POD.path()

    for selector, expected in {
        "spec.nodeName=n1": ["a"],
        "spec.nodeName=": ["b"],
        "status.phase=Running": ["b"],
        "metadata.namespace=default,metadata.name!=a": ["b"],
    }.items():
        assert names((await rest.get(path, fieldSelector=selector)).body) == expected
    assert (await rest.get(path, fieldSelector="spec.x=1")).status == 400


async def test_pages_show_one_moment_and_expire(rest: RestClient, api: FakeApi) -> None:
    for name in "abcd":
        api.create(build_map(name))
    first = (await rest.get(MAPS, limit="2")).body
    api.delete(CONFIG_MAP, ("default", "c"))
    token = first["metadata"]["continue"]

    second = (await rest.get(MAPS, limit="2", **{"continue": token})).body
    api.compact()
    expired = await rest.get(MAPS, limit="2", **{"continue": token})
    resumed = await rest.get(MAPS, **{"continue": expired.body["metadata"]["continue"]})

    assert (names(first), names(second)) == (["a", "b"], ["c", "d"])
    assert first["metadata"]["remainingItemCount"] == 2
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert (expired.status, expired.reason) == (410, "Expired")
    assert names(resumed.body) == ["d"]


async def test_list_from_the_future_times_out(rest: RestClient) -> None:
    response = await rest.get(MAPS, resourceVersion="999999")

    assert (response.status, response.reason) == (504, "Timeout")


async def test_metadata_only_lists(rest: RestClient, api: FakeApi) -> None:
    api.create(build_map("a"))

    listed = (await rest.get(MAPS, accept=METADATA_LIST)).body

    assert listed["kind"] == "PartialObjectMetadataList"
    assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}


async def test_items_of_built_in_lists_have_no_kind_but_custom_ones_do(
    rest: RestClient, api: FakeApi
) -> None:
    api.register(WIDGET)
    api.create(build_map("a"))
    api.create(build_widget())

    assert "kind" not in (await rest.get(MAPS)).body["items"][0]
    assert (await rest.get(WIDGETS)).body["items"][0]["kind"] == "Widget"


async def test_discovery_names_groups_and_resources(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET)

    core = (await rest.get("/api/v1")).body
    groups = (await rest.get("/apis")).body
    custom = (await rest.get("/apis/example.com/v1")).body

    assert {"pods", "pods/status", "namespaces"} <= {r["name"] for r in core["resources"]}
    assert {"apps", "apiextensions.k8s.io", "example.com"} <= {g["name"] for g in groups["groups"]}
    assert [r["name"] for r in custom["resources"]] == ["widgets", "widgets/status"]


async def test_posted_crd_is_established_and_served_and_gone_again(
    rest: RestClient, api: FakeApi
) -> None:
    crd = build_crd(WIDGET, SCHEMA, ["status"])
    await rest.create(CRD.path(), crd)
    stored = api.get(CRD, ("", "widgets.example.com"))
    made = await rest.create(WIDGETS, build_widget(size=1))
    await rest.delete(f"{CRD.path()}/widgets.example.com")

    assert {c["type"] for c in stored["status"]["conditions"]} == {"Established", "NamesAccepted"}
    assert made.status == 201
    assert (await rest.get(WIDGETS)).status == 404


async def test_changed_crd_takes_effect(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET, SCHEMA)
    crd = api.get(CRD, ("", "widgets.example.com"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["size"]["minimum"] = 5
    api.patch(CRD, ("", "widgets.example.com"), {"spec": crd["spec"]})

    assert (await rest.create(WIDGETS, build_widget(size=4))).status == 422


async def test_schema_defaults_and_prunes(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET, SCHEMA)

    made = await rest.create(WIDGETS, build_widget(size=1, unknown=1, extra={"kept": 1}))
    strict = await rest.create(WIDGETS, build_widget("x", size=1, y=1), fieldValidation="Strict")

    assert made.body["spec"] == {"size": 1, "mode": "A", "extra": {"kept": 1}}
    assert 'unknown field "spec.unknown"' in made.headers["Warning"].replace("\\", "")
    assert strict.status == 400


async def test_schema_refuses_with_all_causes(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET, SCHEMA)

    refused = await rest.create(WIDGETS, build_widget(size=0, mode="C", name="A"))

    assert (refused.status, refused.reason) == (422, "Invalid")
    assert sorted(refused.causes) == [
        ("spec.mode", "FieldValueNotSupported"),
        ("spec.name", "FieldValueInvalid"),
        ("spec.size", "FieldValueInvalid"),
    ]


async def test_scale_of_a_custom_kind(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET, subresources=["status", "scale"])
    await rest.create(WIDGETS, build_widget(replicas=1))

    scaled = await rest.patch(f"{WIDGETS}/w/scale", {"spec": {"replicas": 3}})

    assert (scaled.body["kind"], scaled.body["spec"]) == ("Scale", {"replicas": 3})
    assert api.get(WIDGET, ("default", "w"))["metadata"]["generation"] == 2


async def test_both_event_apis_show_the_same_events(rest: RestClient, api: FakeApi) -> None:
    event = {
        "metadata": {"name": "e"},
        "note": "made",
        "reason": "Made",
        "regarding": {"kind": "Pod", "name": "p"},
    }
    await rest.create(EVENT.path("default"), event)

    core = (await rest.get(f"{CORE_EVENT.path('default')}/e")).body
    listed = await rest.get(EVENT.path("default"), fieldSelector="regarding.name=p")

    assert (core["message"], core["involvedObject"]["name"]) == ("made", "p")
    assert names(listed.body) == ["e"]


async def test_service_gets_an_address_that_follows_from_its_name(api: FakeApi) -> None:
    def build(name: str) -> Manifest:
        return build_object(SERVICE, name, spec={"ports": [{"port": 80}]})

    address = api.create(build("s"))["spec"]["clusterIP"]
    assert address.startswith("10.96.")
    assert api.create(build("t"))["spec"]["clusterIP"] != address

    # Runs of one workload are compared with each other, and give objects other UIDs.
    api.delete(SERVICE, Key("default", "s"))
    assert api.create(build("s"))["spec"]["clusterIP"] == address


async def test_ephemeral_containers_are_added_by_their_subresource_only(
    rest: RestClient, api: FakeApi
) -> None:
    spec = {"containers": [{"name": "m", "image": "i"}]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    path = POD.path("default", "p")
    patch = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i"}]}}

    refused = await rest.patch(path, patch)
    added = await rest.patch(f"{path}/ephemeralcontainers", patch)
    removed = await rest.patch(
        f"{path}/ephemeralcontainers", {"spec": {"ephemeralContainers": None}}
    )

    assert (refused.status, added.status) == (422, 200)
    assert added.body["spec"]["ephemeralContainers"][0]["name"] == "debug"
    assert removed.body["spec"] == added.body["spec"]


async def test_load_makes_many_objects(api: FakeApi) -> None:
    api.load(build_map(f"m{number:04}") for number in range(1000))

    assert len(api.objects(CONFIG_MAP)) == 1000


async def test_kopf_watches_it(api: FakeApi) -> None:
    """Kopf scans namespaces and CRDs before it watches anything."""
    api.register(WIDGET)
    api.create(build_widget())
    registry = kopf.OperatorRegistry()
    seen: list[tuple[str | None, str]] = []
    stop = asyncio.Event()

    @kopf.on.login(registry=registry)
    async def login(**_: object) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=api.url)

    @kopf.on.event("example.com", "v1", "widgets", registry=registry)
    async def event(type: str | None, name: str, **_: object) -> None:
        seen.append((type, name))
        if len(seen) == 1:
            api.create(build_widget("later"))
        if len(seen) == 2:
            stop.set()

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.queueing.idle_timeout = 0.01  # The exit waits for idle workers.
    async with asyncio.timeout(30):
        await kopf.operator(registry=registry, settings=settings, clusterwide=True, stop_flag=stop)

    assert seen == [(None, "w"), ("ADDED", "later")]
