"""Projections of the cache, and passes that ask for passes of another controller."""

from __future__ import annotations

from typing import ClassVar

import pytest

from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object
from libs.common.metrics import Metrics
from libs.common.plan import Create
from libs.common.runtime import Context, Controller, Operator, Result
from libs.common.runtime.store import Change
from libs.common.runtime.wiring import build_cache
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import until
from libs.common.testing.widget import WIDGET, Settings, build_config_map, build_widget


class Names:
    """Keep the names of all ConfigMaps."""

    kinds: ClassVar[tuple[Kind, ...]] = (CONFIG_MAP,)

    def __init__(self) -> None:
        self.held: set[str] = set()

    def changed(self, change: Change) -> None:
        self.held.discard(change.key.name)
        if change.new is not None:
            self.held.add(change.key.name)


async def test_projection_is_as_new_as_the_cache_within_a_pass(fake_api: FakeApi) -> None:
    seen: list[set[str]] = []

    async def reconcile(ctx: Context) -> Result | None:
        names = ctx.projection(Names)
        seen.append(set(names.held))
        await ctx.execute([Create(CONFIG_MAP, build_config_map(ctx, 0))])
        seen.append(set(names.held))
        return None

    def build(_: Settings) -> Controller:
        controller = Controller("widget", primary=WIDGET, reconcile=reconcile, source="reflector")
        return controller.owns(CONFIG_MAP, source="reflector").projects(Names)

    fake_api.register(WIDGET)
    async with OperatorHarness(
        Operator("widget", (build,), settings=Settings), fake_api.config
    ) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        assert seen[:2] == [set(), {"w-0"}]

        fake_api.delete(CONFIG_MAP, ("default", "w-0"))
        await until(lambda: len(seen) == 4)
        assert seen[2:] == [set(), {"w-0"}]
        await harness.restart()
        await harness.converged()
        assert seen[-1] == {"w-0"}, "a new process has a projection of its own"


def test_projection_is_shared_by_the_controllers_that_name_it() -> None:
    async def reconcile(_: Context) -> None: ...

    controllers = [
        Controller(name, primary=WIDGET, reconcile=reconcile).owns(CONFIG_MAP).projects(Names)
        for name in ("one", "two")
    ]
    cache = build_cache(controllers, (), FakeClock(), Metrics())

    assert cache.projection(Names) is cache.projection(Names)
    metadata = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    cache.informer(CONFIG_MAP).put({"metadata": metadata})
    assert cache.projection(Names).held == {"a"}


def test_projection_that_nobody_declares_is_named_with_what_to_do() -> None:
    async def reconcile(_: Context) -> None: ...

    controller = Controller("one", primary=WIDGET, reconcile=reconcile)
    cache = build_cache([controller], (), FakeClock(), Metrics())

    with pytest.raises(KeyError, match=r"Names is not cached; name it in projects"):
        cache.projection(Names)


async def test_pass_may_ask_for_passes_of_another_controller(fake_api: FakeApi) -> None:
    woken: list[Key] = []

    async def wake(ctx: Context) -> Result | None:
        ctx.wake(CONFIG_MAP, [Key("default", "a"), Key("default", "gone")])
        return None

    async def reconcile(ctx: Context) -> Result | None:
        woken.append(ctx.key)
        return None

    script = Script(wake)

    def build(_: Settings) -> Controller:
        return Controller("map", primary=CONFIG_MAP, reconcile=reconcile, source="reflector")

    fake_api.register(WIDGET)
    fake_api.create(build_map("a"))
    operator = Operator("widget", (script.build_controller, build), settings=Settings)
    async with OperatorHarness(operator, fake_api.config) as harness:
        await harness.converged()
        woken.clear()
        fake_api.create(build_widget())
        await until(lambda: woken)
        await harness.converged()

    assert set(woken) == {Key("default", "a")}, "an object that is gone has no pass"


async def test_namespace_is_watched_or_not(fake_api: FakeApi) -> None:
    seen: dict[str, bool] = {}

    async def look(ctx: Context) -> Result | None:
        for namespace in ("default", "other"):
            seen[namespace] = ctx.is_watched(CONFIG_MAP, namespace)
        return None

    async with running(fake_api, Script(look), watch_namespaces=("default",)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

    assert seen == {"default": True, "other": False}


def build_map(name: str) -> Manifest:
    return build_object(CONFIG_MAP, name, "default")
