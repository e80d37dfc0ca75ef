"""What a controller may declare, and what is reported if the cluster does not fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from libs.common.kinds import CONFIG_MAP, Key, Manifest
from libs.common.runtime import BackoffPolicy, Context, Controller, Operator
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import turns, until
from libs.common.testing.widget import (
    CONDITIONS,
    WIDGET,
    Settings,
    build_controller,
    build_widget,
)

KEY = Key("default", "w")


def without_annotations(manifest: Manifest) -> Manifest:
    metadata = {**manifest["metadata"], "annotations": {}}
    return {**manifest, "metadata": metadata}


async def test_own_status_asks_for_no_pass_where_the_cache_keeps_a_part_of_the_primary(
    fake_api: FakeApi,
) -> None:
    """Somebody who only reads the kind may have it reduced, for all of them."""
    fake_api.register(WIDGET, CONDITIONS)

    def build_reader(_: Settings) -> Controller:
        reader = Controller("reader", primary=CONFIG_MAP, reconcile=ignore, source="reflector")
        return reader.reads(WIDGET, transform=without_annotations)

    operator = Operator("widget", (build_controller, build_reader), settings=Settings)
    async with OperatorHarness(operator, fake_api.config, source="reflector") as harness:
        widget = build_widget(count=0)
        widget["metadata"]["annotations"] = {"a": "b"}
        fake_api.create(widget)
        await harness.converged()

        assert harness.manager.runners[0].reconciles == 1


async def ignore(_: Context) -> None:
    """Do nothing."""


async def test_status_of_a_kind_without_the_subresource_is_an_error(
    fake_api: FakeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_api.register(WIDGET, None, subresources=())
    fake_api.create(build_widget(count=1))
    operator = Operator("widget", (build_controller,), settings=Settings)
    async with OperatorHarness(operator, fake_api.config, source="reflector") as harness:
        await harness.eventually(lambda: harness.failing)

    assert "has no status subresource; apply the CRD" in capfd.readouterr().out


async def test_status_is_written_with_the_object_if_there_is_no_subresource(
    fake_api: FakeApi,
) -> None:
    """Each such write is a new generation, so it must not cause another one."""
    fake_api.register(WIDGET, None, subresources=())
    fake_api.create(build_widget(count=1))

    def build(settings: Settings) -> Controller:
        return replace(build_controller(settings), status_subresource=False)

    operator = Operator("widget", (build,), settings=Settings)
    async with OperatorHarness(operator, fake_api.config, source="reflector") as harness:
        await harness.converged()
        held = fake_api.get(WIDGET, KEY)
        assert held["status"]["made"] == 1
        assert held["spec"] == build_widget(count=1)["spec"]
        mark = fake_api.mark()
        fake_api.patch(WIDGET, KEY, {"metadata": {"annotations": {"touched": "yes"}}})
        await harness.converged()

        assert fake_api.writes(mark) == []


def test_function_that_cannot_be_awaited_is_refused() -> None:
    def plain(_: Context) -> None:
        return None

    with pytest.raises(ValueError, match=r"reconcile must be declared with `async def`"):
        Controller("one", WIDGET, plain)  # type: ignore[arg-type]


async def test_controller_may_have_workers_of_its_own(fake_api: FakeApi) -> None:
    gate = asyncio.Event()

    async def wait(_: Context) -> None:
        await gate.wait()

    script = Script(wait)
    fake_api.register(WIDGET)
    for number in range(8):
        fake_api.create(build_widget(f"w{number}"))

    def build(settings: Settings) -> Controller:
        patient = BackoffPolicy(base=5.0)
        controller = script.build_controller(settings)
        return replace(controller, max_concurrent_reconciles=6, backoff=patient)

    operator = Operator("widget", (build,), settings=Settings)
    async with OperatorHarness(
        operator, fake_api.config, source="reflector", max_concurrent_reconciles=2
    ) as harness:
        await until(lambda: sum(script.at_work.values()) == 6)
        await turns()
        assert sum(script.at_work.values()) == 6
        (runner,) = harness.manager.runners
        assert runner.queue.retry(Key("default", "none")) > 2
        gate.set()
        await harness.eventually(lambda: len(script.count) == 8)


async def test_part_beside_the_controllers_asks_for_passes(fake_api: FakeApi) -> None:
    script = Script()
    async with running(fake_api, script) as harness:
        fake_api.create(build_widget())
        await harness.converged()
        assert script.count["w"] == 1

        harness.manager.wake(WIDGET, [Key("default", "w")])
        await harness.eventually(lambda: script.count["w"] == 2)


async def test_controller_with_a_selector_leaves_the_other_primaries_alone(
    fake_api: FakeApi,
) -> None:
    script = Script()
    fake_api.register(WIDGET)

    def build(settings: Settings) -> Controller:
        return replace(script.build_controller(settings), label_selector="shard=one")

    for name, shard in (("a", "one"), ("b", "two")):
        widget = build_widget(name)
        widget["metadata"]["labels"] = {"shard": shard}
        fake_api.create(widget)
    async with OperatorHarness(
        Operator("widget", (build,), settings=Settings), fake_api.config, source="reflector"
    ) as harness:
        await harness.converged()

    assert dict(script.count) == {"a": 1}
