"""The manager: the order in which a process begins and ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from libs.common.kinds import CONFIG_MAP, LEASE, Key, Kind, Manifest
from libs.common.metrics import Metrics
from libs.common.runtime import Context, Controller, Operator, Result, manager
from libs.common.runtime.wiring import build_cache
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import advance_until, turns, until
from libs.common.testing.widget import OPERATOR, WIDGET, Settings, build_widget

KEY = Key("default", "w")
LEASE_KEY = Key("default", "widget")
ELECTION: dict[str, Any] = {
    "leader_elect": True,
    "lease_duration_seconds": 60,
    "renew_deadline_seconds": 40,
    "retry_period_seconds": 0.05,
    "source": "reflector",
}
GADGET = Kind("test.slipway.dev", "v1", "Gadget", "gadgets")


async def probe(harness: OperatorHarness, path: str) -> int:
    """Return the status of a probe."""
    url = f"http://127.0.0.1:{harness.manager.health.probe_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status


def depths(harness: OperatorHarness) -> set[float]:
    """Return the depths of the queues, by priority."""
    families = harness.manager.metrics.registry.collect()
    return {
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "workqueue_depth"
    }


def start(api: FakeApi, operator: Operator = OPERATOR, **settings: Any) -> OperatorHarness:
    """Build a replica that is not started."""
    return OperatorHarness(operator, api.config, **{"source": "reflector", **settings})


def launch(harness: OperatorHarness) -> asyncio.Task[bool]:
    """Start a replica without waiting for anything."""
    stop = harness._stop
    task = asyncio.create_task(harness.manager.run(stop))
    harness._task = task
    return task


async def is_serving(harness: OperatorHarness) -> None:
    await until(lambda: harness.manager.health.probe_port, "the probes answer")


# The beginning.


async def test_probes_answer_while_the_kinds_and_caches_are_waited_for(fake_api: FakeApi) -> None:
    clock = FakeClock()
    harness = OperatorHarness(OPERATOR, fake_api.config, clock=clock, source="reflector")
    launch(harness)
    await is_serving(harness)
    assert (await probe(harness, "/healthz"), await probe(harness, "/readyz")) == (200, 500)

    held = fake_api.hang("list", WIDGET)
    fake_api.register(WIDGET)
    await advance_until(clock, lambda: held.hits)
    assert (await probe(harness, "/healthz"), await probe(harness, "/readyz")) == (200, 500)

    held.release()
    await until(harness.manager.working.is_set)
    assert await probe(harness, "/readyz") == 200
    assert await harness.stop()
    await harness.client.close()


async def test_caches_that_do_not_fill_end_the_process(fake_api: FakeApi) -> None:
    fake_api.register(WIDGET)
    fake_api.fail("list", WIDGET, status=500, times=None)
    harness = start(fake_api, cache_sync_timeout_seconds=0.1)
    task = launch(harness)

    assert not await asyncio.wait_for(task, 120)
    await harness.client.close()


async def test_stop_is_heard_while_kinds_are_waited_for(fake_api: FakeApi) -> None:
    harness = start(fake_api)
    launch(harness)
    await is_serving(harness)

    assert await harness.stop()
    await harness.client.close()


async def test_source_that_fails_ends_the_process(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_api.register(WIDGET)
    async with start(fake_api) as harness:
        # A frame that is no object: a bug of ours or of the server.
        monkeypatch.setattr(harness.manager.cache.informer(WIDGET), "put", _break)
        fake_api.create(build_widget())

        assert not await harness.ended()


def _break(_: Manifest) -> Manifest:
    raise LookupError("broken")


async def test_version_is_told_in_the_metrics(fake_api: FakeApi) -> None:
    fake_api.register(WIDGET)
    operator = Operator("widget", OPERATOR.controllers, settings=Settings, version="v1.2.3")
    async with start(fake_api, operator) as harness:
        labels = {"operator": "widget", "version": "v1.2.3"}
        assert harness.metric("operator_build_info", **labels) == 1


async def test_reconciler_counts_in_the_metrics_of_the_process(fake_api: FakeApi) -> None:
    async def count(ctx: Context) -> None:
        seen.append(ctx.metrics)

    seen: list[Metrics] = []
    async with running(fake_api, Script(count)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert seen == [harness.manager.metrics]


# Several controllers.


def build_gadget_controller(script: Script) -> Any:
    def build(_: Settings) -> Controller:
        return Controller(
            "gadget", primary=GADGET, reconcile=script.reconcile, source="reflector"
        ).watches(
            CONFIG_MAP,
            lambda manifest, _: [Key(manifest["metadata"]["namespace"], "g")],
            indexes={"name": lambda manifest: [manifest["metadata"]["name"]]},
        )

    return build


async def test_controllers_share_an_informer_and_hear_of_each_others_writes(
    fake_api: FakeApi,
) -> None:
    script = Script()
    operator = Operator(
        "widget", (*OPERATOR.controllers, build_gadget_controller(script)), settings=Settings
    )
    fake_api.register(WIDGET)
    fake_api.register(GADGET)
    fake_api.create({**build_widget("g"), "kind": GADGET.kind})
    async with start(fake_api, operator) as harness:
        await harness.converged()
        watches = fake_api.requests.select("watch", CONFIG_MAP)
        before = script.count["g"]
        fake_api.create(build_widget(count=1))
        await harness.converged()

        assert len(watches) == 1
        assert script.count["g"] > before, "nobody told of what the other controller made"
        store = harness.manager.cache.store(CONFIG_MAP)
        assert len(store.indexed("name", "w-0")) == 1


def test_watches_of_a_kind_must_agree() -> None:
    async def nothing(_: Context) -> Result | None:
        return None

    one = Controller("one", WIDGET, nothing).owns(CONFIG_MAP, label_selector="a=b")
    two = Controller("two", GADGET, nothing).owns(CONFIG_MAP)

    with pytest.raises(ValueError, match="label_selector"):
        build_cache([one, two], (), FakeClock(), Metrics())


def test_finalizer_and_finalize_go_together() -> None:
    async def nothing(_: Context) -> Result | None:
        return None

    with pytest.raises(ValueError, match="set both finalize and finalizer"):
        Controller("one", WIDGET, nothing, finalizer="a/b")


async def test_resync_asks_for_every_object(fake_api: FakeApi) -> None:
    script, clock = Script(), FakeClock()
    async with running(fake_api, script, clock=clock, resync_period_seconds=100.0):
        fake_api.create(build_widget())
        await until(lambda: script.count["w"] == 1)

        moved = await advance_until(clock, lambda: script.count["w"] == 2)

        assert 90 <= moved <= 110


async def test_silent_watch_fails_the_health_check(fake_api: FakeApi) -> None:
    clock = FakeClock()
    async with running(fake_api, Script(), clock=clock, sweep_period_seconds=0.0) as harness:
        assert await probe(harness, "/healthz") == 200
        clock.advance(1000.0)

        assert await probe(harness, "/healthz") == 500


# The end.


async def test_running_pass_is_finished_before_the_lease_is_given_back(fake_api: FakeApi) -> None:
    gate = asyncio.Event()

    async def slow(ctx: Context) -> None:
        await gate.wait()
        await ctx.apply_status({"made": 1})

    script = Script(slow)
    options = {**ELECTION, "drain_timeout_seconds": 10}
    async with running(fake_api, script, **options) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.at_work["w"])
        stopping = asyncio.create_task(harness.stop())
        await turns()
        assert await probe(harness, "/healthz") == 200
        lease = fake_api.get(LEASE, LEASE_KEY)
        assert lease["spec"]["holderIdentity"], "given back before the work was done"
        gate.set()

        assert await stopping
    assert fake_api.get(WIDGET, KEY)["status"] == {"made": 1}
    assert not fake_api.get(LEASE, LEASE_KEY)["spec"].get("holderIdentity")
    writes = [each.kind for each in fake_api.writes()]
    assert writes.index(WIDGET) < len(writes) - 1 - writes[::-1].index(LEASE)


@pytest.mark.parametrize("crash", [False, True])
async def test_what_passes_kept_open_is_closed_after_the_last(
    fake_api: FakeApi, crash: bool
) -> None:
    order: list[str] = []

    async def slow(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("pass ended")

    async def close() -> None:
        order.append("closed")
        raise OSError("it was closed already")

    def build(settings: Settings) -> Controller:
        return replace(script.build_controller(settings), close=close)

    script = Script(slow)
    fake_api.register(WIDGET)
    operator = Operator("widget", (build,), settings=Settings)
    async with start(fake_api, operator, drain_timeout_seconds=0.1) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.at_work["w"])
        await (harness.kill() if crash else harness.stop())

        assert order == ["pass ended", "closed"]


async def test_close_that_hangs_keeps_no_lease(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close() -> None:
        await asyncio.Event().wait()

    def build(settings: Settings) -> Controller:
        return replace(Script().build_controller(settings), close=close)

    monkeypatch.setattr(manager, "_CLOSE_SECONDS", 0.05)
    fake_api.register(WIDGET)
    operator = Operator("widget", (build,), settings=Settings)
    async with start(fake_api, operator, **ELECTION) as harness:
        assert await asyncio.wait_for(harness.stop(), 5)
    assert not fake_api.get(LEASE, LEASE_KEY)["spec"].get("holderIdentity")


async def test_pass_that_does_not_end_is_cut_after_the_drain(fake_api: FakeApi) -> None:
    async def forever(ctx: Context) -> None:
        await asyncio.Event().wait()

    script = Script(forever)
    async with running(fake_api, script, drain_timeout_seconds=0.1) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.at_work["w"])

        assert await asyncio.wait_for(harness.stop(), 5)
    assert script.count["w"] == 1


async def test_lost_lease_ends_the_process_and_nothing_is_written_after(
    fake_api: FakeApi,
) -> None:
    gate = asyncio.Event()

    async def late(ctx: Context) -> None:
        await gate.wait()
        await ctx.apply_status({"made": 1})

    script = Script(late)
    async with running(fake_api, script, **ELECTION) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.at_work["w"])
        await harness.lose_lease()
        await until(lambda: not harness.manager.elector.is_leader())
        gate.set()

        assert not await harness.ended()
    assert "status" not in fake_api.get(WIDGET, KEY)
    assert fake_api.writes(kind=WIDGET) == []


# Standing by.


async def test_standby_is_ready_with_warm_caches_and_does_nothing(fake_api: FakeApi) -> None:
    fake_api.register(WIDGET)
    async with start(fake_api, **ELECTION) as leader:
        standby = start(fake_api, **ELECTION)
        await standby.start(wait=False)
        fake_api.create(build_widget())
        await leader.converged()
        await until(lambda: len(standby.manager.cache.store(CONFIG_MAP)) == 2)

        assert await probe(standby, "/readyz") == 200
        assert not standby.manager.working.is_set()
        assert standby.metric("controller_runtime_reconcile_total", result="success") == 0
        assert [len(runner.queue) for runner in standby.manager.runners] == [0], "kept for nobody"
        assert depths(standby) == {0.0}
        assert await standby.stop()
        await standby.client.close()


async def test_new_leader_catches_up_before_its_first_write(fake_api: FakeApi) -> None:
    """What the last leader made in its last moment has not reached the standby's watch."""
    fake_api.register(WIDGET)
    async with start(fake_api, **ELECTION) as leader:
        standby = start(fake_api, **ELECTION)
        await standby.start(wait=False)
        fake_api.create(build_widget(count=1))
        await leader.converged()
        await until(lambda: len(standby.manager.cache.store(CONFIG_MAP)) == 1)
        for kind in (WIDGET, CONFIG_MAP):
            fake_api.watches.pause(kind)
        made = fake_api.get(CONFIG_MAP, ("default", "w-0"))
        fake_api.patch(CONFIG_MAP, ("default", "w-0"), {"data": {"theirs": "yes"}})
        fake_api.vanish(WIDGET, KEY)
        mark = fake_api.mark()
        await leader.stop()
        await standby.eventually(standby.manager.working.is_set, "the standby works")
        await standby.idle()

        store = standby.manager.cache.store(CONFIG_MAP)
        held = store.get(Key("default", "w-0"))
        assert held is not None or fake_api.find(CONFIG_MAP, ("default", "w-0")) is None
        assert standby.manager.cache.store(WIDGET).get(KEY) is None
        ours = [each for each in fake_api.writes(mark) if each.kind in (WIDGET, CONFIG_MAP)]
        assert ours == [], f"acted on a stale view of {made['metadata']['name']}"
        for kind in (WIDGET, CONFIG_MAP):
            fake_api.watches.resume(kind)
        await standby.stop()
        await standby.client.close()
