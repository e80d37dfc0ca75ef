"""Tests of create, get, update, patch and delete."""

from __future__ import annotations

import pytest

from libs.common.kinds import CONFIG_MAP, LEASE, POD, Kind, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.rest import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, RestClient

WIDGET = Kind("example.com", "v1", "Widget", "widgets")
PODS = POD.path("default")
MAPS = CONFIG_MAP.path("default")
WIDGETS = WIDGET.path("default")


def build_pod(name: str = "web", **metadata: object) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    }


def build_map(name: str = "web", **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def build_widget(name: str = "w", **spec: object) -> Manifest:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_create_fills_what_the_server_sets(rest: RestClient) -> None:
    made = await rest.create(PODS, build_pod())

    assert made.status == 201
    assert made.metadata["uid"] and made.metadata["creationTimestamp"]
    assert made.metadata["generation"] == 1
    assert made.metadata["namespace"] == "default"
    assert made.body["spec"]["restartPolicy"] == "Always"
    assert made.body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_create_taken_name_answers_already_exists(rest: RestClient) -> None:
    await rest.create(PODS, build_pod())

    again = await rest.create(PODS, build_pod())

    assert (again.status, again.reason) == (409, "AlreadyExists")


async def test_create_with_generate_name_makes_a_name(rest: RestClient) -> None:
    made = await rest.create(MAPS, {"metadata": {"generateName": "web-"}})

    assert made.metadata["name"].startswith("web-")
    assert len(made.metadata["name"]) == len("web-") + 5


async def test_create_in_a_missing_namespace_is_refused_when_required() -> None:
    async with FakeApi(require_namespaces=True) as api, RestClient(api.url) as rest:
        made = await rest.create(CONFIG_MAP.path("nowhere"), build_map())

    assert (made.status, made.reason) == (404, "NotFound")


async def test_one_resource_version_counts_for_all_kinds(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET)
    first = await rest.create(MAPS, build_map())
    second = await rest.create(WIDGETS, build_widget())
    listed = await rest.get(PODS)

    assert int(second.metadata["resourceVersion"]) == int(first.metadata["resourceVersion"]) + 1
    assert listed.metadata["resourceVersion"] == second.metadata["resourceVersion"]


async def test_replace_stale_object_conflicts(rest: RestClient) -> None:
    made = await rest.create(MAPS, build_map(a="1"))
    await rest.replace(f"{MAPS}/web", {**made.body, "data": {"a": "2"}})

    stale = await rest.replace(f"{MAPS}/web", {**made.body, "data": {"a": "3"}})

    assert (stale.status, stale.reason) == (409, "Conflict")


async def test_replace_with_the_same_content_keeps_the_version(rest: RestClient) -> None:
    made = await rest.create(MAPS, build_map(a="1"))

    same = await rest.replace(f"{MAPS}/web", made.body)

    assert same.metadata["resourceVersion"] == made.metadata["resourceVersion"]


async def test_replace_custom_object_without_version_is_invalid(
    rest: RestClient, api: FakeApi
) -> None:
    api.register(WIDGET)
    await rest.create(WIDGETS, build_widget())

    blind = await rest.replace(f"{WIDGETS}/w", build_widget(size=1))

    assert (blind.status, blind.reason) == (422, "Invalid")
    assert blind.causes == [("metadata.resourceVersion", "FieldValueInvalid")]


async def test_replace_absent_lease_creates_it(rest: RestClient) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}

    assert (await rest.replace(f"{LEASE.path('default')}/l", lease)).status == 201
    assert (await rest.replace(f"{MAPS}/l", build_map("l"))).status == 404


async def test_generation_moves_with_the_spec_only(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET)
    await rest.create(WIDGETS, build_widget(size=1))

    labeled = await rest.patch(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}})
    resized = await rest.patch(f"{WIDGETS}/w", {"spec": {"size": 2}})
    reported = await rest.patch(f"{WIDGETS}/w/status", {"status": {"ready": 1}})

    assert labeled.metadata["generation"] == 1
    assert resized.metadata["generation"] == 2
    assert reported.metadata["generation"] == 2


