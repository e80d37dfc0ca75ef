"""kopf's known failures, each shown not to be ours any more.

Each test names the behavior of kopf 1.45 that it guards against. The API is a fake one over HTTP;
one test at the end runs against a real API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Literal

import pytest

from libs.common.client import Client
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Informer
from libs.common.runtime.kopf_source import KopfSource, end_watchers
from libs.common.runtime.listing import StorageRolledBack
from libs.common.runtime.store import Change
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import turns

THING = Kind("test.slipway.dev", "v1", "Thing", "things")
KOPF_FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
KOPF_MEMORY = "kopf.zalando.org/last-handled-configuration"


def build_config_map(name: str, **metadata: object) -> Manifest:
    return build_object(CONFIG_MAP, name, "default", metadata={**metadata})


class Watcher:
    """An informer fed by kopf, and the changes that its handlers received."""

    def __init__(self, informer: Informer, task: asyncio.Task[None]) -> None:
        self.informer = informer
        self.task = task
        self.gone: list[str] = []
        self.seen: list[str] = []
        informer.add_handler(self._note)

    def _note(self, change: Change, *_: object) -> None:
        (self.gone if change.new is None else self.seen).append(change.key.name)

    def names(self) -> list[str]:
        return sorted(key.name for key in self.informer.store)


@contextlib.asynccontextmanager
async def watching(client: Client) -> AsyncIterator[Watcher]:
    informer = Informer(CONFIG_MAP, namespaces=("default",))
    stop = asyncio.Event()
    source = asyncio.create_task(KopfSource(client.config, client).run([informer], stop))
    watcher = Watcher(informer, source)
    try:
        yield watcher
    finally:
        stop.set()
        await asyncio.gather(source, return_exceptions=True)


async def until(probe: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not probe():
            await asyncio.sleep(0.01)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield server


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[Client]:
    async with Client(api.config, user_agent="test") as connected:
        yield connected


async def test_user_needs_no_name(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kopf looks the name of the user up; users that OpenShift assigns have none."""

    def fail() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr("getpass.getuser", fail)
    api.create(build_config_map("one"))
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced and watcher.names() == ["one"])


@pytest.mark.parametrize("form", ["stream", "http"])
async def test_deletion_in_a_gap_before_a_410_is_found(
    api: FakeApi, client: Client, form: Literal["stream", "http"]
) -> None:
    """Kopf lists again after a 410 and reports no deletions; its indexes keep the objects.

    At a 410 that is no event, it would exit.
    """
    for name in ("stays", "goes"):
        api.create(build_config_map(name))
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced and api.watches.count(CONFIG_MAP) > 0)
        api.watches.drop_next(CONFIG_MAP, 1)
        api.vanish(CONFIG_MAP, Key("default", "goes"))
        api.watches.expire(CONFIG_MAP, form)

        await until(lambda: watcher.gone == ["goes"])
        api.create(build_config_map("new"))
        await until(lambda: watcher.names() == ["new", "stays"])


async def test_deletion_of_the_last_object_in_a_gap_is_found(api: FakeApi, client: Client) -> None:
    """Kopf reports nothing at all if a list after a 410 is empty."""
    api.create(build_config_map("goes"))
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced and watcher.names() == ["goes"])
        await until(lambda: api.watches.count(CONFIG_MAP) > 0)
        api.watches.drop_next(CONFIG_MAP, 1)
        api.vanish(CONFIG_MAP, Key("default", "goes"))
        api.watches.expire(CONFIG_MAP, "stream")

        await until(lambda: watcher.gone == ["goes"])


async def test_many_objects_are_synced_together(api: FakeApi, client: Client) -> None:
    """Kopf with a limit on its workers and an index hangs; we set no limit and use no index."""
    for number in range(50):
        api.create(build_config_map(f"c{number}"))
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced)

        assert len(watcher.names()) == 50


