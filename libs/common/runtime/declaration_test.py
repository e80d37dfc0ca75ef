"""What a controller may declare, and what is reported if the cluster does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libs.common.kinds import CONFIG_MAP, Key, Manifest
from libs.common.runtime import Context, Controller, Operator
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script, running
from libs.common.testing.widget import (
    CONDITIONS,
    WIDGET,
    Settings,
    build_controller,
    build_widget,
)


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
