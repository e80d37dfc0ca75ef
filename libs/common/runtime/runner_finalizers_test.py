"""Finalizers in passes: there before the first side effect, gone after the clean-up."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.conditions import find_condition
from libs.common.errors import TerminalError
from libs.common.kinds import CONFIG_MAP, EVENT, POD, Key, build_object, is_deleting
from libs.common.labels import FORCE_FINALIZE
from libs.common.plan import Create
from libs.common.runtime import Context, Controller, Operator, Result
from libs.common.testing.fakeapi import FakeApi, Request
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import until
from libs.common.testing.widget import FINALIZER, WIDGET, Settings, build_widget

KEY = Key("default", "w")


async def test_finalizer_is_there_before_the_first_reconcile(fake_api: FakeApi) -> None:
    async def look(ctx: Context) -> None:
        seen.append(ctx.primary["metadata"]["finalizers"])

    seen: list[list[str]] = []
    async with running(fake_api, Script(look), finalizer=True) as harness:
        fake_api.create(build_widget())
        await harness.converged()

    assert seen == [[FINALIZER]]


async def test_object_that_goes_before_it_has_the_finalizer_is_not_reconciled(
    fake_api: FakeApi,
) -> None:
    def vanish(_: Request) -> bool:
        if fake_api.find(WIDGET, KEY) is not None:
            fake_api.vanish(WIDGET, KEY)
        return False

    script = Script()
    async with running(fake_api, script, finalizer=True) as harness:
        fake_api.fail("patch", WIDGET, where=vanish, times=None)
        fake_api.create(build_widget())
        await until(lambda: fake_api.find(WIDGET, KEY) is None)
        await harness.converged()

    assert script.count == {}, "a side effect without the finalizer is never cleaned up"


async def test_finalizer_goes_when_the_clean_up_is_done_and_not_before(fake_api: FakeApi) -> None:
    async def clean_up(ctx: Context) -> Result | None:
        return None if done.is_set() else Result(requeue_after=0.01)

    done = asyncio.Event()
    done.set()
    script = Script(clean_up)
    async with running(fake_api, script, finalizer=True) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        done.clear()
        fake_api.delete(WIDGET, KEY)
        await until(lambda: script.finalizing > 2)
        assert fake_api.get(WIDGET, KEY)["metadata"]["finalizers"] == [FINALIZER]

        done.set()
        await until(lambda: fake_api.find(WIDGET, KEY) is None)
        await harness.converged()
        assert script.count["w"] == 1, "an object that is being deleted is not reconciled"


async def test_finalizer_that_is_needed_no_longer_is_taken_off(fake_api: FakeApi) -> None:
    script = Script()
    async with running(fake_api, script, finalizer=True) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        fake_api.patch(WIDGET, KEY, {"spec": {"text": "free"}})
        await harness.converged()

        assert not fake_api.get(WIDGET, KEY)["metadata"].get("finalizers")
        fake_api.delete(WIDGET, KEY)
        await harness.converged()
        assert script.finalizing == 0


async def test_clean_up_that_fails_keeps_the_object_and_says_why(fake_api: FakeApi) -> None:
    async def fail(ctx: Context) -> None:
        if ctx.primary["metadata"].get("deletionTimestamp"):
            raise TerminalError("StillUsed", "somebody holds it; let it go")

    async with running(fake_api, Script(fail), finalizer=True) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        fake_api.delete(WIDGET, KEY)
        await harness.eventually(
            lambda: find_condition(fake_api.get(WIDGET, KEY), "Ready") is not None
        )

        assert fake_api.get(WIDGET, KEY)["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("gone", [False, True], ids=["changed", "gone"])
async def test_clean_up_for_an_object_that_is_not_as_it_was_is_no_defect(
    fake_api: FakeApi, gone: bool
) -> None:
    async def archive(ctx: Context) -> None:
        if not is_deleting(ctx.primary):
            return
        if script.finalizing == 1:
            fake_api.watches.pause(WIDGET)
            edit = {"metadata": {"finalizers": None}} if gone else {"spec": {"text": "newer"}}
            fake_api.patch(WIDGET, KEY, edit)
        archive = build_object(CONFIG_MAP, "archive", "default")
        await ctx.execute([Create(CONFIG_MAP, archive)], confirmed=True)
        made.append(ctx.primary["spec"]["text"])

    made: list[str] = []
    script = Script(archive)
    async with running(fake_api, script, finalizer=True) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        fake_api.delete(WIDGET, KEY)
        await until(lambda: fake_api.find(WIDGET, KEY) is None)
        fake_api.watches.resume(WIDGET)
        await harness.converged()

        assert harness.metric("controller_runtime_reconcile_panics_total", controller="widget") == 0
        assert harness.metric("controller_runtime_reconcile_errors_total", controller="widget") == 0
    assert made == ([] if gone else ["newer"])


async def test_person_may_let_an_object_go_without_clean_up(fake_api: FakeApi) -> None:
    async def never(ctx: Context) -> Result:
        return Result(requeue_after=60.0)

    script = Script(never)
    async with running(fake_api, script, finalizer=True) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        fake_api.delete(WIDGET, KEY)
        await until(lambda: script.finalizing)
        fake_api.patch(WIDGET, KEY, {"metadata": {"annotations": {FORCE_FINALIZE: "true"}}})
        await until(lambda: fake_api.find(WIDGET, KEY) is None)
        await until(lambda: fake_api.objects(EVENT))

    (event,) = fake_api.objects(EVENT)
    assert (event["type"], event["reason"]) == ("Warning", "CleanUpSkipped")


async def test_object_that_never_got_the_finalizer_just_goes(fake_api: FakeApi) -> None:
    theirs = build_widget()
    theirs["metadata"]["finalizers"] = ["example.com/theirs"]
    script = Script()
    fake_api.register(WIDGET)
    fake_api.create(theirs)
    fake_api.delete(WIDGET, KEY)
    operator = Operator("widget", (script.build_finalizing_controller,), settings=Settings)
    async with OperatorHarness(operator, fake_api.config) as harness:
        await harness.converged()
        widget = fake_api.get(WIDGET, KEY)
        assert widget["metadata"]["finalizers"] == ["example.com/theirs"]
        assert script.finalizing == 0
        assert [each for each in fake_api.writes() if each.kind == WIDGET] == []


async def test_pod_is_seen_for_its_grace_period_after_the_clean_up(fake_api: FakeApi) -> None:
    """It has no finalizer any more then, and containers that still run."""
    script, key = Script(), Key("default", "p")
    controller = Controller(
        "pods",
        primary=POD,
        reconcile=script.reconcile,
        finalize=script.finalize,
        finalizer=FINALIZER,
        source="reflector",
    )
    async with OperatorHarness(
        Operator("widget", (lambda _: controller,), settings=Settings), fake_api.config
    ) as harness:
        containers = [{"name": "main", "image": "main"}]
        spec = {"nodeName": "node", "containers": containers}
        fake_api.create(build_object(POD, "p", "default", spec=spec))
        await harness.converged()
        fake_api.delete(POD, key)
        await until(lambda: script.finalizing and not _finalizers_of(fake_api, key))
        await harness.converged()
        assert harness.manager.cache.store(POD).get(key) is not None

        fake_api.finish_termination(POD, key)
        await harness.converged()
        assert harness.manager.cache.store(POD).get(key) is None


def _finalizers_of(api: FakeApi, key: Key) -> list[str]:
    found: list[str] = api.get(POD, key)["metadata"].get("finalizers") or []
    return found