@pytest.mark.parametrize("number", range(1, 8))
async def test_stop_at_any_request_of_the_start_leaves_no_connection_open(
    api: FakeApi, client: Client, number: int
) -> None:
    """If kopf is stopped while it scans, it logs in again and never closes that session."""
    stop = asyncio.Event()
    numbers = itertools.count(1)

    def stop_at(_: object) -> bool:
        if next(numbers) == number:
            stop.set()
        return False

    api.fail(where=stop_at)
    informer = Informer(CONFIG_MAP, namespaces=("default",))
    await KopfSource(client.config, client).run([informer], stop)

    assert next(numbers) > number
    gc.collect()  # An open session warns when it is collected; a warning fails.


async def test_first_list_is_neither_streamed_nor_paged(api: FakeApi, client: Client) -> None:
    """A streamed listing that breaks loses objects; an expired page token ends the operator."""
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced and api.watches.count(CONFIG_MAP))

        kopf = [each for each in api.requests if "slipway" not in each.user_agent]
        kopf = [each for each in kopf if each.kind == CONFIG_MAP and each.user_agent != "test"]
        assert kopf
        assert all("sendInitialEvents" not in each.query for each in kopf)
        assert all("limit" not in each.query for each in kopf)


async def test_silent_watch_does_not_count_as_dead(api: FakeApi, client: Client) -> None:
    """Kopf keeps bookmarks to itself; where sweeps are off or rare, its streams alone tell."""
    clock, cache, stop = FakeClock(), Cache(), asyncio.Event()
    informer = Informer(CONFIG_MAP, namespaces=("default",), clock=clock)
    informer.mark_synced("default")
    cache.add(informer)
    source = asyncio.create_task(KopfSource(client.config, client).run([informer], stop))
    await until(lambda: api.watches.count(CONFIG_MAP))
    clock.advance(1000)
    assert "configmaps for 1000 s" in (cache.check_watches() or "")

    api.watches.cut(CONFIG_MAP)  # As the server does every few minutes.
    await until(lambda: cache.check_watches() is None)
    stop.set()
    await source


async def test_nothing_is_ever_written(api: FakeApi, client: Client) -> None:
    """Kopf takes its finalizer off, stores results of handlers and its memory in annotations."""
    api.create(build_config_map("a", finalizers=[KOPF_FINALIZER]))
    api.create(build_config_map("b", annotations={KOPF_MEMORY: "{}\n"}))
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced)
        api.patch(CONFIG_MAP, Key("default", "a"), {"data": {"x": "1"}})
        await until(lambda: watcher.seen.count("a") > 1)

        assert api.writes() == []


async def test_forged_annotation_hides_no_object(api: FakeApi, client: Client) -> None:
    """A tenant who forges kopf's annotation makes its handlers believe that all is done."""
    forged = '{"data": {"x": "1"}}\n'
    api.create(
        {**build_config_map("forged", annotations={KOPF_MEMORY: forged}), "data": {"x": "1"}}
    )
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced)

        assert watcher.seen == ["forged"]


@pytest.mark.parametrize("how", ["error in the stream", "status of the answer"])
async def test_failure_of_a_watch_stops_only_kopf(api: FakeApi, client: Client, how: str) -> None:
    """Kopf's operator ends on it; another one is started, and what the gap hid is found."""
    for name in ("stays", "goes"):
        api.create(build_config_map(name))
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced and api.watches.count(CONFIG_MAP))
        api.watches.drop_next(CONFIG_MAP, 2)
        api.vanish(CONFIG_MAP, Key("default", "goes"))
        api.create(build_config_map("comes"))
        if how == "error in the stream":
            api.watches.fail(CONFIG_MAP, 500)
        else:
            api.watches.expire(CONFIG_MAP, "http")

        await until(lambda: watcher.names() == ["comes", "stays"])
        assert watcher.gone == ["goes"]
        await until(lambda: api.watches.count(CONFIG_MAP))
        api.create(build_config_map("later"))
        await until(lambda: "later" in watcher.names())


