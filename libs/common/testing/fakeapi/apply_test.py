"""Tests of server-side apply and managedFields."""

from __future__ import annotations

import pytest

from libs.common.kinds import CONFIG_MAP, POD, Kind, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.rest import Reply, RestClient

WIDGET = Kind("example.com", "v1", "Widget", "widgets")
WIDGETS = WIDGET.path("default")
MAP = CONFIG_MAP.path("default", "web")
POD_PATH = POD.path("default", "web")
CONDITION = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
}
SCHEMA: Manifest = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "tags": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "args": {"type": "array", "items": {"type": "string"}},
                "options": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "ready": {"type": "integer"},
                "conditions": {
                    "type": "array",
                    "items": CONDITION,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
            },
        },
    },
}


def build_map(**data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": data}


def build_widget(**parts: object) -> Manifest:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, **parts}


def build_pod(*containers: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": list(containers)},
    }


def managers_of(reply: Reply) -> dict[tuple[str, str, str], Manifest]:
    return {
        (m["manager"], m["operation"], m.get("subresource", "")): m["fieldsV1"]
        for m in reply.metadata.get("managedFields", ())
    }


async def test_apply_creates_then_changes_then_rests(rest: RestClient) -> None:
    made = await rest.apply(MAP, build_map(a="1"), "alpha")
    changed = await rest.apply(MAP, build_map(a="2"), "alpha")
    rested = await rest.apply(MAP, build_map(a="2"), "alpha")

    assert (made.status, changed.status, rested.status) == (201, 200, 200)
    assert changed.metadata["resourceVersion"] != made.metadata["resourceVersion"]
    assert rested.body == changed.body


async def test_apply_reads_yaml(rest: RestClient) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: '1'}\n"

    assert (await rest.apply(MAP, text, "alpha")).body["data"] == {"a": "1"}


async def test_apply_removes_what_the_manager_no_longer_names(rest: RestClient) -> None:
    await rest.apply(MAP, build_map(a="1", b="2"), "alpha")
    await rest.apply(MAP, build_map(c="3"), "beta")

    applied = await rest.apply(MAP, build_map(a="1"), "alpha")

    assert applied.body["data"] == {"a": "1", "c": "3"}


async def test_apply_keeps_what_another_manager_also_names(rest: RestClient) -> None:
    await rest.apply(MAP, build_map(a="1", b="2"), "alpha")
    await rest.apply(MAP, build_map(b="2"), "beta")

    applied = await rest.apply(MAP, build_map(a="1"), "alpha")

    assert applied.body["data"] == {"a": "1", "b": "2"}
    assert managers_of(applied)["beta", "Apply", ""] == {"f:data": {"f:b": {}}}


async def test_apply_conflicts_with_each_field_named(rest: RestClient) -> None:
    await rest.apply(MAP, build_map(a="1", b="2"), "alpha")

    refused = await rest.apply(MAP, build_map(a="9", b="8"), "beta")

    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.causes == [
        (".data.a", "FieldManagerConflict"),
        (".data.b", "FieldManagerConflict"),
    ]
    assert refused.body["message"] == (
        'Apply failed with 2 conflicts: conflicts with "alpha":\n- .data.a\n- .data.b'
    )


async def test_apply_with_force_takes_the_fields(rest: RestClient) -> None:
    await rest.apply(MAP, build_map(a="1", b="2"), "alpha")

    forced = await rest.apply(MAP, build_map(a="9"), "beta", force="true")

    assert forced.body["data"] == {"a": "9", "b": "2"}
    assert managers_of(forced) == {
        ("alpha", "Apply", ""): {"f:data": {"f:b": {}}},
        ("beta", "Apply", ""): {"f:data": {"f:a": {}}},
    }


async def test_apply_the_same_value_shares_the_field(rest: RestClient) -> None:
    await rest.apply(MAP, build_map(a="1"), "alpha")

    shared = await rest.apply(MAP, build_map(a="1"), "beta")

    assert shared.status == 200
    assert set(managers_of(shared)) == {("alpha", "Apply", ""), ("beta", "Apply", "")}


async def test_update_takes_fields_from_appliers(rest: RestClient) -> None:
    await rest.apply(MAP, build_map(a="1"), "alpha")
    await rest.patch(MAP, {"data": {"a": "2"}}, fieldManager="editor")

    refused = await rest.apply(MAP, build_map(a="1"), "alpha")

    assert refused.status == 409
    assert refused.body["message"] == (
        'Apply failed with 1 conflict: conflict with "editor" using v1: .data.a'
    )


