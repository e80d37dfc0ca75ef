"""The client against the fake API: pages, watches, and what writes carry."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from libs.common.client import Client
from libs.common.client_requests import WatchEvent
from libs.common.config import ConnectionConfig
from libs.common.errors import (
    ApiError,
    BadRequest,
    ClientClosed,
    Conflict,
    Expired,
    Invalid,
    NotFound,
    ServerError,
    Unreachable,
)
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object, uid_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.watching import GoneForm
from libs.common.testing.waiting import until

KEY = Key("default", "a")
BLOB = Kind("test.slipway.dev", "v1", "Blob", "blobs")


def build_map(name: str = "a", **metadata: object) -> Manifest:
    return build_object(CONFIG_MAP, name, "default", metadata={**metadata})


def names(items: list[Manifest]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


async def test_list_is_put_together_from_pages(fake_api: FakeApi, fake_client: Client) -> None:
    for number in range(5):
        fake_api.create(build_map(f"m{number}"))

    listing = await fake_client.list(CONFIG_MAP, "default", page=2)

    assert names(listing.items) == ["m0", "m1", "m2", "m3", "m4"]
    assert listing.resource_version == str(fake_api.store.version)
    assert {(item["apiVersion"], item["kind"]) for item in listing.items} == {("v1", "ConfigMap")}
    assert [each.query["limit"] for each in fake_api.requests] == ["2", "2", "2"]


async def test_expired_page_token_starts_over_in_one_page(
    fake_api: FakeApi, fake_client: Client
) -> None:
    for number in range(4):
        fake_api.create(build_map(f"m{number}"))
    fake_api.fail("list", status=410, where=lambda request: "continue" in request.query)

    listing = await fake_client.list(CONFIG_MAP, "default", page=2)

    assert names(listing.items) == ["m0", "m1", "m2", "m3"], "no object twice"
    last = list(fake_api.requests)[-1]
    assert "limit" not in last.query
    assert "continue" not in last.query


async def test_list_that_expires_in_one_page_is_told(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.fail("list", status=410, times=None)

    with pytest.raises(Expired):
        await fake_client.list(CONFIG_MAP)

    assert len(fake_api.requests) == 1


async def test_list_of_metadata_carries_nothing_else(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.create({**build_map(), "data": {"x": "1"}})

    (item,) = (await fake_client.list(CONFIG_MAP, "default", metadata_only=True)).items

    assert "data" not in item
    assert uid_of(item)


async def test_selectors_are_left_to_the_server(fake_api: FakeApi, fake_client: Client) -> None:
    fake_api.create(build_map("a", labels={"app": "x"}))
    fake_api.create(build_map("b", labels={"app": "y"}))

    by_label = await fake_client.list(CONFIG_MAP, "default", label_selector="app in (x)")
    by_field = await fake_client.list(CONFIG_MAP, "default", field_selector="metadata.name=b")

    assert (names(by_label.items), names(by_field.items)) == (["a"], ["b"])


async def test_dry_run_stores_nothing(fake_api: FakeApi, fake_client: Client) -> None:
    await fake_client.create(CONFIG_MAP, build_map(), dry_run=True)

    assert fake_api.find(CONFIG_MAP, KEY) is None


async def test_replace_of_a_stale_version_is_a_conflict(
    fake_api: FakeApi, fake_client: Client
) -> None:
    stale = fake_api.create(build_map())
    fake_api.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}})

    with pytest.raises(Conflict):
        await fake_client.replace(CONFIG_MAP, {**stale, "data": {"y": "2"}})


async def test_patch_of_a_mapping_merges_and_of_a_sequence_operates(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.create(build_map())

    await fake_client.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}}, field_manager="me")
    await fake_client.patch(CONFIG_MAP, KEY, [{"op": "add", "path": "/data/y", "value": "2"}])

    assert fake_api.get(CONFIG_MAP, KEY)["data"] == {"x": "1", "y": "2"}
    assert fake_api.writes()[0].query["fieldManager"] == "me"
    with pytest.raises(Invalid):
        await fake_client.patch(CONFIG_MAP, KEY, [{"op": "test", "path": "/data/y", "value": "9"}])


async def test_apply_takes_fields_over_only_by_force(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.create({**build_map(), "data": {"x": "theirs"}})
    ours = {**build_map(), "data": {"x": "ours"}}

    with pytest.raises(Conflict):
        await fake_client.apply(CONFIG_MAP, ours, field_manager="me", force=False)
    await fake_client.apply(CONFIG_MAP, ours, field_manager="me")

    assert fake_api.get(CONFIG_MAP, KEY)["data"] == {"x": "ours"}


async def test_delete_leaves_a_namesake_alone(fake_api: FakeApi, fake_client: Client) -> None:
    fake_api.create(build_map())

    with pytest.raises(Conflict):
        await fake_client.delete(CONFIG_MAP, KEY, uid="another")
    assert fake_api.find(CONFIG_MAP, KEY) is not None

    held = fake_api.get(CONFIG_MAP, KEY)
    await fake_client.delete(CONFIG_MAP, KEY, uid=uid_of(held), grace_seconds=0)
    with pytest.raises(NotFound):
        await fake_client.get(CONFIG_MAP, KEY)


async def test_delete_of_a_stale_version_is_a_conflict(
    fake_api: FakeApi, fake_client: Client
) -> None:
    held = fake_api.create(build_map())
    fake_api.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}})

    with pytest.raises(Conflict):
        await fake_client.delete(
            CONFIG_MAP,
            KEY,
            uid=uid_of(held),
            resource_version=held["metadata"]["resourceVersion"],
        )


async def test_apply_to_another_incarnation_is_a_conflict(
    fake_api: FakeApi, fake_client: Client
) -> None:
    """The server calls it invalid; for a reconciler it is a stale read, which a retry corrects."""
    fake_api.create(build_map())
    other = {**build_map(), "metadata": {"name": KEY.name, "namespace": "default", "uid": "x"}}

    with pytest.raises(Conflict):
        await fake_client.apply(CONFIG_MAP, other, field_manager="test")


@pytest.mark.parametrize("used", [True, False])
async def test_closed_client_sends_nothing(
    fake_api: FakeApi, fake_client: Client, used: bool
) -> None:
    if used:
        await fake_client.list(CONFIG_MAP)
    await fake_client.close()
    fake_api.requests.clear()

    with pytest.raises(ClientClosed, match="GET /api/v1/configmaps: not sent"):
        await fake_client.list(CONFIG_MAP)
    with pytest.raises(ClientClosed):
        await follow(fake_client)
    with pytest.raises(ClientClosed):
        await fake_client.create(CONFIG_MAP, build_map())
    assert not fake_api.requests


# Watches.


async def follow(client: Client, kind: Kind = CONFIG_MAP, since: int = 1) -> list[WatchEvent]:
    """Return the events of a stream up to its clean end."""
    stream = client.watch(kind, "default", resource_version=str(since), inactivity_seconds=120)
    return [event async for event in stream]


async def test_watch_ends_with_the_stream_and_tells_each_change_in_order(
    fake_api: FakeApi, fake_client: Client
) -> None:
    since = fake_api.store.version
    following = asyncio.create_task(follow(fake_client, since=since))
    await until(lambda: fake_api.watches.count(CONFIG_MAP))
    fake_api.create(build_map())
    fake_api.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}})
    fake_api.delete(CONFIG_MAP, KEY)
    fake_api.watches.bookmark(CONFIG_MAP)
    fake_api.watches.cut(CONFIG_MAP)

    events = await following

    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    last = events[-1].object["metadata"]["resourceVersion"]
    assert last == str(fake_api.store.version)
    watch = next(each for each in fake_api.requests if each.verb == "watch")
    assert watch.query["timeoutSeconds"] == "300", "the server refuses fractions"


async def test_watch_reads_frames_of_any_length(fake_api: FakeApi, fake_client: Client) -> None:
    fake_api.register(BLOB)
    since = fake_api.store.version
    following = asyncio.create_task(follow(fake_client, BLOB, since))
    await until(lambda: fake_api.watches.count(BLOB))
    text = "x" * (3 << 20)
    fake_api.create(build_object(BLOB, "big", "default", spec={"text": text}))
    await asyncio.sleep(0)
    fake_api.watches.cut(BLOB)

    (event,) = await following

    assert event.object["spec"]["text"] == text


async def test_watch_that_is_cut_inside_a_frame_is_unreachable(
    fake_api: FakeApi, fake_client: Client
) -> None:
    following = asyncio.create_task(follow(fake_client, since=fake_api.store.version))
    await until(lambda: fake_api.watches.count(CONFIG_MAP))
    fake_api.watches.cut(CONFIG_MAP, mid_line=True)

    with pytest.raises(Unreachable):
        await following


async def test_watch_that_receives_nothing_ends(fake_api: FakeApi, fake_client: Client) -> None:
    fake_api.watches.silence(CONFIG_MAP)
    stream = fake_client.watch(CONFIG_MAP, resource_version="1", inactivity_seconds=0.05)

    async with asyncio.timeout(30):
        assert [event async for event in stream] == []


@pytest.mark.parametrize("form", ["stream", "http"])
async def test_watch_of_an_old_version_is_expired(
    fake_api: FakeApi, fake_client: Client, form: GoneForm
) -> None:
    fake_api.watches.expire(CONFIG_MAP, form)

    with pytest.raises(Expired):
        await follow(fake_client)


@pytest.mark.parametrize("form", ["stream", "http"])
async def test_watch_after_compaction_is_expired(
    fake_api: FakeApi, fake_client: Client, form: GoneForm
) -> None:
    fake_api.create(build_map())
    fake_api.compact(form)

    with pytest.raises(Expired):
        await follow(fake_client)


@pytest.mark.parametrize(
    ("status", "error"), [(403, ApiError), (404, NotFound), (500, ServerError)]
)
async def test_watch_that_is_refused_raises_what_a_read_would(
    fake_api: FakeApi, fake_client: Client, status: int, error: type[ApiError]
) -> None:
    fake_api.fail("watch", status=status)

    with pytest.raises(error):
        await follow(fake_client)


async def test_watch_that_is_left_closes_its_connection(
    fake_api: FakeApi, fake_client: Client
) -> None:
    since = fake_api.store.version
    fake_api.create(build_map())
    stream = fake_client.watch(CONFIG_MAP, resource_version=str(since), inactivity_seconds=120)
    await anext(stream)
    await stream.aclose()

    # The server notices when it writes.
    def gone() -> bool:
        fake_api.patch(CONFIG_MAP, KEY, {"data": {"n": str(fake_api.store.version)}})
        return fake_api.watches.count(CONFIG_MAP) == 0

    await until(gone)


@pytest.mark.parametrize(
    "key",
    [
        Key("default", "../../other/configmaps/a"),
        Key("default", ".."),
        Key("default", "a/b"),
        Key("default", "a?x=1"),
        Key("default", "a%2Fb"),
        Key("other/configmaps/a#", "a"),
        Key("default", ""),
    ],
    ids=str,
)
async def test_name_that_is_a_path_leads_nowhere(
    fake_api: FakeApi, fake_client: Client, key: Key
) -> None:
    """A path with an empty name is the collection: deleting one object would delete all."""
    fake_api.create(build_object(CONFIG_MAP, "a", "other"))

    with pytest.raises(BadRequest, match="name"):
        await fake_client.get(CONFIG_MAP, key)
    with pytest.raises(BadRequest, match="name"):
        await fake_client.delete(CONFIG_MAP, key, uid="x")
    assert not list(fake_api.requests)


async def test_kind_is_served_when_discovery_knows_it(
    fake_api: FakeApi, fake_client: Client
) -> None:
    sibling = Kind("apps", "v1", "Sibling", "siblings")

    assert await fake_client.serves(CONFIG_MAP)
    assert not await fake_client.serves(BLOB), "no such group"
    assert not await fake_client.serves(sibling), "a group without this kind"
    fake_api.fail("GET", status=503)
    with pytest.raises(ServerError):
        await fake_client.serves(CONFIG_MAP)


async def test_list_that_keeps_arriving_may_take_longer_than_a_request() -> None:
    """Listing 100,000 objects takes longer than a response that should come immediately."""

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b'{"items": [', b"]", b', "metadata": {"resource', b'Version": "7"}}'):
            await response.write(part)
            await asyncio.sleep(0.5)  # Time is the question here.
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", trickle)
    async with TestServer(app) as server:
        config = ConnectionConfig(str(server.make_url("")).rstrip("/"))
        async with Client(config, request_timeout=1.25) as client:
            assert (await client.list(CONFIG_MAP)).resource_version == "7"
            with pytest.raises(Unreachable):
                await client.get(CONFIG_MAP, Key("default", "a"))


async def test_list_that_begins_again_has_no_object_twice(
    fake_api: FakeApi, fake_client: Client
) -> None:
    for number in range(5):
        fake_api.create(build_object(CONFIG_MAP, f"c{number}", "default"))
    fake_api.fail("list", status=410, times=1, where=lambda each: "continue" in each.query)

    pages = [page async for page in fake_client.pages(CONFIG_MAP, page=2)]

    assert [(len(page.items), page.first) for page in pages] == [(2, True), (5, True)]
