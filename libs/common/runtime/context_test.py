"""The context of a reconcile writes a status once and does not miss changes of others."""

from __future__ import annotations

import pytest

from libs.common.conditions import Condition, build_conditions, conditions_of
from libs.common.errors import ServerError
from libs.common.kinds import (
    CONFIG_MAP,
    CRD,
    EVENT,
    NODE,
    POD,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
)
from libs.common.runtime import Context, Controller, Operator, Result, informer
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import until
from libs.common.testing.widget import CONDITIONS, WIDGET, Settings, build_widget

KEY = Key("default", "w")


async def state(ctx: Context) -> Result | None:
    """Report the same condition in each reconcile, as a reconciler in sync does."""
    held = (ctx.primary.get("status") or {}).get("conditions") or []
    ours = build_conditions(held, [Condition.true("Ready", "Done")], generation=1, now=ctx.now())
    await ctx.apply_status({"made": 1, "empty": "", "conditions": ours})
    return None


async def test_equal_status_is_not_written_again(fake_api: FakeApi) -> None:
    script = Script(state)
    async with running(fake_api, script) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        fake_api.patch(WIDGET, KEY, {"metadata": {"annotations": {"touched": "yes"}}})
        await until(lambda: script.count["w"] == 2)
        await harness.converged()

    assert len(fake_api.writes(0, WIDGET, "status")) == 1


async def test_conditions_of_others_neither_go_nor_make_us_write(fake_api: FakeApi) -> None:
    script = Script(state)
    async with running(fake_api, script) as harness:
        # A list of conditions is a map by type, as in each generated CRD.
        crd = build_crd(WIDGET, CONDITIONS, ("status",))
        fake_api.patch(CRD, key_of(crd), {"spec": crd["spec"]})
        fake_api.create(build_widget())
        await harness.converged()
        ours = fake_api.get(WIDGET, KEY)["status"]["conditions"]
        theirs = {**ours[0], "type": "Theirs"}
        fake_api.patch_status(WIDGET, KEY, {"conditions": [theirs, *ours]})
        mark = fake_api.mark()
        await until(lambda: script.count["w"] == 2)
        await harness.converged()
        fake_api.patch(WIDGET, KEY, {"metadata": {"annotations": {"touched": "yes"}}})
        await until(lambda: script.count["w"] == 3)
        await harness.converged()

        assert len(fake_api.writes(mark, WIDGET, "status")) <= 1, "asked whose it is, once"
        kept = conditions_of(fake_api.get(WIDGET, KEY))
        assert sorted(each["type"] for each in kept) == ["Ready", "Theirs"]


async def test_condition_that_is_not_stated_any_more_goes_also_after_a_restart(
    fake_api: FakeApi,
) -> None:
    async def tell(ctx: Context) -> Result | None:
        held = conditions_of(ctx.primary)
        stated = [Condition.true("Ready", "Done")]
        if ctx.primary["spec"].get("text") == "busy":
            stated.append(Condition.true("Busy", "AtWork"))
        ours = build_conditions(held, stated, generation=1, now=ctx.now())
        await ctx.apply_status({"conditions": ours})
        return None

    def types() -> list[str]:
        return [each["type"] for each in conditions_of(fake_api.get(WIDGET, KEY))]

    async with running(fake_api, Script(tell)) as harness:
        for restart in (False, True):
            fake_api.create(build_widget(text="busy"))
            await harness.converged()
            assert types() == ["Ready", "Busy"]
            if restart:
                await harness.restart()
            fake_api.patch(WIDGET, KEY, {"spec": {"text": "idle"}})
            await harness.converged()
            assert types() == ["Ready"]
            fake_api.delete(WIDGET, KEY)
            await harness.converged()


async def test_own_status_asks_for_no_further_pass(fake_api: FakeApi) -> None:
    script = Script(state)
    async with running(fake_api, script) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert script.count["w"] == 1


@pytest.mark.parametrize("what", ["spec", "deletion"])
async def test_change_that_only_the_answer_to_our_write_tells_of_is_not_missed(
    fake_api: FakeApi, what: str
) -> None:
    """The user writes while our status is on its way; its event is old news when it comes."""

    async def look(ctx: Context) -> Result | None:
        seen.append(ctx.primary)
        if len(seen) == 1:
            fake_api.watches.pause(WIDGET)
            if what == "spec":
                fake_api.patch(WIDGET, KEY, {"spec": {"text": "changed"}})
            else:
                fake_api.delete(WIDGET, KEY)
        await ctx.apply_status({"made": 1})
        fake_api.watches.resume(WIDGET)
        return None

    seen: list[Manifest] = []
    async with running(fake_api, Script(look), finalizer=True) as harness:
        fake_api.create(build_widget())
        await until(lambda: len(seen) == 2)
        await harness.converged()

    if what == "spec":
        assert seen[1]["spec"]["text"] == "changed"
    else:
        assert seen[1]["metadata"]["deletionTimestamp"]
        assert fake_api.find(WIDGET, KEY) is None