@pytest.mark.parametrize("scope", ["default", ""])
async def test_kind_that_is_briefly_not_served_is_watched_later(
    api: FakeApi, client: Client, scope: str
) -> None:
    """Kopf looks once what is served, as CRDs are not yet when an API server has just begun."""
    api.register(THING)
    clock, stop = FakeClock(), asyncio.Event()
    informers = [
        Informer(kind, namespaces=(scope,) if scope else (), clock=clock)
        for kind in (THING, CONFIG_MAP)
    ]
    fault = api.fail(where=lambda request: request.path == THING.base_path, status=404)
    source = asyncio.create_task(
        KopfSource(client.config, client, clock=clock).run(informers, stop)
    )
    await until(lambda: fault.hits and api.watches.count(CONFIG_MAP))
    api.create(build_object(THING, "a", "default"))

    def is_seen() -> int:
        clock.advance(0.1)  # The pause before the next kopf.
        return len(informers[0].store)

    clock.advance(60)
    await until(is_seen)

    await until(lambda: _lists(api) == 2)  # A new kopf lists both kinds, in any order.
    clock.advance(1000)
    api.create(build_object(THING, "b", "default"))
    await until(lambda: len(informers[0].store) == 2)
    assert _lists(api) == 2, "one that watches all is left alone"
    stop.set()
    await source


async def test_gap_during_the_first_list_causes_another_list(api: FakeApi, client: Client) -> None:
    stop = asyncio.Event()
    held = api.hang("list", where=lambda request: request.user_agent == "test")
    informer = Informer(CONFIG_MAP, namespaces=("default",))
    source = asyncio.create_task(KopfSource(client.config, client).run([informer], stop))
    await until(lambda: api.watches.count(CONFIG_MAP) and _lists(api) == 1)

    api.watches.expire(CONFIG_MAP, "stream")
    await until(lambda: len(api.requests.select("watch", CONFIG_MAP)) == 2)
    held.release()
    await until(lambda: _lists(api) == 2)
    stop.set()
    await source


async def test_watch_that_begins_after_a_restore_of_the_storage_ends_the_source(
    api: FakeApi, client: Client
) -> None:
    """A watch from a version that the server has not reached is accepted, and silent for hours."""
    made = api.create(build_config_map("a"))
    informer = Informer(CONFIG_MAP, namespaces=("default",))
    stop = asyncio.Event()
    source = asyncio.create_task(KopfSource(client.config, client).run([informer], stop))
    await until(lambda: informer.synced and api.watches.count(CONFIG_MAP))
    ahead = str(int(made["metadata"]["resourceVersion"]) + 10_000)
    informer.put({**made, "metadata": {**made["metadata"], "resourceVersion": ahead}})

    api.watches.cut(CONFIG_MAP)

    with pytest.raises(BaseExceptionGroup) as raised:
        await source
    assert raised.group_contains(StorageRolledBack, match=ahead)


def _lists(api: FakeApi) -> int:
    """Return how often objects were listed, and not only a version."""
    lists = api.requests.select("list", CONFIG_MAP)
    return sum("fieldSelector" not in each.query and each.query["limit"] != "1" for each in lists)


async def test_refusal_in_one_namespace_does_not_affect_the_others(
    api: FakeApi, client: Client
) -> None:
    """Kopf ends on a 403, for all namespaces."""
    clock, stop = FakeClock(), asyncio.Event()
    informer = Informer(CONFIG_MAP, namespaces=("default", "kube-system"), clock=clock)
    fault = api.fail(status=403, times=None, where=lambda r: r.key.namespace == "kube-system")
    source = asyncio.create_task(
        KopfSource(client.config, client, pause=lambda _: asyncio.sleep(0.01)).run([informer], stop)
    )

    def works() -> object:
        clock.advance(1)
        return informer.synced and api.watches.count(CONFIG_MAP)

    await until(works)
    hits = fault.hits
    api.create(build_config_map("a"))
    await until(lambda: len(informer.store) and fault.hits > hits + 2)

    assert _lists(api) == 1, "the watch of the other namespace was not disturbed"
    fault.release()
    await until(lambda: not informer.all_scopes[1].blocked)
    stop.set()
    await source


