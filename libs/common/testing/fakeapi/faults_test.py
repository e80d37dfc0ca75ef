"""Tests of injected faults, the request log and RBAC."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.config import load_config
from libs.common.kinds import CONFIG_MAP, POD, Key, Kind, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.rest import RestClient

MAPS = CONFIG_MAP.path("default")
WIDGET = Kind("example.com", "v1", "Widget", "widgets")


def build_map(name: str = "m", **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


async def test_fail_happens_so_many_times(rest: RestClient, api: FakeApi) -> None:
    fault = api.fail("GET", CONFIG_MAP, status=503, times=2)

    seen = [(await rest.get(MAPS)).status for _ in range(3)]

    assert seen == [503, 503, 200]
    assert fault.hits == 2


async def test_fail_with_retry_after(rest: RestClient, api: FakeApi) -> None:
    api.fail("list", status=429, retry_after=3)

    refused = await rest.get(MAPS)

    assert (refused.status, refused.reason) == (429, "TooManyRequests")
    assert refused.headers["Retry-After"] == "3"
    assert refused.body["details"]["retryAfterSeconds"] == 3


async def test_fail_concerns_only_what_it_says(rest: RestClient, api: FakeApi) -> None:
    api.create(build_map("a"))
    api.create(build_map("b"))
    api.fail("PATCH", CONFIG_MAP, name="a", times=None)
    api.fail("patch", POD, times=None)
    api.fail(kind=CONFIG_MAP, where=lambda r: bool(r.body and "evil" in r.body.get("data", {})))

    assert (await rest.patch(f"{MAPS}/a", {})).status == 500
    assert (await rest.patch(f"{MAPS}/b", {})).status == 200
    assert (await rest.patch(f"{MAPS}/b", {"data": {"evil": "1"}})).status == 500
    assert (await rest.get(f"{MAPS}/a")).status == 200


async def test_fail_a_subresource_only(rest: RestClient, api: FakeApi) -> None:
    api.register(WIDGET)
    path = WIDGET.path("default", "w")
    api.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
    api.fail("PATCH", WIDGET, subresource="status")

    assert (await rest.patch(path, {})).status == 200
    assert (await rest.patch(f"{path}/status", {})).status == 500


async def test_lost_response_commits_and_drops_the_connection(
    rest: RestClient, api: FakeApi
) -> None:
    api.fail("POST", CONFIG_MAP, lost_response=True)

    with pytest.raises(aiohttp.ClientError):
        await rest.create(MAPS, build_map())

    assert [o["metadata"]["name"] for o in api.objects(CONFIG_MAP)] == ["m"]
    assert (await rest.get(MAPS)).status == 200


async def test_dropped_request_does_nothing(rest: RestClient, api: FakeApi) -> None:
    api.fail("POST", CONFIG_MAP, dropped=True)

    with pytest.raises(aiohttp.ClientError):
        await rest.create(MAPS, build_map())

    assert api.objects(CONFIG_MAP) == []


async def test_hang_lasts_until_released(rest: RestClient, api: FakeApi) -> None:
    fault = api.hang("GET", CONFIG_MAP)
    waiting = asyncio.create_task(rest.get(MAPS))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done

    fault.release()

    assert (await waiting).status == 200


async def test_committed_hang_answers_late_with_what_was_stored_then(
    rest: RestClient, api: FakeApi
) -> None:
    api.create(build_map(a="1"))
    fault = api.hang("PATCH", CONFIG_MAP, committed=True)
    waiting = asyncio.create_task(rest.patch(f"{MAPS}/m", {"data": {"a": "2"}}))
    async with asyncio.timeout(120):
        while api.get(CONFIG_MAP, ("default", "m"))["data"] != {"a": "2"}:
            await asyncio.sleep(0)
    api.patch(CONFIG_MAP, ("default", "m"), {"data": {"a": "3"}})

    fault.release()

    assert (await waiting).body["data"] == {"a": "2"}


async def test_delay_takes_time(rest: RestClient, api: FakeApi) -> None:
    api.delay(0.05, "GET")
    loop = asyncio.get_running_loop()
    before = loop.time()

    await rest.get(MAPS)

    assert loop.time() - before >= 0.05


async def test_requests_are_remembered(rest: RestClient, api: FakeApi) -> None:
    api.create(build_map("a"))
    mark = api.mark()
    await rest.get(f"{MAPS}/a", resourceVersion="0")
    await rest.patch(f"{MAPS}/a", {"data": {"x": "1"}}, fieldManager="me")
    await rest.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    await rest.create(MAPS, build_map("dry"), dryRun="All")

    read = api.requests[mark]
    writes = api.writes(since=mark)

    assert (read.verb, read.kind, read.key) == ("get", CONFIG_MAP, Key("default", "a"))
    assert (read.query, read.user_agent) == ({"resourceVersion": "0"}, "rest/1")
    assert [(w.verb, w.status, w.changed) for w in writes] == [
        ("patch", 200, True),
        ("patch", 200, False),
    ]
    assert writes[0].body == {"data": {"x": "1"}}
    assert str(writes[0]) == "patch configmaps default/a -> 200"


async def test_allow_refuses_everything_else(rest: RestClient, api: FakeApi) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
    api.allow([rule], namespace="default")

    assert (await rest.get(MAPS)).status == 200
    refused = await rest.create(MAPS, build_map())
    assert (await rest.get(CONFIG_MAP.path())).status == 403
    assert (await rest.get("/api/v1")).status == 200
    assert refused.status == 403
    assert refused.body["message"] == (
        'configmaps is forbidden: User "system:serviceaccount:default:operator" cannot create '
        'resource "configmaps" in API group "" in the namespace "default"'
    )


async def test_apply_needs_create_for_a_new_object(rest: RestClient, api: FakeApi) -> None:
    api.allow([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}])

    refused = await rest.apply(f"{MAPS}/m", build_map(), "me")
    api.create(build_map())

    assert refused.status == 403
    assert (await rest.apply(f"{MAPS}/m", build_map(), "me")).status == 200


async def test_allow_by_name_and_subresource(rest: RestClient, api: FakeApi) -> None:
    api.create(build_map("a"))
    api.allow(
        [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "verbs": ["get"],
                "resourceNames": ["a"],
            },
            {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["*"]},
        ]
    )

    assert (await rest.get(f"{MAPS}/a")).status == 200
    assert (await rest.get(f"{MAPS}/b")).status == 403
    assert (await rest.patch(f"{POD.path('default')}/p/status", {})).status == 404
    assert (await rest.patch(f"{POD.path('default')}/p", {})).status == 403


async def test_access_review_answers_by_the_rules(rest: RestClient, api: FakeApi) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    api.allow(
        [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]},
        ]
    )

    async def ask(verb: str) -> bool:
        attributes = {"verb": verb, "resource": "pods", "namespace": "default"}
        response = await rest.create(path, {"spec": {"resourceAttributes": attributes}})
        return bool(response.body["status"]["allowed"])

    assert await ask("get")
    assert not await ask("delete")


async def test_token_is_asked_for() -> None:
    async with FakeApi(token="secret") as api:
        async with RestClient(api.url) as anonymous:
            assert (await anonymous.get(MAPS)).status == 401
        async with RestClient(api.url, token="secret") as known:
            assert (await known.get(MAPS)).status == 200


async def test_client_of_the_library_connects_by_config_and_kubeconfig(
    api: FakeApi, tmp_path: Path
) -> None:
    api.create(build_map(a="1"))
    path = await api.kubeconfig(tmp_path / "kubeconfig")

    for config in (api.config, await load_config(str(path))):
        async with Client(config, user_agent="test") as client:
            found = await client.get(CONFIG_MAP, Key("default", "m"))
            assert found["data"] == {"a": "1"}