async def test_status_of_an_object_that_is_gone_is_no_error(fake_api: FakeApi) -> None:
    async def late(ctx: Context) -> Result | None:
        fake_api.vanish(WIDGET, KEY)
        written.append(await ctx.apply_status({"made": 1}))
        return None

    written: list[bool] = []
    async with running(fake_api, Script(late)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert written == [False]
        assert harness.metric("controller_runtime_reconcile_errors_total", controller="widget") == 0


async def test_status_of_a_namesake_is_not_touched(fake_api: FakeApi) -> None:
    async def late(ctx: Context) -> Result | None:
        if not script.count:
            fake_api.watches.pause(WIDGET)
            fake_api.vanish(WIDGET, KEY)
            fake_api.create(build_widget(text="another"))
            try:
                await ctx.apply_status({"made": 1})
            finally:
                refused.append(fake_api.get(WIDGET, KEY))
                fake_api.watches.resume(WIDGET)
        return None

    refused: list[Manifest] = []
    script = Script(late)
    async with running(fake_api, script) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.count["w"] >= 2)
        await harness.converged()

    assert "status" not in refused[0]


async def test_cache_and_server_can_be_asked(fake_api: FakeApi) -> None:
    async def look(ctx: Context) -> Result | None:
        key = Key("default", "settings")
        held = ctx.get(CONFIG_MAP, key)
        assert held is not None
        assert ctx.list(CONFIG_MAP) == [held]
        assert sorted(map(key_of, ctx.list(CONFIG_MAP, "*"))) == [key, Key("other", "far")]
        assert ctx.list(CONFIG_MAP, selector={"matchLabels": {"app": "y"}}) == []
        live = await ctx.live_get(CONFIG_MAP, key)
        assert live is not None
        assert live["data"] == held["data"]
        assert await ctx.live_get(CONFIG_MAP, Key("default", "none")) is None
        assert ctx.children(CONFIG_MAP) == []
        assert ctx.is_served(CONFIG_MAP)
        with pytest.raises(KeyError, match="not watched"):
            ctx.get(POD, key)
        fake_api.fail("get", status=500)
        with pytest.raises(ServerError):
            await ctx.live_get(CONFIG_MAP, key)
        looked.append(True)
        return None

    looked: list[bool] = []
    fake_api.create(
        build_object(
            CONFIG_MAP, "settings", "default", metadata={"labels": {"app": "x"}}, data={"a": "b"}
        )
    )
    fake_api.create(build_object(CONFIG_MAP, "far", "other"))
    async with running(fake_api, Script(look), watch_namespaces="*") as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert looked == [True]


# Children of a primary that is gone.


async def test_kind_without_namespaces_is_listed_whole_from_a_namespaced_primary(
    fake_api: FakeApi,
) -> None:
    seen: list[str] = []

    async def look(ctx: Context) -> Result | None:
        seen.extend(node["metadata"]["name"] for node in ctx.list(NODE))
        return None

    script = Script(look)
    fake_api.register(WIDGET)
    fake_api.create(build_object(NODE, "n"))
    fake_api.create(build_widget())

    def build(settings: Settings) -> Controller:
        controller = script.build_controller(settings)
        return controller.reads(NODE, source="reflector")

    operator = Operator("widget", (build,), settings=Settings)
    async with OperatorHarness(operator, fake_api.config) as harness:
        await harness.converged()

    assert seen == ["n"]


async def test_kind_that_comes_to_be_served_or_goes_is_a_reason_to_look(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object shows it, and a condition that names the kind would stay for hours."""
    thing, script = Kind("example.com", "v1", "Thing", "things"), Script()

    def build(settings: Settings) -> Controller:
        return script.build_controller(settings).owns(thing, source="reflector", optional=True)

    fake_api.register(WIDGET)
    operator = Operator("widget", (build,), settings=Settings)
    async with OperatorHarness(operator, fake_api.config) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        assert script.count["w"] == 1

        fake_api.register(thing)
        await harness.eventually(lambda: script.count["w"] == 2)

        monkeypatch.setattr(informer, "_MISSING_SECONDS", 0.0)
        gone = thing.base_path
        fake_api.fail(status=404, times=None, where=lambda each: each.path.startswith(gone))
        fake_api.watches.cut(thing)
        await harness.eventually(lambda: script.count["w"] == 3)


# Events.


async def test_condition_that_becomes_true_is_a_warning_once(fake_api: FakeApi) -> None:
    async def tell(ctx: Context) -> Result | None:
        stuck = Condition.true("Stuck", "NoNode", "No node has room.")
        conditions = build_conditions(
            conditions_of(ctx.primary), [stuck], generation=1, now=ctx.now()
        )
        status = {"conditions": conditions}
        warned.append(list(ctx.warn_on_new_condition(status, "Stuck", "Other")))
        await ctx.apply_status(status)
        return None

    warned: list[list[str]] = []
    async with running(fake_api, Script(tell)) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        fake_api.patch(WIDGET, KEY, {"metadata": {"annotations": {"touched": "yes"}}})
        await harness.eventually(lambda: len(warned) == 2, "there was another reconcile")
        await harness.converged()
        await harness.manager.recorder.wait_idle()

        (event,) = fake_api.objects(EVENT)
        assert warned == [["Stuck"], []]
        assert (event["type"], event["reason"]) == ("Warning", "NoNode")
        assert event["note"] == "No node has room."
        assert "series" not in event