async def test_stop_while_kopf_waits_for_its_restart(api: FakeApi, client: Client) -> None:
    clock, stop = FakeClock(), asyncio.Event()
    informer = Informer(CONFIG_MAP, namespaces=("default",))
    source = asyncio.create_task(
        KopfSource(client.config, client, clock=clock).run([informer], stop)
    )
    await until(lambda: api.watches.count(CONFIG_MAP))
    api.watches.fail(CONFIG_MAP)
    await until(lambda: (clock.next_due() or 60.0) < 60.0)

    stop.set()
    await asyncio.wait_for(source, 120)


async def test_reconnects_pause_if_each_stream_ends_immediately(
    api: FakeApi, client: Client
) -> None:
    """Kopf asks again the moment a stream has ended, as often as the machine can."""
    pauses: list[float] = []
    stop = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    informer = Informer(CONFIG_MAP, namespaces=("default",))
    source = asyncio.create_task(
        KopfSource(client.config, client, pause=pause).run([informer], stop)
    )
    async with asyncio.timeout(120):
        while len(pauses) < 4:
            api.watches.cut(CONFIG_MAP)
            await asyncio.sleep(0.001)
    stop.set()
    await source

    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]


async def test_changes_arrive_completely_and_in_order(api: FakeApi, client: Client) -> None:
    """Kopf batched events and could drop the last; a raw handler sees each."""
    api.create(build_config_map("a"))
    async with watching(client) as watcher:
        await until(lambda: watcher.informer.synced)
        for number in range(30):
            api.patch(CONFIG_MAP, Key("default", "a"), {"data": {"n": str(number)}})

        def last() -> bool:
            held = watcher.informer.store.get(Key("default", "a"))
            return held is not None and held.get("data") == {"n": "29"}

        await until(last)


async def test_token_that_was_rotated_is_taken_up() -> None:
    """Kopf keeps the header of a session for as long as it is not refused."""
    token, stop = "old", asyncio.Event()

    async def authorization() -> str:
        return f"Bearer {token}"

    async with FakeApi(token="old") as api:
        config = replace(api.config, authorization=authorization)
        informer = Informer(CONFIG_MAP, namespaces=("default",))
        client = Client(config, user_agent="test")
        source = asyncio.create_task(KopfSource(config, client).run([informer], stop))
        await until(lambda: api.watches.count(CONFIG_MAP))
        api._frontend.token = token = "new"
        api.watches.cut(CONFIG_MAP)
        await until(lambda: api.watches.count(CONFIG_MAP) == 0)
        api.create(build_config_map("later"))

        await until(lambda: len(informer.store))
        stop.set()
        await source
        await client.close()


@pytest.mark.apiserver
async def test_real_api_server_accepts_what_kopf_asks(kube_apiserver: ControlPlane) -> None:
    """The real server is stricter than a fake one, for instance about whole seconds."""
    async with Client(kube_apiserver.config, user_agent="test") as client:
        async with watching(client) as watcher:
            await until(lambda: watcher.informer.synced)
            await client.create(CONFIG_MAP, build_config_map("kopf-source"))

            await until(lambda: "kopf-source" in watcher.seen)
            held = watcher.informer.store.get(Key("default", "kopf-source"))
            assert held is not None
            await client.delete(
                CONFIG_MAP, Key("default", "kopf-source"), uid=held["metadata"]["uid"]
            )
            await until(lambda: watcher.gone == ["kopf-source"])


async def test_watcher_that_lost_a_cancellation_ends_with_kopf() -> None:
    """Kopf cancels its watchers once and waits for them without a limit.

    After one watcher has failed, for example by an HTTP 410, others can lose that cancellation.
    """

    async def lose_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    exiting = asyncio.Event()
    ending = asyncio.create_task(end_watchers(exiting))
    watcher = asyncio.create_task(lose_one(), name="watcher for things")
    other = asyncio.create_task(asyncio.Event().wait(), name="other")
    await turns()
    assert not watcher.done()
    watcher.cancel()  # As kopf does when it exits.
    exiting.set()
    await asyncio.wait({watcher}, timeout=60)

    assert watcher.cancelled()
    assert not other.done()
    for task in (ending, other):
        task.cancel()