async def test_apply_to_an_object_nobody_is_recorded_for_conflicts_with_its_past(
    rest: RestClient, api: FakeApi
) -> None:
    api.load([build_map(a="1")])

    refused = await rest.apply(MAP, build_map(a="2"), "alpha")

    assert "before-first-apply" in refused.body["message"]


async def test_apply_merges_containers_by_name_and_ports_by_key(rest: RestClient) -> None:
    await rest.apply(POD_PATH, build_pod({"name": "a", "image": "i:1"}), "alpha")

    applied = await rest.apply(POD_PATH, build_pod({"name": "a", "image": "i:2"}), "alpha")

    assert [c["image"] for c in applied.body["spec"]["containers"]] == ["i:2"]
    assert applied.metadata["generation"] == 2
    assert managers_of(applied)["alpha", "Apply", ""] == {
        "f:spec": {
            "f:containers": {'k:{"name":"a"}': {".": {}, "f:image": {}, "f:name": {}}},
        }
    }


async def test_apply_owner_references_and_finalizers_of_two_managers(
    rest: RestClient, api: FakeApi
) -> None:
    api.collector.pause()  # The owners do not exist.

    def build(owner: str, finalizer: str) -> Manifest:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner}
        metadata = {"name": "web", "ownerReferences": [reference], "finalizers": [finalizer]}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    bare = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}
    await rest.apply(MAP, build("one", "a/one"), "alpha")
    both = await rest.apply(MAP, build("two", "a/two"), "beta")
    left = await rest.apply(MAP, bare, "alpha")

    assert [o["uid"] for o in both.metadata["ownerReferences"]] == ["one", "two"]
    assert both.metadata["finalizers"] == ["a/one", "a/two"]
    assert [o["uid"] for o in left.metadata["ownerReferences"]] == ["two"]
    assert left.metadata["finalizers"] == ["a/two"]


async def test_apply_custom_lists_by_their_declared_type(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET, SCHEMA)
    path = f"{WIDGETS}/w"
    await rest.apply(path, build_widget(spec={"tags": ["a"], "args": ["x"]}), "alpha")

    shared = await rest.apply(path, build_widget(spec={"tags": ["b"]}), "beta")
    atomic = await rest.apply(path, build_widget(spec={"args": ["y"]}), "gamma")

    assert shared.body["spec"]["tags"] == ["a", "b"]
    assert (atomic.status, atomic.causes) == (409, [(".spec.args", "FieldManagerConflict")])


async def test_apply_status_conditions_of_two_managers(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET, SCHEMA)
    await rest.apply(f"{WIDGETS}/w", build_widget(spec={"size": 1}), "alpha")

    def build(type_: str) -> Manifest:
        return build_widget(status={"conditions": [{"type": type_, "status": "True"}]})

    await rest.apply(f"{WIDGETS}/w/status", build("Ready"), "alpha-status")
    both = await rest.apply(f"{WIDGETS}/w/status", build("Healthy"), "beta-status")

    assert [c["type"] for c in both.body["status"]["conditions"]] == ["Ready", "Healthy"]
    assert ("beta-status", "Apply", "status") in managers_of(both)
    assert both.body["spec"] == {"size": 1}


async def test_apply_through_the_main_path_does_not_own_the_status(
    rest: RestClient, api: FakeApi
) -> None:
    api.register(WIDGET, SCHEMA)

    made = await rest.apply(
        f"{WIDGETS}/w", build_widget(spec={"size": 1}, status={"ready": 1}), "alpha"
    )

    assert "status" not in made.body
    assert managers_of(made) == {("alpha", "Apply", ""): {"f:spec": {"f:size": {}}}}


async def test_apply_status_of_an_absent_object_is_not_found(
    rest: RestClient, api: FakeApi
) -> None:
    api.register(WIDGET, SCHEMA)

    assert (await rest.apply(f"{WIDGETS}/w/status", build_widget(status={}), "a")).status == 404


@pytest.mark.parametrize(
    ("config", "query", "status"),
    [
        (build_map(a="1"), {"fieldManager": ""}, 422),
        ({"metadata": {"name": "web"}}, {"fieldManager": "a"}, 400),
        ({**build_map(), "metadata": {"name": "other"}}, {"fieldManager": "a"}, 400),
        (
            {**build_map(), "metadata": {"name": "web", "managedFields": [{"manager": "x"}]}},
            {"fieldManager": "a"},
            400,
        ),
    ],
    ids=["no manager", "no kind", "other name", "managed fields"],
)
async def test_apply_nonsense_is_refused(
    rest: RestClient, config: Manifest, query: dict[str, str], status: int
) -> None:
    refused = await rest.patch(MAP, config, "application/apply-patch+yaml", **query)

    assert refused.status == status
