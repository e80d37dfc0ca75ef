"""The runner: how a reconcile ends, and when the next one starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from libs.common.conditions import find_condition
from libs.common.errors import (
    ApiError,
    Conflict,
    TerminalError,
    TransientError,
    UnknownOutcome,
)
from libs.common.kinds import CONFIG_MAP, EVENT, Key, Manifest, build_object, is_deleting
from libs.common.labels import PAUSED
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create, Delete
from libs.common.runtime import Context, Operator, Result
from libs.common.runtime.runner import Runner
from libs.common.runtime.statuses import build_error_status
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import turns, until
from libs.common.testing.widget import FINALIZER, WIDGET, Settings, build_widget

KEY = Key("default", "w")
SLOW: dict[str, Any] = {"backoff_base_seconds": 1.0, "backoff_max_seconds": 8.0}


def queue_of(harness: OperatorHarness) -> Any:
    (runner,) = harness.manager.runners
    assert isinstance(runner, Runner)
    return runner.queue


def widget_changes(api: FakeApi, text: str) -> None:
    api.patch(WIDGET, KEY, {"spec": {"text": text}})


async def list_delays(
    harness: OperatorHarness, script: Script, clock: FakeClock, passes: int
) -> list[float]:
    """Let some passes end, one after the other, and return what the next ones wait for."""
    queue = queue_of(harness)
    queue._rng = lambda: 0.0

    def waits(number: int) -> bool:
        return script.count["w"] == number and queue.delayed == 1

    seen = []
    for number in range(1, passes + 1):
        await until(partial(waits, number))
        seen.append(round(queue._timers[KEY][0] - clock.monotonic(), 3))
        clock.advance(seen[-1])
    return seen


# How a reconcile ends.


async def test_one_worker_a_key_at_a_time(fake_api: FakeApi) -> None:
    gate = asyncio.Event()

    async def wait(ctx: Context) -> None:
        await gate.wait()

    script = Script(wait)
    async with running(fake_api, script, max_concurrent_reconciles=4) as harness:
        fake_api.create(build_widget())
        fake_api.create(build_widget("other"))
        await until(lambda: script.at_work == {"w": 1, "other": 1})
        widget_changes(fake_api, "again")
        await harness.eventually(lambda: queue_of(harness)._again)
        await turns()
        assert script.at_work["w"] == 1
        gate.set()
        await harness.converged()

    assert script.count == {"w": 2, "other": 1}, "the change during the pass is not lost"
    assert script.most_at_work == 1


async def test_pass_that_takes_too_long_is_cut_and_tried_again(fake_api: FakeApi) -> None:
    async def hang_once(ctx: Context) -> None:
        if not script.count:
            await asyncio.Event().wait()

    script = Script(hang_once)
    async with running(fake_api, script, reconcile_timeout_seconds=0.05) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.count["w"] == 2)
        await harness.converged()

        name = "controller_runtime_reconcile_timeouts_total"
        assert harness.metric(name, controller="widget") == 1


async def test_timeout_of_the_reconciler_itself_is_a_defect(fake_api: FakeApi) -> None:
    async def give_up(ctx: Context) -> None:
        if not script.count:
            raise TimeoutError

    script = Script(give_up)
    async with running(fake_api, script, may_panic=True) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.count["w"] == 2)
        await harness.converged()

        assert (
            harness.metric("controller_runtime_reconcile_timeouts_total", controller="widget") == 0
        )
        assert harness.metric("controller_runtime_reconcile_panics_total", controller="widget") == 1


async def test_worker_outlives_a_pass_that_is_canceled_by_what_it_awaits(
    fake_api: FakeApi,
) -> None:
    async def await_what_others_cancel(ctx: Context) -> None:
        if not script.count:
            task = asyncio.create_task(asyncio.Event().wait())
            task.cancel()
            await task

    script = Script(await_what_others_cancel)
    async with running(fake_api, script, may_panic=True, max_concurrent_reconciles=1) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.count["w"] == 2)
        await harness.converged()

        assert harness.metric("controller_runtime_reconcile_panics_total", controller="widget") == 1
        assert harness.metric("controller_runtime_active_workers", controller="widget") == 0


async def test_terminal_error_is_stated_and_waits_for_a_change(fake_api: FakeApi) -> None:
    async def refuse(ctx: Context) -> None:
        if ctx.primary["spec"]["text"] == "bad":
            raise TerminalError("BadText", f"{ctx}: spec.text: is bad; write another")

    script = Script(refuse)
    async with running(fake_api, script) as harness:
        fake_api.create({**build_widget(text="bad"), "status": {"made": 7}})
        await harness.eventually(
            lambda: find_condition(fake_api.get(WIDGET, KEY), "Ready") is not None
        )
        await harness.converged()
        widget = fake_api.get(WIDGET, KEY)
        ready = find_condition(widget, "Ready") or {}
        assert (ready["status"], ready["reason"]) == ("False", "BadText")
        assert "Widget default/w: spec.text" in ready["message"]
        assert widget["status"]["made"] == 7, "the rest of the status stays"
        assert script.count["w"] == 1
        assert queue_of(harness).delayed == 0, "it is tried again although nothing changed"
        name = "controller_runtime_terminal_reconcile_errors_total"
        assert harness.metric(name, controller="widget") == 1
        await until(lambda: fake_api.objects(EVENT))
        assert fake_api.objects(EVENT)[0]["reason"] == "BadText"

        widget_changes(fake_api, "good")
        await until(lambda: script.count["w"] == 2)


def test_terminal_error_tells_that_the_newest_spec_was_looked_at() -> None:
    err = TerminalError("BadText", "bad")
    build = partial(build_error_status, err=err, generation=3, now=datetime.now(UTC))

    known = build({"status": {"made": 7, "observedGeneration": 2}})
    assert (known["made"], known["observedGeneration"]) == (7, 3)
    assert "observedGeneration" not in build({"status": {"made": 7}})


async def test_terminal_error_that_cannot_be_stated_is_tried_again(fake_api: FakeApi) -> None:
    async def refuse(ctx: Context) -> None:
        raise TerminalError("BadText", "bad")

    script = Script(refuse)
    async with running(fake_api, script) as harness:
        fake_api.fail("patch", WIDGET, status=500, subresource="status")
        fake_api.create(build_widget())
        await harness.eventually(
            lambda: find_condition(fake_api.get(WIDGET, KEY), "Ready") is not None
        )

        assert script.count["w"] == 2


async def test_terminal_error_that_can_never_be_stated_is_backed_off(fake_api: FakeApi) -> None:
    async def refuse(ctx: Context) -> None:
        raise TerminalError("BadText", "bad")

    script, clock = Script(refuse), FakeClock()
    async with running(
        fake_api, script, clock=clock, backoff_base_seconds=1.0, backoff_max_seconds=8.0
    ) as harness:
        fake_api.fail("patch", WIDGET, status=403, subresource="status", times=None)
        fake_api.create(build_widget())

        assert await list_delays(harness, script, clock, 4) == [1.0, 2.0, 4.0, 8.0]


async def test_status_that_makes_no_sense_ends_no_worker(fake_api: FakeApi) -> None:
    async def refuse(ctx: Context) -> None:
        raise TerminalError("BadText", "bad")

    script = Script(refuse)
    async with running(fake_api, script, max_concurrent_reconciles=1) as harness:
        fake_api.create({**build_widget(), "status": {"conditions": ["nonsense"]}})
        await until(lambda: script.count["w"] > 1)
        fake_api.create(build_widget("other"))

        other = Key("default", "other")
        await harness.eventually(lambda: find_condition(fake_api.get(WIDGET, other), "Ready"))


@pytest.mark.parametrize(
    ("error", "delays"),
    [
        (TransientError("not yet", retry_after=7.0), [7.0, 7.0]),
        (TransientError("not yet"), [1.0, 2.0, 4.0]),
        (TransientError("not yet", retry_after=0.001), [1.0, 2.0, 4.0]),
        (ApiError(429, retry_after=3.0), [3.0, 3.0, 4.0]),
        (ApiError(503, retry_after=0.0), [1.0, 2.0, 4.0]),
        (UnknownOutcome("POST", "no answer"), [1.0, 2.0, 4.0, 8.0, 8.0]),
        (ApiError(500), [1.0, 2.0, 4.0, 8.0, 8.0]),
        (Conflict(409), [0.2, 0.2, 0.2, 0.2, 0.2]),
        (ValueError("a defect"), [1.0, 2.0, 4.0]),
    ],
)
async def test_error_decides_when_the_next_pass_comes(
    fake_api: FakeApi, error: Exception, delays: list[float]
) -> None:
    async def fail(ctx: Context) -> None:
        raise error

    script, clock = Script(fail), FakeClock()
    async with running(
        fake_api, script, clock=clock, may_panic=isinstance(error, ValueError), **SLOW
    ) as harness:
        fake_api.create(build_widget())

        assert await list_delays(harness, script, clock, len(delays)) == delays
        panics = harness.metric("controller_runtime_reconcile_panics_total", controller="widget")
        assert bool(panics) is isinstance(error, ValueError)


async def test_conflicts_without_end_are_backed_off(fake_api: FakeApi) -> None:
    async def conflict(ctx: Context) -> None:
        raise Conflict(409)

    script, clock = Script(conflict), FakeClock()
    slow: dict[str, Any] = {"backoff_base_seconds": 0.5, "backoff_max_seconds": 0.5}
    async with running(fake_api, script, clock=clock, **slow) as harness:
        queue = queue_of(harness)

        def waits(number: int) -> bool:
            return script.count["w"] == number and queue.delayed == 1

        fake_api.create(build_widget())
        for number in range(1, 8):
            await until(partial(waits, number))
            if number < 7:
                clock.advance(queue._timers[KEY][0] - clock.monotonic())

        assert queue._timers[KEY][0] - clock.monotonic() > 0.3


async def test_success_forgets_the_failures(fake_api: FakeApi) -> None:
    async def fail_once(ctx: Context) -> None:
        if not script.count:
            raise ValueError

    script = Script(fail_once)
    async with running(fake_api, script, may_panic=True) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.count["w"] == 2)
        await harness.converged()

        assert queue_of(harness).failing == 0
        labels = {"controller": "widget", "result": "success"}
        assert harness.metric("controller_runtime_reconcile_total", **labels) == 1


async def test_failures_of_an_object_are_not_those_of_its_successor(fake_api: FakeApi) -> None:
    async def fail(ctx: Context) -> None:
        raise ValueError("a defect")

    script, clock = Script(fail), FakeClock()
    async with running(fake_api, script, clock=clock, may_panic=True, **SLOW) as harness:
        fake_api.create(build_widget())
        assert await list_delays(harness, script, clock, 4) == [1.0, 2.0, 4.0, 8.0]
        await until(lambda: script.count["w"] == 5)

        fake_api.watches.pause(WIDGET)
        fake_api.delete(WIDGET, KEY)
        fake_api.create(build_widget())
        script.count.clear()
        fake_api.watches.resume(WIDGET)
        assert await list_delays(harness, script, clock, 2) == [1.0, 2.0]


async def test_object_that_is_being_deleted_goes_first_after_a_restart(fake_api: FakeApi) -> None:
    async def note(ctx: Context) -> None:
        order.append(ctx.key.name)

    order: list[str] = []
    script = Script(note)
    fake_api.register(WIDGET)
    for name in ("first", "second", "third"):
        widget = build_widget(name)
        widget["metadata"]["finalizers"] = [FINALIZER]
        fake_api.create(widget)
    fake_api.delete(WIDGET, Key("default", "third"))
    operator = Operator("widget", (script.build_finalizing_controller,), settings=Settings)
    async with OperatorHarness(operator, fake_api.config, max_concurrent_reconciles=1) as harness:
        await harness.converged()

    assert order == ["third", "first", "second"]


async def test_wishes_for_almost_immediate_passes_are_backed_off(fake_api: FakeApi) -> None:
    async def again(ctx: Context) -> Result:
        return Result(requeue_after=0.001)

    script, clock = Script(again), FakeClock()
    async with running(fake_api, script, clock=clock, **SLOW) as harness:
        fake_api.create(build_widget())

        assert await list_delays(harness, script, clock, 4) == [0.001, 1.0, 2.0, 4.0]


@asynccontextmanager
async def _quiet() -> AsyncIterator[None]:
    with capture_logs():
        yield


@pytest.mark.parametrize("deleting", [False, True], ids=["reconcile", "clean-up"])
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (TransientError("the mail server does not respond"), "the mail server does not respond"),
        (ApiError(500, message="disk full"), "disk full"),
        (KeyError("port"), "unhandled error (bug of the operator): KeyError: 'port'"),
        (Conflict(409), None),
    ],
)
async def test_error_that_repeats_is_an_event_of_the_object(
    fake_api: FakeApi, error: Exception, cause: str | None, *, deleting: bool
) -> None:
    async def fail(ctx: Context) -> None:
        if bool(ctx.primary["metadata"].get("deletionTimestamp")) is deleting:
            shown.append(len(fake_api.objects(EVENT)))
            raise error

    shown: list[int] = []
    is_bug = isinstance(error, KeyError)
    # Without capture_logs, rendering each traceback of the bug takes seconds.
    async with (
        running(
            fake_api, Script(fail), finalizer=True, may_panic=is_bug, backoff_max_seconds=0.2
        ) as harness,
        _quiet(),
    ):
        fake_api.create(build_widget())
        if deleting:
            await harness.converged()
            fake_api.delete(WIDGET, KEY)
        await until(lambda: len(shown) > 8)
        await harness.manager.recorder.wait_idle()
        assert set(shown[:5]) == {0}, "the first errors may pass by themselves"

        reason, what = (
            ("CleanUpFailed", "Clean-up") if deleting else ("ReconcileFailed", "Reconcile")
        )
        events = [(each["reason"], each["note"]) for each in fake_api.objects(EVENT)]
        if cause is None:
            assert events == []
        else:
            ((seen, note),) = events
            assert seen == reason
            assert note.startswith(f"{what} fails and is retried: ")
            assert cause in note


async def test_pass_that_always_takes_too_long_is_an_event_of_the_object(
    fake_api: FakeApi,
) -> None:
    async def hang(ctx: Context) -> None:
        await asyncio.Event().wait()

    async with running(
        fake_api, Script(hang), reconcile_timeout_seconds=0.05, backoff_max_seconds=0.2
    ):
        fake_api.create(build_widget())
        await until(lambda: bool(fake_api.objects(EVENT)))

        (event,) = fake_api.objects(EVENT)
        assert event["note"] == "Reconcile fails and is retried: it did not finish within 0.05 s"


async def test_wish_for_another_pass_is_granted(fake_api: FakeApi) -> None:
    async def again(ctx: Context) -> Result:
        return Result(requeue_after=40.0)

    script, clock = Script(again), FakeClock()
    async with running(fake_api, script, clock=clock) as harness:
        fake_api.create(build_widget())
        await until(lambda: script.count["w"] == 1 and queue_of(harness).delayed)
        clock.advance(39.0)
        await turns()
        assert script.count["w"] == 1
        clock.advance(1.0)
        await until(lambda: script.count["w"] == 2)


async def test_failed_steps_back_off_the_key(fake_api: FakeApi) -> None:
    async def make(ctx: Context) -> Result:
        manifest: Manifest = build_object(
            CONFIG_MAP,
            "child",
            "default",
            metadata={"ownerReferences": [ctx.owner_reference()]},
        )
        return Result.from_outcome(await ctx.execute([Create(CONFIG_MAP, manifest)]))

    script = Script(make)
    async with running(fake_api, script) as harness:
        fault = fake_api.fail("create", CONFIG_MAP, status=403, times=2)
        fake_api.create(build_widget())
        await until(lambda: fake_api.find(CONFIG_MAP, ("default", "child")) is not None)

        assert fault.hits == 2
        assert harness.metric("controller_runtime_reconcile_errors_total", controller="widget") == 2


# Who is enqueued.


async def test_child_asks_for_its_owner_by_uid_alone(fake_api: FakeApi) -> None:
    script = Script()
    async with running(fake_api, script) as harness:
        widget = fake_api.create(build_widget())
        await until(lambda: script.count["w"] == 1)
        await harness.converged()
        fake_api.collector.pause()
        for name, owner in (
            ("earlier", {"metadata": {"name": "w", "uid": "earlier"}}),
            ("ours", widget),
        ):
            reference = build_owner_reference(WIDGET, owner)
            fake_api.create(
                build_object(CONFIG_MAP, name, "default", metadata={"ownerReferences": [reference]})
            )
            await harness.converged()
            assert script.count["w"] == (2 if name == "ours" else 1), name

        fake_api.delete(CONFIG_MAP, ("default", "ours"))
        await until(lambda: script.count["w"] == 3)


@pytest.mark.parametrize("state", ["free", "already gone", "terminating"])
async def test_own_deletion_asks_for_the_owner_like_one_by_others(
    fake_api: FakeApi, state: str
) -> None:
    """The owner creates its child again in the next reconcile, and does no more."""
    key = Key("default", "child")

    async def replace(ctx: Context) -> Result:
        wanted = build_object(
            CONFIG_MAP,
            key.name,
            key.namespace,
            metadata={"ownerReferences": [ctx.owner_reference()]},
            data={"text": ctx.primary["spec"].get("text", "")},
        )
        held = ctx.get(CONFIG_MAP, key)
        if held is None:
            return Result.from_outcome(await ctx.execute([Create(CONFIG_MAP, wanted)]))
        if held["data"] == wanted["data"] or is_deleting(held):
            return Result()
        return Result.from_outcome(await ctx.execute([Delete.of(CONFIG_MAP, held)]))

    script = Script(replace)
    async with running(fake_api, script) as harness:
        fake_api.create(build_widget())
        await until(lambda: fake_api.find(CONFIG_MAP, key) is not None)
        await harness.converged()
        if state == "already gone":
            fake_api.watches.pause(CONFIG_MAP)
            fake_api.vanish(CONFIG_MAP, key)
        if state == "terminating":
            fake_api.patch(CONFIG_MAP, key, {"metadata": {"finalizers": ["example.com/hold"]}})
            await harness.converged()
        script.count.clear()
        widget_changes(fake_api, "again")
        if state == "terminating":
            await until(lambda: script.count["w"] == 2)
            fake_api.patch(CONFIG_MAP, key, {"metadata": {"finalizers": None}})

        await until(lambda: (fake_api.find(CONFIG_MAP, key) or {}).get("data") == {"text": "again"})
        fake_api.watches.resume(CONFIG_MAP)
        await harness.converged()
        assert script.count["w"] == (3 if state == "terminating" else 2)


async def test_child_that_is_taken_back_asks_for_nobody(fake_api: FakeApi) -> None:
    """Otherwise an admission webhook that changes each child makes the owner busy."""

    async def insist(ctx: Context) -> Result:
        metadata = {"ownerReferences": [ctx.owner_reference()]}
        child = build_object(CONFIG_MAP, "child", "default", metadata=metadata)
        step = Create(CONFIG_MAP, child, objection=lambda _: "changed")
        return Result.from_outcome(await ctx.execute([step]))

    script, clock = Script(insist), FakeClock()
    async with running(fake_api, script, clock=clock, **SLOW) as harness:
        fake_api.create(build_widget())
        assert await list_delays(harness, script, clock, 4) == [1.0, 2.0, 4.0, 8.0]


async def test_paused_object_is_left_alone(fake_api: FakeApi) -> None:
    script = Script()
    async with running(fake_api, script, finalizer=True) as harness:
        paused = build_widget()
        paused["metadata"]["annotations"] = {PAUSED: "true"}
        fake_api.create(paused)
        await harness.converged()
        assert script.count == {}
        assert not fake_api.get(WIDGET, KEY)["metadata"].get("finalizers")

        fake_api.patch(WIDGET, KEY, {"metadata": {"annotations": {PAUSED: None}}})
        await until(lambda: script.count["w"] == 1)
