"""The reflector over HTTP: no gap without a new listing, no error without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object, key_of
from libs.common.runtime.informer import Informer
from libs.common.runtime.listing import StorageRolledBack
from libs.common.runtime.reflector import Reflector
from libs.common.runtime.store import Change
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.watching import GoneForm
from libs.common.testing.waiting import advance_until, turns, until

THING = Kind("test.slipway.dev", "v1", "Thing", "things")


def build_map(name: str, namespace: str = "default") -> Manifest:
    return build_object(CONFIG_MAP, name, namespace)


class Watcher:
    """An informer fed by a reflector, and the changes that its handlers received."""

    def __init__(self, api: FakeApi, informer: Informer, clock: FakeClock) -> None:
        self.api = api
        self.informer = informer
        self.clock = clock
        self.gone: list[str] = []
        self.seen: list[str] = []
        informer.add_handler(self._note)

    def _note(self, change: Change, _: object) -> None:
        if change.new is None:
            self.gone.append(change.key.name)
        else:
            self.seen.append(change.key.name)

    def names(self) -> list[str]:
        return sorted(key.name for key in self.informer.store)

    def text(self, key: Key) -> str:
        held = self.informer.store.get(key) or {}
        return str(held.get("data", {}).get("text", ""))

    def shows(self, key: Key, text: str) -> bool:
        return self.text(key) == text

    def lists(self, names: list[str]) -> bool:
        return self.names() == names

    def count(self, verb: str) -> int:
        found = self.api.requests.select(verb, self.informer.kind)
        # A listing of one object only asks for the version of the server.
        return len([each for each in found if each.query.get("limit") != "1"])

    def has(self, name: str) -> bool:
        return name in self.names()

    def has_watched(self, times: int) -> bool:
        return self.count("watch") == times

    async def ready(self) -> None:
        await until(
            lambda: self.informer.synced and self.api.watches.count(self.informer.kind),
            "the first watch is open",
        )


@asynccontextmanager
async def reflecting(
    api: FakeApi,
    client: Client,
    kind: Kind = CONFIG_MAP,
    namespaces: tuple[str, ...] = ("default",),
    *,
    optional: bool = False,
    selector: str = "",
) -> AsyncIterator[Watcher]:
    clock = FakeClock()
    informer = Informer(
        kind,
        namespaces=namespaces,
        label_selector=selector,
        source="reflector",
        optional=optional,
        clock=clock,
    )
    watcher = Watcher(api, informer, clock)
    stop = asyncio.Event()
    reflector = Reflector(client, clock=clock, rng=lambda: 0.0)
    task = asyncio.create_task(reflector.run([informer], stop))
    try:
        yield watcher
        assert not task.done(), task
    finally:
        stop.set()
        await task


@pytest.mark.apiserver
async def test_watch_of_metadata_gets_nothing_else(
    kube_client: Client, kube_namespace: str
) -> None:
    """1,000 ConfigMaps of 1 MB of one tenant would end the operator for all."""
    informer = Informer(
        CONFIG_MAP, namespaces=(kube_namespace,), metadata_only=True, source="reflector"
    )
    stop, data = asyncio.Event(), {"data": {"text": "large"}}
    listed, made = (build_map(name, kube_namespace) for name in ("listed", "made"))
    await kube_client.create(CONFIG_MAP, listed | data)
    task = asyncio.create_task(Reflector(kube_client).run([informer], stop))
    try:
        await until(lambda: informer.synced)
        await kube_client.create(CONFIG_MAP, made | data)
        await until(lambda: informer.store.get(key_of(made)))
        # A sweep reads what the watch missed as a whole object.
        informer.put(await kube_client.get(CONFIG_MAP, key_of(listed)))
        for manifest in (listed, made):
            held = informer.store.get(key_of(manifest)) or {}
            assert sorted(held) == ["apiVersion", "kind", "metadata"]
            assert held["kind"] == "ConfigMap"
    finally:
        stop.set()
        await task


async def test_what_is_listed_is_told_and_so_is_each_change(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.create(build_map("listed"))
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        fake_api.create(build_map("made"))
        await until(lambda: watcher.seen == ["listed", "made"])

        fake_api.delete(CONFIG_MAP, ("default", "made"))
        await until(lambda: watcher.gone == ["made"])


@pytest.mark.parametrize("mid_line", [False, True], ids=["clean end", "cut in a frame"])
async def test_watch_is_resumed_where_it_was_cut(
    fake_api: FakeApi, fake_client: Client, mid_line: bool
) -> None:
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        fake_api.create(build_map("before"))
        await until(lambda: watcher.names() == ["before"])
        seen = fake_api.get(CONFIG_MAP, ("default", "before"))["metadata"]["resourceVersion"]
        held = fake_api.hang("watch", CONFIG_MAP)
        fake_api.watches.cut(CONFIG_MAP, mid_line=mid_line)
        await until(lambda: fake_api.watches.count(CONFIG_MAP) == 0)
        fake_api.create(build_map("in-the-gap"))
        held.release()

        await advance_until(watcher.clock, lambda: len(watcher.names()) == 2)

        assert watcher.count("list") == 1, "a cut is no reason to list again"
        watches = fake_api.requests.select("watch", CONFIG_MAP)
        assert watches[-1].query["resourceVersion"] == seen


@pytest.mark.parametrize("form", ["stream", "http"])
async def test_deletion_in_a_gap_is_found_by_a_new_listing(
    fake_api: FakeApi, fake_client: Client, form: GoneForm
) -> None:
    for name in ("stays", "goes"):
        fake_api.create(build_map(name))
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        fake_api.watches.pause(CONFIG_MAP)
        fake_api.vanish(CONFIG_MAP, ("default", "goes"))
        fake_api.watches.expire(CONFIG_MAP, form)
        fake_api.watches.resume(CONFIG_MAP)

        await advance_until(watcher.clock, lambda: watcher.gone == ["goes"])

        assert watcher.names() == ["stays"]
        assert watcher.count("list") == 2


async def test_errors_are_backed_off_up_to_a_limit(fake_api: FakeApi, fake_client: Client) -> None:
    fault = fake_api.fail("list", CONFIG_MAP, status=500, times=None)
    async with reflecting(fake_api, fake_client) as watcher:
        waits: list[float] = []

        def waits_after(number: int) -> bool:
            return fault.hits == number and watcher.clock.next_due() is not None

        for number in range(1, 11):
            await until(partial(waits_after, number))
            waits.append(round(watcher.clock.next_due() or 0.0, 3))
            watcher.clock.advance(waits[-1])

        assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
        fake_api.faults.clear()
        await advance_until(watcher.clock, lambda: watcher.informer.synced)


async def test_progress_resets_the_back_off(fake_api: FakeApi, fake_client: Client) -> None:
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        for number in range(4):
            name = f"m{number}"
            fake_api.create(build_map(name))
            await until(partial(watcher.has, name))
            fake_api.watches.cut(CONFIG_MAP, mid_line=True)
            await until(lambda: fake_api.watches.count(CONFIG_MAP) == 0)
            moved = await advance_until(
                watcher.clock, lambda: fake_api.watches.count(CONFIG_MAP) == 1
            )
            assert moved == pytest.approx(0.2)


async def test_streams_that_break_after_a_while_do_not_add_up_to_a_long_pause(
    fake_api: FakeApi, fake_client: Client
) -> None:
    """A proxy closes idle streams after 50 s, and bookmarks come once a minute."""
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        for _ in range(4):
            watcher.clock.advance(50)
            fake_api.watches.cut(CONFIG_MAP, mid_line=True)
            await until(lambda: fake_api.watches.count(CONFIG_MAP) == 0)
            moved = await advance_until(
                watcher.clock, lambda: fake_api.watches.count(CONFIG_MAP) == 1
            )
            assert moved == pytest.approx(0.2)


async def test_watch_that_ends_without_an_event_shows_that_the_source_is_alive(
    fake_api: FakeApi, fake_client: Client
) -> None:
    """The server sends no bookmarks for kinds that it does not cache, such as Events."""
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        watcher.clock.advance(1000)
        assert watcher.informer.silence == 1000
        fake_api.watches.cut(CONFIG_MAP)
        await until(lambda: watcher.has_watched(2))

        assert watcher.informer.silence == 0


async def test_streams_that_end_at_once_are_not_asked_for_without_a_pause(
    fake_api: FakeApi, fake_client: Client
) -> None:
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        for number in range(1, 4):
            fake_api.watches.cut(CONFIG_MAP)
            await until(lambda: watcher.clock.next_due() is not None)
            await turns()
            assert watcher.count("watch") == number
            await advance_until(watcher.clock, partial(watcher.has_watched, number + 1))
            await until(lambda: fake_api.watches.count(CONFIG_MAP) == 1)

        assert watcher.clock.monotonic() == pytest.approx(0.2 + 0.4 + 0.8)


async def test_versions_that_expire_again_and_again_are_not_listed_without_a_pause(
    fake_api: FakeApi, fake_client: Client
) -> None:
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        fault = fake_api.fail("watch", CONFIG_MAP, status=410, times=None)
        fake_api.watches.cut(CONFIG_MAP)
        await advance_until(watcher.clock, lambda: fault.hits == 1)
        await until(lambda: watcher.clock.next_due() is not None)
        lists = watcher.count("list")
        await turns()

        assert watcher.count("list") == lists, "listed without a pause"


async def test_version_that_no_watch_can_begin_from_is_listed_anew(
    fake_api: FakeApi, fake_client: Client
) -> None:
    """As after a restore of the storage, or if an old event of the stream cannot be read."""
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        version = fake_api.requests.select("watch", CONFIG_MAP)[-1].query["resourceVersion"]
        fake_api.fail(
            "watch",
            CONFIG_MAP,
            status=500,
            times=None,
            where=lambda request: request.query["resourceVersion"] == version,
        )
        fake_api.watches.cut(CONFIG_MAP)
        await until(lambda: fake_api.watches.count(CONFIG_MAP) == 0)
        fake_api.create(build_map("later"))
        await advance_until(watcher.clock, lambda: watcher.has("later"))

        assert watcher.clock.monotonic() < 30
        assert watcher.count("list") == 2


async def test_namespaces_are_listed_and_watched_one_by_one(
    fake_api: FakeApi, fake_client: Client
) -> None:
    for namespace in ("one", "two", "three"):
        fake_api.create(build_map("a", namespace))
    held = fake_api.hang("list", where=lambda request: request.key.namespace == "two")
    async with reflecting(fake_api, fake_client, namespaces=("one", "two")) as watcher:
        await until(lambda: len(watcher.informer.store) == 1)
        assert not watcher.informer.synced, "one of two is not all"
        held.release()
        await until(lambda: watcher.informer.synced)

        assert {key.namespace for key in watcher.informer.store} == {"one", "two"}
        await until(lambda: fake_api.watches.count(CONFIG_MAP) == 2)
        fake_api.create(build_map("b", "two"))
        await until(lambda: watcher.informer.store.get(Key("two", "b")) is not None)


async def test_optional_kind_that_is_not_served_is_synced_and_comes_later(
    fake_api: FakeApi, fake_client: Client
) -> None:
    async with reflecting(fake_api, fake_client, THING, optional=True) as watcher:
        await until(lambda: watcher.informer.synced)
        assert not watcher.informer.served

        fake_api.register(THING)
        fake_api.create({**build_map("a"), "apiVersion": THING.api_version, "kind": THING.kind})
        await advance_until(watcher.clock, lambda: watcher.names() == ["a"])

        assert watcher.informer.served


async def test_optional_kind_that_goes_leaves_nothing_behind(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.register(THING)
    fake_api.create({**build_map("a"), "apiVersion": THING.api_version, "kind": THING.kind})
    async with reflecting(fake_api, fake_client, THING, optional=True) as watcher:
        await watcher.ready()
        fault = fake_api.fail(
            status=404, times=None, where=lambda each: each.path.startswith(THING.base_path)
        )
        fake_api.watches.cut(THING)
        moved = await advance_until(watcher.clock, lambda: watcher.gone == ["a"])
        assert moved >= 5, "an API server that has just started may not know it yet"
        fault.release()

        await advance_until(watcher.clock, lambda: watcher.names() == ["a"])


@pytest.mark.parametrize("whole", [True, False], ids=["group", "kind only"])
async def test_optional_kind_of_a_server_that_is_down_is_not_waited_for(
    fake_api: FakeApi, fake_client: Client, whole: bool
) -> None:
    """An aggregated API that is down answers 503, to discovery of its group as well."""
    fake_api.register(THING)
    fake_api.create({**build_map("a"), "apiVersion": THING.api_version, "kind": THING.kind})
    path = THING.base_path if whole else THING.path("default")
    fault = fake_api.fail(status=503, times=None, where=lambda each: each.path.startswith(path))
    async with reflecting(fake_api, fake_client, THING, optional=True) as watcher:
        if whole:
            moved = await advance_until(watcher.clock, lambda: watcher.informer.synced)
            assert moved >= 5, "the server may have just started"
            assert not watcher.informer.served
        else:
            await advance_until(watcher.clock, lambda: fault.hits >= 8)
            assert not watcher.informer.synced, "its objects are unknown"

        fault.release()
        await advance_until(watcher.clock, lambda: watcher.names() == ["a"])
        fake_api.fail(status=503, times=8, where=lambda each: each.path.startswith(path))
        fake_api.watches.cut(THING)
        await advance_until(watcher.clock, lambda: fake_api.watches.count(THING))
        assert watcher.gone == []


async def test_required_kind_that_is_not_served_is_not_synced(
    fake_api: FakeApi, fake_client: Client
) -> None:
    async with reflecting(fake_api, fake_client, THING) as watcher:
        await until(lambda: watcher.count("list") or len(fake_api.requests) > 0)
        await until(lambda: watcher.clock.next_due() is not None)

        assert not watcher.informer.synced


async def test_handler_that_fails_hides_no_other_object(
    fake_api: FakeApi, fake_client: Client
) -> None:
    for name in ("bad", "good"):
        fake_api.create(build_map(name))
    async with reflecting(fake_api, fake_client) as watcher:

        def choke(change: Change, *_: object) -> None:
            raise KeyError(change.key.name)

        watcher.informer._handlers.insert(0, (choke, None))
        await watcher.ready()

        assert sorted(watcher.seen) == ["bad", "good"]


async def test_object_that_an_index_or_a_transform_chokes_on_hides_no_other(
    fake_api: FakeApi, fake_client: Client
) -> None:
    """One object of one tenant must not end the process for all of them."""

    def shrink(manifest: Manifest) -> Manifest:
        return {**manifest, "data": {"length": str(len(manifest["data"]["text"]))}}

    for name in ("bad", "good"):
        data = {"text": name} if name == "good" else None
        fake_api.create({**build_map(name), "data": data})
    async with reflecting(fake_api, fake_client) as watcher:
        store = watcher.informer.store
        store.transform = shrink
        store.add_index("length", lambda manifest: [manifest["data"]["length"]])
        await watcher.ready()
        fake_api.patch(CONFIG_MAP, Key("default", "bad"), {"data": {"text": "mended"}})
        await until(lambda: store.indexed("length", "6"))
        fake_api.delete(CONFIG_MAP, Key("default", "bad"))
        await until(lambda: watcher.gone == ["bad"])

        assert [each["metadata"]["name"] for each in store.indexed("length", "4")] == ["good"]
        assert store.indexed("length", "6") == []


@pytest.mark.parametrize(
    "end",
    [lambda watches: watches.expire(CONFIG_MAP, "stream"), lambda watches: watches.cut(CONFIG_MAP)],
    ids=["listed again", "resumed"],
)
async def test_source_ends_if_the_storage_was_restored_to_an_earlier_state(
    fake_api: FakeApi, fake_client: Client, end: Callable[[Any], object]
) -> None:
    """Every write would conflict until the next sweep, ten minutes later.

    A watch from a version that the server has not reached is accepted, and silent.
    """
    fake_api.create(build_map("a"))
    informer = Informer(CONFIG_MAP, source="reflector")
    running = asyncio.create_task(Reflector(fake_client).run([informer], asyncio.Event()))
    await until(lambda: informer.synced and fake_api.watches.count(CONFIG_MAP))
    held = informer.store.get(Key("default", "a"))
    assert held is not None
    version = str(int(held["metadata"]["resourceVersion"]) + 10_000)
    informer.put({**held, "metadata": {**held["metadata"], "resourceVersion": version}})

    end(fake_api.watches)

    with pytest.raises(BaseExceptionGroup) as raised:
        await running
    assert raised.group_contains(StorageRolledBack, match="restored to an earlier state")


async def test_versions_that_are_no_numbers_lose_no_change_and_stop_nobody(
    fake_api: FakeApi, fake_client: Client
) -> None:
    """Aggregated APIs, such as the proxy of Karmada, return resource versions without an order."""
    for name in ("changes", "goes", "vanishes"):
        fake_api.create(build_map(name))
    fake_api.use_opaque_versions()
    async with reflecting(fake_api, fake_client) as watcher:
        await watcher.ready()
        key = Key("default", "changes")
        for text in ("one", "two"):
            fake_api.patch(CONFIG_MAP, key, {"data": {"text": text}})
            await until(partial(watcher.shows, key, text))
        fake_api.delete(CONFIG_MAP, ("default", "goes"))
        await until(lambda: watcher.gone == ["goes"])

        fake_api.watches.pause(CONFIG_MAP)
        fake_api.vanish(CONFIG_MAP, ("default", "vanishes"))
        fake_api.patch(CONFIG_MAP, key, {"data": {"text": "three"}})
        fake_api.watches.expire(CONFIG_MAP, "stream")
        fake_api.watches.resume(CONFIG_MAP)
        await advance_until(watcher.clock, lambda: watcher.gone == ["goes", "vanishes"])
        assert watcher.text(key) == "three"


async def test_object_whose_label_comes_back_is_found_without_an_order(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.use_opaque_versions()
    fake_api.create(build_object(CONFIG_MAP, "a", "default", metadata={"labels": {"x": "1"}}))
    async with reflecting(fake_api, fake_client, selector="x=1") as watcher:
        await watcher.ready()
        for value, names in (("2", []), ("1", ["a"])):
            fake_api.patch(CONFIG_MAP, ("default", "a"), {"metadata": {"labels": {"x": value}}})
            await until(partial(watcher.lists, names))
