"""What of a status is ours to write: nothing twice, and nothing of others."""

from __future__ import annotations

from libs.common.client import Client
from libs.common.conditions import (
    Condition,
    build_conditions,
    build_status,
    conditions_of,
    find_condition,
)
from libs.common.errors import TerminalError, TransientError
from libs.common.kinds import CRD, Key, build_object, key_of, uid_of
from libs.common.runtime import Context, Controller, Operator, Result
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.kstatus import compute_status
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import until
from libs.common.testing.widget import CONDITIONS, WIDGET, Settings, build_widget

KEY = Key("default", "w")


async def test_status_whose_items_have_empty_members_is_written_once(fake_api: FakeApi) -> None:
    async def tell(ctx: Context) -> None:
        items = [{"name": "x", "users": [], "labels": {}}]
        await ctx.apply_status({"items": items, "byName": {"x": {"users": []}}})

    script = Script(tell)
    async with running(fake_api, script) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        fake_api.patch(WIDGET, KEY, {"metadata": {"annotations": {"touched": "yes"}}})
        await until(lambda: script.count["w"] == 2)
        await harness.converged()

    assert len(fake_api.writes(0, WIDGET, "status")) == 1
    assert fake_api.get(WIDGET, KEY)["status"] == {"items": [{"name": "x"}]}


async def test_terminal_error_takes_over_no_condition_of_others(
    fake_api: FakeApi, fake_client: Client
) -> None:
    async def tell(ctx: Context) -> None:
        if ctx.primary["spec"]["text"] == "bad":
            raise TerminalError("BadText", "spec.text: is bad; write another")
        ready = [Condition.true("Ready", "Done"), Condition.true("Bound", "Done")]
        held = conditions_of(ctx.primary)
        ours = build_conditions(held, ready, generation=1, now=ctx.now())
        await ctx.apply_status({"conditions": ours})

    async def state(*types: str) -> None:
        theirs = build_conditions(
            [], [Condition.true(each, "Known") for each in types], generation=1, now=clock.now()
        )
        live = fake_api.get(WIDGET, KEY)
        manifest = build_object(
            WIDGET, "w", "default", metadata={"uid": uid_of(live)}, status={"conditions": theirs}
        )
        await fake_client.apply(WIDGET, manifest, field_manager="other", subresource="status")

    def types() -> list[str]:
        return sorted(each["type"] for each in conditions_of(fake_api.get(WIDGET, KEY)))

    def reason_of(type_: str) -> str:
        return str((find_condition(fake_api.get(WIDGET, KEY), type_) or {}).get("reason"))

    async with running(fake_api, Script(tell)) as harness:
        clock = harness.manager.clock
        crd = build_crd(WIDGET, CONDITIONS, ("status",))
        fake_api.patch(CRD, key_of(crd), {"spec": crd["spec"]})
        fake_api.create(build_widget())
        await harness.converged()
        await state("Theirs")
        await harness.converged()
        fake_api.patch(WIDGET, KEY, {"spec": {"text": "bad"}})
        await harness.eventually(
            lambda: (find_condition(fake_api.get(WIDGET, KEY), "Ready") or {})["reason"]
            == "BadText"
        )
        assert types() == ["Bound", "Ready", "Stalled", "Theirs"]
        assert reason_of("Bound") == "BadText", "nobody keeps it current"
        assert reason_of("Theirs") == "Known"
        assert compute_status(fake_api.get(WIDGET, KEY)) == "Failed"
        await state()
        await harness.converged()

        assert types() == ["Bound", "Ready", "Stalled"], "what others state no more goes"
        fake_api.patch(WIDGET, KEY, {"spec": {"text": "good"}})
        await harness.converged()
        assert types() == ["Bound", "Ready"]


async def test_object_that_is_not_ready_is_stalled_after_the_deadline(fake_api: FakeApi) -> None:
    async def report(ctx: Context) -> None:
        text = ctx.primary["spec"]["text"]
        ready = Condition("Ready", "True" if text == "Good" else "False", text, "the cause")
        await ctx.apply_status(build_status(ctx.primary, [ready], ctx.now()))

    clock = AdvancedClock()

    async def wait(seconds: int) -> tuple[str, str]:
        clock.seconds += seconds
        await harness.restart()
        await harness.converged()
        held = fake_api.get(WIDGET, KEY)
        stalled = find_condition(held, "Stalled") or {}
        return compute_status(held), stalled.get("message", "absent")

    async with running(fake_api, Script(report), clock=clock) as harness:
        fake_api.create(build_widget(text="Waiting"))
        await harness.converged()
        assert await wait(500) == ("InProgress", "")
        fake_api.patch(WIDGET, KEY, {"spec": {"text": "Refused"}})
        assert await wait(10) == ("InProgress", "")
        assert await wait(500) == ("InProgress", ""), "another reason and another spec are progress"
        assert await wait(200) == ("Failed", "the cause")
        mark = fake_api.mark()
        assert await wait(1_000) == ("Failed", "the cause")
        assert fake_api.writes(mark, WIDGET) == []
        fake_api.patch(WIDGET, KEY, {"spec": {"text": "Good"}})
        assert await wait(0) == ("Current", "absent")


async def test_deadline_of_an_object_comes_without_an_event(fake_api: FakeApi) -> None:
    async def report(ctx: Context) -> Result | None:
        ready = Condition.false("Ready", "Refused", "the cause")
        await ctx.apply_status(build_status(ctx.primary, [ready], ctx.now()))
        return Result(error=TransientError("later", retry_after=3_600))

    def build(_: Settings) -> Controller:
        return Controller(
            "widget", primary=WIDGET, reconcile=report, source="reflector", stalls_after=1
        )

    fake_api.register(WIDGET)
    operator = Operator("widget", (build,), settings=Settings)
    async with OperatorHarness(operator, fake_api.config) as harness:
        fake_api.create(build_widget())
        await harness.eventually(
            lambda: compute_status(fake_api.get(WIDGET, KEY)) == "Failed", "the deadline is over"
        )