async def test_status_writes_do_not_touch_the_spec_nor_the_other_way(
    rest: RestClient, api: FakeApi
) -> None:
    api.register(WIDGET)
    await rest.create(WIDGETS, build_widget(size=1))

    through_status = await rest.patch(
        f"{WIDGETS}/w/status", {"spec": {"size": 9}, "status": {"ready": 1}}
    )
    through_main = await rest.patch(f"{WIDGETS}/w", {"spec": {"size": 2}, "status": {"ready": 9}})

    assert through_status.body["spec"] == {"size": 1}
    assert through_main.body["status"] == {"ready": 1}
    assert through_main.body["spec"] == {"size": 2}


async def test_create_drops_the_status_of_kinds_that_have_the_subresource(
    rest: RestClient, api: FakeApi
) -> None:
    api.register(WIDGET)

    made = await rest.create(WIDGETS, {**build_widget(), "status": {"ready": 1}})

    assert "status" not in made.body


async def test_json_patch_with_failing_test_is_invalid_and_changes_nothing(
    rest: RestClient,
) -> None:
    made = await rest.create(MAPS, build_map(a="1"))
    patch = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/metadata/uid", "value": "other"},
    ]

    refused = await rest.patch(f"{MAPS}/web", patch, JSON_PATCH)

    assert (refused.status, refused.reason) == (422, "Invalid")
    assert (await rest.get(f"{MAPS}/web")).body == made.body


async def test_json_patch_changes_lists_and_escaped_keys(rest: RestClient) -> None:
    await rest.create(MAPS, {**build_map(), "metadata": {"name": "web", "finalizers": ["a/b"]}})
    patch = [
        {"op": "add", "path": "/metadata/finalizers/-", "value": "c/d"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/x~1y", "value": "1"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]

    patched = await rest.patch(f"{MAPS}/web", patch, JSON_PATCH)

    assert patched.metadata["finalizers"] == ["c/d"]
    assert patched.metadata["annotations"] == {"x/y": "1"}


async def test_merge_patch_removes_with_null_and_checks_the_version(rest: RestClient) -> None:
    await rest.create(MAPS, build_map(a="1", b="2"))

    patched = await rest.patch(f"{MAPS}/web", {"data": {"a": None}}, MERGE_PATCH)
    stale = await rest.patch(f"{MAPS}/web", {"metadata": {"resourceVersion": "1"}, "data": {}})

    assert patched.body["data"] == {"b": "2"}
    assert (stale.status, stale.reason) == (409, "Conflict")


async def test_strategic_patch_merges_containers_by_name(rest: RestClient) -> None:
    await rest.create(PODS, build_pod())
    patch = {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}

    patched = await rest.patch(f"{PODS}/web", patch, STRATEGIC_PATCH)

    assert patched.body["spec"]["containers"][0]["image"] == "nginx:2"
    assert patched.body["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


async def test_strategic_patch_of_a_custom_kind_is_unsupported(
    rest: RestClient, api: FakeApi
) -> None:
    api.register(WIDGET)
    await rest.create(WIDGETS, build_widget())

    assert (await rest.patch(f"{WIDGETS}/w", {}, STRATEGIC_PATCH)).status == 415


async def test_pod_spec_is_immutable_but_for_images(rest: RestClient) -> None:
    await rest.create(PODS, build_pod())

    refused = await rest.patch(f"{PODS}/web", {"spec": {"hostname": "x"}})

    assert (refused.status, refused.causes) == (422, [("spec", "FieldValueForbidden")])


async def test_dry_run_stores_nothing(rest: RestClient, api: FakeApi) -> None:
    made = await rest.create(MAPS, build_map(), dryRun="All")

    assert made.status == 201
    assert api.objects(CONFIG_MAP) == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**build_map(), "kind": "Secret"}, 400),
        ({**build_map(), "apiVersion": "v2"}, 400),
        ({**build_map(), "data": {"a": 1}}, 400),
        (build_map("Not_A_Name"), 422),
        (b"{", 400),
    ],
    ids=["wrong kind", "wrong version", "wrong type", "bad name", "bad JSON"],
)
async def test_create_nonsense_is_refused(rest: RestClient, body: object, status: int) -> None:
    assert (await rest.create(MAPS, body)).status == status


async def test_unknown_paths_are_not_found(rest: RestClient) -> None:
    for path in ("/api/v1/things", f"{MAPS}/absent"):
        response = await rest.get(path)
        assert (response.status, response.reason) == (404, "NotFound")
    for path in ("/apis/nowhere.io/v1/things", "/nowhere"):
        response = await rest.get(path)
        assert (response.status, response.body) == (404, {"text": "404 page not found\n"})
