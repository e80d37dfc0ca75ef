"""The sweep over HTTP: what a lossy source missed is found, and nothing else is touched."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.client import Client
from libs.common.errors import ServerError
from libs.common.kinds import CONFIG_MAP, Key, Manifest, build_object, uid_of
from libs.common.metrics import Metrics
from libs.common.runtime.informer import Informer, SourceName
from libs.common.runtime.listing import StorageRolledBack, list_scope
from libs.common.runtime.store import Change
from libs.common.runtime.sweep import Sweeper
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import advance_until, turns, until
from libs.common.testing.writing import fill_scope

KEY = Key("default", "a")


def build_map(name: str = "a", **labels: str) -> Manifest:
    return build_object(CONFIG_MAP, name, "default", metadata={"labels": labels})


class Bench:
    """A store that no source feeds, a sweeper, and a clock."""

    def __init__(
        self,
        api: FakeApi,
        client: Client,
        *,
        selector: str = "",
        source: SourceName = "kopf",
        period: float = 600.0,
    ) -> None:
        self.api = api
        self.client = client
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.informer = Informer(
            CONFIG_MAP,
            namespaces=("default",),
            label_selector=selector,
            source=source,
            clock=self.clock,
            metrics=self.metrics.cache("configmaps"),
        )
        self.reported: list[Change] = []
        self.informer.add_handler(lambda change, *_: self.reported.append(change))
        self.sweeper = Sweeper(client, period=period, clock=self.clock, rng=lambda: 0.5)

    async def sweep(self) -> int:
        """Sweep, moving the clock over the time that the source is given."""
        task = asyncio.create_task(self.sweeper.sweep(self.informer))
        await advance_until(self.clock, task.done)
        return await task

    def make(self, name: str = "a", **labels: str) -> Manifest:
        """Make an object that the store knows of."""
        made = self.api.create(build_map(name, **labels))
        self.informer.put(made)
        return made

    def lists(self) -> int:
        return len(self.api.requests.select("list", CONFIG_MAP))


@pytest.fixture
def bench(fake_api: FakeApi, fake_client: Client) -> Bench:
    return Bench(fake_api, fake_client)


async def test_missed_deletion_is_found_told_and_counted(bench: Bench) -> None:
    bench.make("a")
    bench.make("b")
    bench.reported.clear()
    bench.api.vanish(CONFIG_MAP, KEY)

    assert await bench.sweep() == 1

    assert [(change.key.name, change.new) for change in bench.reported] == [("a", None)]
    assert [key.name for key in bench.informer.store] == ["b"]
    assert bench.metrics.value("operator_cache_swept_total", resource="configmaps") == 1


async def test_sweep_that_finds_nothing_reads_metadata_once(bench: Bench) -> None:
    bench.make()
    bench.reported.clear()

    assert await bench.sweep() == 0

    (request,) = bench.api.requests
    assert "PartialObjectMetadata" in request.accept
    assert bench.reported == []


async def test_sweep_does_not_hide_that_kopf_stopped_watching(bench: Bench) -> None:
    bench.informer.mark_synced("default")
    bench.clock.advance(1000)
    bench.api.create(build_map())

    assert await bench.sweep() == 1
    assert bench.informer.silence >= 1000


async def test_missing_object_is_read_after_a_grace(bench: Bench) -> None:
    bench.api.create(build_map())

    await bench.sweep()

    assert bench.informer.store.get(KEY) is not None
    assert bench.clock.monotonic() >= 2.0, "the source had no time to deliver it"


async def test_stale_object_is_read_again(bench: Bench) -> None:
    bench.make()
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}})

    await bench.sweep()

    assert (bench.informer.store.get(KEY) or {})["data"] == {"x": "1"}


async def test_what_a_watch_did_not_tell_is_counted_once_the_cache_was_filled(bench: Bench) -> None:
    bench.make("a")
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}})
    assert await bench.sweep() == 0, "a cache that is being filled has missed nothing yet"

    bench.informer.mark_synced("default")
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"x": "2"}})
    bench.api.create(build_map("b"))
    assert await bench.sweep() == 2
    assert bench.metrics.value("operator_cache_swept_total", resource="configmaps") == 2


async def test_object_that_the_source_delivers_in_time_is_not_read(bench: Bench) -> None:
    made = bench.api.create(build_map())
    task = asyncio.create_task(bench.sweeper.sweep(bench.informer))
    await until(lambda: bench.clock.next_due() is not None)
    bench.informer.put(made)
    await advance_until(bench.clock, task.done)

    assert bench.api.requests.select("get", CONFIG_MAP) == []


async def test_object_that_comes_while_others_are_read_is_not_read(bench: Bench) -> None:
    """A source that fills a large cache for the first time is late, and continues meanwhile."""
    first, second = (bench.api.create(build_map(name)) for name in ("a", "b"))
    held = bench.api.hang("get", CONFIG_MAP)
    task = asyncio.create_task(bench.sweeper.sweep(bench.informer))
    await advance_until(bench.clock, lambda: bench.api.requests.select("get", CONFIG_MAP))
    bench.informer.put(first)
    bench.informer.put(second)
    held.release()
    await task

    assert len(bench.api.requests.select("get", CONFIG_MAP)) == 1


async def test_namesake_takes_the_place_of_what_is_gone(bench: Bench) -> None:
    old = bench.make()
    bench.api.vanish(CONFIG_MAP, KEY)
    new = bench.api.create(build_map())

    await bench.sweep()

    assert uid_of(bench.informer.store.get(KEY) or {}) == uid_of(new) != uid_of(old)


async def test_object_that_lost_its_label_is_gone_and_comes_back_with_it(
    fake_api: FakeApi, fake_client: Client
) -> None:
    bench = Bench(fake_api, fake_client, selector="app=x")
    bench.make(app="x")
    fake_api.patch(CONFIG_MAP, KEY, {"metadata": {"labels": {"app": None}}})

    assert await bench.sweep() == 1
    assert bench.informer.store.get(KEY) is None

    fake_api.patch(CONFIG_MAP, KEY, {"metadata": {"labels": {"app": "x"}}})
    await bench.sweep()
    assert bench.informer.store.get(KEY) is not None


async def test_object_that_is_written_during_the_listing_stays(bench: Bench) -> None:
    held = bench.api.hang("list", committed=True)
    task = asyncio.create_task(bench.sweeper.sweep(bench.informer))
    await until(lambda: bench.lists() == 1)
    bench.make()
    held.release()
    await advance_until(bench.clock, task.done)

    assert bench.informer.store.get(KEY) is not None


async def test_storage_that_was_set_back_ends_the_process(bench: Bench) -> None:
    """Nothing that it tells is newer than what the cache holds: it would be deaf for days."""
    made = bench.make()
    ahead = int(made["metadata"]["resourceVersion"]) + 1000
    held = {**made, "metadata": {**made["metadata"], "resourceVersion": str(ahead)}}
    bench.informer.put(held)

    with pytest.raises(StorageRolledBack, match=f"configmaps.*{ahead}"):
        await bench.sweep()


@pytest.mark.parametrize("lists", [True, False], ids=["listing", "sweep"])
async def test_object_that_is_older_than_it_was_ends_the_process(bench: Bench, lists: bool) -> None:
    """After a restore, other changes can bring the server to a later version than before."""
    made = bench.make()
    for _ in range(10):
        bench.api.create(build_map("other"))
        bench.api.vanish(CONFIG_MAP, Key("default", "other"))
    seen = int(made["metadata"]["resourceVersion"]) + 5
    bench.informer.put({**made, "metadata": {**made["metadata"], "resourceVersion": str(seen)}})

    with pytest.raises(StorageRolledBack, match=f"default/a is at version .* but {seen} was seen"):
        await (list_scope(bench.client, bench.informer, "default") if lists else bench.sweep())


async def test_object_whose_deletion_was_undone_ends_the_process(bench: Bench) -> None:
    made = bench.make()
    bench.informer.observe_deleted(KEY, uid_of(made))

    with pytest.raises(StorageRolledBack, match="default/a exists, but its deletion was seen"):
        await bench.sweep()


async def test_object_that_is_gone_before_it_is_read_is_left_out(bench: Bench) -> None:
    bench.api.create(build_map())
    bench.api.fail("get", status=404, times=None)

    await bench.sweep()

    assert len(bench.informer.store) == 0


async def test_failing_sweep_tells_its_caller(bench: Bench) -> None:
    bench.api.fail("list", status=500)

    with pytest.raises(ServerError):
        await bench.sweep()


# From time to time.


async def test_sweeps_begin_a_period_after_the_first_listing(bench: Bench) -> None:
    keeping = asyncio.create_task(bench.sweeper.keep(bench.informer))
    await turns()
    assert bench.clock.next_due() is None, "the source has not listed yet"

    fill_scope(bench.informer, [], 1, "default")
    await until(lambda: bench.clock.next_due() is not None)
    assert bench.clock.next_due() == pytest.approx(600)
    await advance_until(bench.clock, lambda: bench.lists() == 2)
    keeping.cancel()


async def test_failing_sweep_is_tried_again_after_growing_pauses(bench: Bench) -> None:
    fill_scope(bench.informer, [], 1, "default")
    bench.api.fail("list", status=500, times=3)
    keeping = asyncio.create_task(bench.sweeper.keep(bench.informer))

    moved = await advance_until(bench.clock, lambda: bench.lists() == 4)

    assert 600 + 0.8 * (5 + 10 + 20) <= moved <= 600 + 5 + 10 + 20
    keeping.cancel()


async def test_period_of_zero_disables_sweeps(fake_api: FakeApi, fake_client: Client) -> None:
    bench = Bench(fake_api, fake_client, period=0.0)
    fill_scope(bench.informer, [], 1, "default")
    keeping = asyncio.create_task(bench.sweeper.keep(bench.informer))
    await turns(200)

    assert bench.lists() == 0
    keeping.cancel()


async def test_kind_that_is_not_served_is_not_asked_for(bench: Bench) -> None:
    fill_scope(bench.informer, [], 1, "default")
    bench.informer.served = False
    keeping = asyncio.create_task(bench.sweeper.keep(bench.informer))
    await until(lambda: bench.clock.next_due() is not None)
    bench.clock.advance(700)
    await turns(50)

    assert bench.lists() == 0
    keeping.cancel()


async def test_many_objects_behind_are_listed_and_not_read_one_by_one(bench: Bench) -> None:
    for number in range(250):
        bench.api.create(build_map(f"c{number}"))

    await bench.sweep()

    assert len(bench.informer.store) == 250
    assert bench.api.requests.select("get", CONFIG_MAP) == []


async def test_source_that_still_delivers_is_waited_for(bench: Bench) -> None:
    made = [bench.api.create(build_map(f"c{number}")) for number in range(4)]
    task = asyncio.create_task(bench.sweeper.sweep(bench.informer))
    for manifest in made:
        for _ in range(30):  # 1.5 s, of a grace of 2 s since the last one came.
            await until(lambda: bench.clock.next_due() is not None)
            bench.clock.advance(0.05)
            await turns(5)
        bench.informer.put(manifest)
    await advance_until(bench.clock, task.done)

    assert bench.api.requests.select("get", CONFIG_MAP) == []


async def test_missed_change_is_found_among_versions_that_are_no_numbers(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.use_opaque_versions()
    bench = Bench(fake_api, fake_client)
    fake_api.create(build_map())
    async for page in fake_client.pages(CONFIG_MAP, "default"):
        bench.informer.notify(
            [each for item in page.items if (each := bench.informer.store.put(item))]
        )
    bench.informer.mark_synced("default")
    fake_api.patch(CONFIG_MAP, KEY, {"data": {"text": "new"}})

    assert await bench.sweep() == 1
    assert (bench.informer.store.get(KEY) or {})["data"] == {"text": "new"}
    assert await bench.sweep() == 0, "equal versions are the same version"
