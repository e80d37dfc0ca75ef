"""Tests of watch streams and of the ways to disturb them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.rest import RestClient, WatchEvents
from libs.common.testing.fakeapi.store import Store

MAPS = CONFIG_MAP.path("default")


def build_map(name: str, **labels: str) -> Manifest:
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def version_of(api: FakeApi) -> str:
    return str(api.store.version)


async def test_watch_from_a_version_tells_what_came_after(rest: RestClient, api: FakeApi) -> None:
    api.create(build_map("old"))
    since = version_of(api)
    api.create(build_map("a"))
    async with rest.watch(MAPS, resourceVersion=since) as frames:
        api.patch(CONFIG_MAP, ("default", "a"), {"data": {"x": "1"}})
        api.delete(CONFIG_MAP, ("default", "a"))

        assert await frames.names(3) == ["ADDED a", "MODIFIED a", "DELETED a"]


@pytest.mark.parametrize("version", ["", "0"])
async def test_watch_without_a_version_begins_with_what_is_there(
    rest: RestClient, api: FakeApi, version: str
) -> None:
    api.create(build_map("a"))
    async with rest.watch(MAPS, resourceVersion=version) as frames:
        api.create(build_map("b"))

        assert await frames.names(2) == ["ADDED a", "ADDED b"]


async def test_deleted_event_carries_the_version_of_the_deletion(
    rest: RestClient, api: FakeApi
) -> None:
    api.create(build_map("a"))
    async with rest.watch(MAPS, resourceVersion=version_of(api)) as frames:
        api.delete(CONFIG_MAP, ("default", "a"))
        _, gone = await frames.next()

    assert gone["metadata"]["resourceVersion"] == version_of(api)


async def test_watch_with_labels_sees_objects_enter_and_leave(
    rest: RestClient, api: FakeApi
) -> None:
    api.create(build_map("a", app="x"))
    query = {"labelSelector": "app=x", "resourceVersion": version_of(api)}
    async with rest.watch(MAPS, **query) as frames:
        api.patch(CONFIG_MAP, ("default", "a"), {"metadata": {"labels": {"app": "y"}}})
        api.patch(CONFIG_MAP, ("default", "a"), {"metadata": {"labels": {"app": "z"}}})
        api.patch(CONFIG_MAP, ("default", "a"), {"metadata": {"labels": {"app": "x"}}})
        (left, gone), (entered, back) = await frames.next(), await frames.next()

    assert (left, entered) == ("DELETED", "ADDED")
    assert gone["metadata"]["labels"] == {"app": "x"}
    assert int(gone["metadata"]["resourceVersion"]) < int(back["metadata"]["resourceVersion"])


async def test_watch_of_one_name_sees_only_that(rest: RestClient, api: FakeApi) -> None:
    query = {"fieldSelector": "metadata.name=b", "resourceVersion": version_of(api)}
    async with rest.watch(MAPS, **query) as frames:
        api.create(build_map("a"))
        api.create(build_map("b"))

        assert await frames.names(1) == ["ADDED b"]


async def test_watch_across_namespaces(rest: RestClient, api: FakeApi) -> None:
    async with rest.watch(CONFIG_MAP.path(), resourceVersion=version_of(api)) as frames:
        api.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x"}}
        )
        _, obj = await frames.next()

    assert obj["metadata"]["namespace"] == "x"


async def test_initial_events_end_with_a_bookmark(rest: RestClient, api: FakeApi) -> None:
    api.create(build_map("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with rest.watch(MAPS, **query) as frames:
        assert await frames.names(1) == ["ADDED a"]
        type_, obj = await frames.next()

    assert type_ == "BOOKMARK"
    assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert obj["metadata"]["resourceVersion"] == version_of(api)


async def test_initial_events_without_a_match_are_refused(rest: RestClient) -> None:
    answer = await rest.get(MAPS, watch="true", sendInitialEvents="true")

    assert answer.status == 422


async def test_bookmarks_move_idle_watches_on(rest: RestClient, api: FakeApi) -> None:
    async with rest.watch(
        MAPS, resourceVersion=version_of(api), allowWatchBookmarks="true"
    ) as frames:
        await until(lambda: api.watches.count(CONFIG_MAP) == 1)
        api.store.bump()
        api.watches.bookmark(CONFIG_MAP)
        type_, obj = await frames.next()

    assert (type_, obj["metadata"]["resourceVersion"]) == ("BOOKMARK", version_of(api))


async def test_timeout_seconds_ends_the_watch(rest: RestClient, api: FakeApi) -> None:
    async with rest.watch(MAPS, resourceVersion=version_of(api), timeoutSeconds="1") as frames:
        with pytest.raises(EOFError):
            await frames.next()


@pytest.mark.parametrize("form", ["stream", "http"])
async def test_watch_from_before_a_compaction_is_expired(
    rest: RestClient, api: FakeApi, form: str
) -> None:
    since = version_of(api)
    api.create(build_map("a"))
    api.compact("http" if form == "http" else "stream")

    async with rest.watch(MAPS, resourceVersion=since) as frames:
        type_, obj = await frames.next() if form == "stream" else ("", {})
        status = frames.response.status

    if form == "http":
        assert status == 410
    else:
        assert (status, type_, obj["code"], obj["reason"]) == (200, "ERROR", 410, "Expired")


async def test_history_is_bounded(rest: RestClient) -> None:
    store = Store(history=10)
    for number in range(40):
        store.put(
            ("", "configmaps"),
            Key("", f"n{number}"),
            {"kind": "ConfigMap", "metadata": {"uid": str(number), "name": f"n{number}"}},
        )

    assert store.oldest > 100
    assert len(store.changes_since(store.oldest, ("", "configmaps"))) >= 10


async def test_cut_ends_open_watches(rest: RestClient, api: FakeApi) -> None:
    async with opened(rest, api) as frames:
        assert api.watches.cut(CONFIG_MAP) == 1
        with pytest.raises(EOFError):
            await frames.next()


async def test_cut_in_the_middle_of_a_line_breaks_the_connection(
    rest: RestClient, api: FakeApi
) -> None:
    async with opened(rest, api) as frames:
        api.watches.cut(CONFIG_MAP, mid_line=True)
        with pytest.raises(aiohttp.ClientPayloadError):
            await frames.response.content.readline()


async def test_paused_watch_delivers_later_and_in_order(rest: RestClient, api: FakeApi) -> None:
    async with opened(rest, api) as frames:
        api.watches.pause(CONFIG_MAP)
        api.create(build_map("a"))
        api.create(build_map("b"))
        waiting = asyncio.create_task(frames.names(2))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        api.watches.resume(CONFIG_MAP)

        assert await waiting == ["ADDED a", "ADDED b"]


async def test_silent_watch_never_speaks_again_but_a_new_one_does(
    rest: RestClient, api: FakeApi
) -> None:
    since = version_of(api)
    async with opened(rest, api) as frames:
        api.watches.silence(CONFIG_MAP)
        api.create(build_map("a"))
        api.watches.restore(CONFIG_MAP)
        waiting = asyncio.create_task(frames.next())
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        waiting.cancel()
        async with rest.watch(MAPS, resourceVersion=since) as again:
            assert await again.names(1) == ["ADDED a"]


async def test_dropped_and_duplicated_events(rest: RestClient, api: FakeApi) -> None:
    async with opened(rest, api) as frames:
        api.watches.drop_next(CONFIG_MAP, 1)
        api.create(build_map("lost"))
        api.watches.duplicate_next(CONFIG_MAP)
        api.create(build_map("twice"))
        api.create(build_map("once"))

        assert await frames.names(3) == ["ADDED twice", "ADDED twice", "ADDED once"]


@pytest.mark.parametrize("status", [410, 500])
async def test_error_in_the_stream_is_an_event_and_ends_it(
    rest: RestClient, api: FakeApi, status: int
) -> None:
    async with opened(rest, api) as frames:
        if status == 410:
            api.watches.expire(CONFIG_MAP)
        else:
            api.watches.fail(CONFIG_MAP, status)
        type_, obj = await frames.next()
        with pytest.raises(EOFError):
            await frames.next()

    assert (type_, obj["code"]) == ("ERROR", status)


async def test_expire_by_http_refuses_the_next_watch_once(rest: RestClient, api: FakeApi) -> None:
    async with opened(rest, api) as frames:
        api.watches.expire(CONFIG_MAP, form="http")
        with pytest.raises(EOFError):
            await frames.next()
    async with rest.watch(MAPS, resourceVersion=version_of(api)) as refused:
        assert refused.response.status == 410
    async with rest.watch(MAPS, resourceVersion=version_of(api)) as again:
        assert again.response.status == 200


async def test_controls_concern_one_kind_only(rest: RestClient, api: FakeApi) -> None:
    async with opened(rest, api) as frames:
        api.watches.pause(POD)
        api.watches.cut(POD)
        api.create(build_map("a"))

        assert await frames.names(1) == ["ADDED a"]


@asynccontextmanager
async def opened(rest: RestClient, api: FakeApi) -> AsyncIterator[WatchEvents]:
    """Open a watch and wait until the server feeds it."""
    async with rest.watch(MAPS, resourceVersion=version_of(api)) as frames:
        await until(lambda: api.watches.count(CONFIG_MAP) > 0)
        yield frames


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0)
