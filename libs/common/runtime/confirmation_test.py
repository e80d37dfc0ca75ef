"""Nothing is created for a primary that the server no longer has, and its cache entry goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from libs.common.kinds import (
    CONFIG_MAP,
    SECRET,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.plan import Apply, Create
from libs.common.runtime import Context, Result
from libs.common.runtime.confirmation import PrimaryGone
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.script import Script, running
from libs.common.testing.widget import WIDGET, build_widget

KEY = Key("default", "w")


def build_child(ctx: Context, name: str) -> Manifest:
    return build_object(
        CONFIG_MAP, name, "default", metadata={"ownerReferences": [ctx.owner_reference()]}
    )


@pytest.mark.parametrize("step", [Create, Apply])
@pytest.mark.parametrize("children", [1, 3])
async def test_primary_that_vanished_unseen_keeps_no_new_children(
    fake_api: FakeApi, step: type[Create | Apply], children: int
) -> None:
    async def late(ctx: Context) -> Result | None:
        fake_api.collector.pause()
        fake_api.watches.pause(WIDGET)
        fake_api.vanish(WIDGET, KEY)
        steps = [step(CONFIG_MAP, build_child(ctx, f"w-{number}")) for number in range(children)]
        try:
            await ctx.execute(steps)
        except PrimaryGone:
            refused.append(ctx.key)
            raise
        finally:
            fake_api.watches.resume(WIDGET)
        return None

    refused: list[Key] = []
    async with running(fake_api, Script(late)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert refused == [KEY]
        assert fake_api.objects(CONFIG_MAP) == []
        assert harness.metric("controller_runtime_reconcile_errors_total", controller="widget") == 0
    if children > 1 or step is Apply:
        assert not fake_api.writes(kind=CONFIG_MAP), "nothing was made to be taken back"


@pytest.mark.parametrize("kind", [SECRET, CONFIG_MAP])
async def test_apply_that_finds_its_object_missing_creates_none_for_a_deleted_primary(
    fake_api: FakeApi, kind: Kind
) -> None:
    """The cache does not tell: it has no Secrets, and its ConfigMap was deleted a moment ago."""

    async def late(ctx: Context) -> Result | None:
        child = {**build_child(ctx, "w-0"), "kind": kind.kind}
        await ctx.execute([Apply(kind, {**child, "data": {"a": "MQ=="}})])
        fake_api.collector.pause()
        fake_api.watches.pause(WIDGET)
        fake_api.watches.pause(CONFIG_MAP)
        fake_api.vanish(WIDGET, KEY)
        fake_api.vanish(kind, KEY._replace(name="w-0"))
        try:
            await ctx.execute([Apply(kind, {**child, "data": {"a": "Mg=="}})])
        except PrimaryGone:
            refused.append(ctx.key)
            raise
        finally:
            fake_api.watches.resume(WIDGET)
            fake_api.watches.resume(CONFIG_MAP)
        return None

    refused: list[Key] = []
    async with running(fake_api, Script(late)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert refused == [KEY]
        assert fake_api.objects(kind) == []
        assert len(fake_api.writes(kind=kind)) == 1, "the create before the deletion"


async def test_object_of_somebody_else_outlives_a_primary_that_wanted_its_name(
    fake_api: FakeApi,
) -> None:
    async def late(ctx: Context) -> Result | None:
        fake_api.collector.pause()
        fake_api.watches.pause(WIDGET)
        fake_api.vanish(WIDGET, KEY)
        theirs = build_child(ctx, "w-0")
        del theirs["metadata"]["ownerReferences"]
        fake_api.create(theirs)
        try:
            await ctx.execute([Create(CONFIG_MAP, build_child(ctx, "w-0"))])
        finally:
            fake_api.watches.resume(WIDGET)
        return None

    script = Script(late)
    async with running(fake_api, script) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert script.count["w"] == 1
        assert [each["metadata"]["name"] for each in fake_api.objects(CONFIG_MAP)] == ["w-0"]


@pytest.mark.parametrize("step", [Apply, partial(Create, inherits=True)], ids=["apply", "create"])
async def test_child_that_a_deletion_orphaned_is_not_adopted_for_its_deleted_owner(
    fake_api: FakeApi, step: Callable[[Kind, Manifest], Apply | Create]
) -> None:
    """The watch of the owner is behind; the garbage collector would delete the child."""

    async def late(ctx: Context) -> Result | None:
        child = build_child(ctx, "w-0")
        child["metadata"]["labels"] = {MANAGED_BY: "widget", INSTANCE: "w"}
        await ctx.execute([step(CONFIG_MAP, child)])
        fake_api.watches.pause(WIDGET)
        fake_api.delete(WIDGET, KEY, propagation="Orphan")
        try:
            await ctx.execute([step(CONFIG_MAP, {**child, "data": {"a": "b"}})])
        finally:
            fake_api.watches.resume(WIDGET)
        return None

    async with running(fake_api, Script(late)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        (child,) = fake_api.objects(CONFIG_MAP)
        assert not child["metadata"].get("ownerReferences")
        assert harness.metric("controller_runtime_reconcile_errors_total", controller="widget") == 0


async def test_cache_forgets_a_primary_that_turned_out_to_be_gone(fake_api: FakeApi) -> None:
    async def late(ctx: Context) -> Result | None:
        fake_api.watches.pause(WIDGET)
        fake_api.vanish(WIDGET, KEY)
        assert ctx.get(WIDGET, KEY) is not None
        try:
            await ctx.execute([Create(CONFIG_MAP, build_child(ctx, "w-0"))])
        finally:
            seen.append(ctx.get(WIDGET, KEY))
            fake_api.watches.resume(WIDGET)
        return None

    seen: list[Manifest | None] = []
    async with running(fake_api, Script(late)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

        assert seen == [None]


@pytest.mark.parametrize("children", [1, 3])
async def test_plan_of_an_outdated_spec_makes_nothing_that_must_be_confirmed(
    fake_api: FakeApi, children: int
) -> None:
    async def late(ctx: Context) -> Result | None:
        seen.append(ctx.generation)
        if ctx.generation == 1:
            fake_api.watches.pause(WIDGET)
            fake_api.patch(WIDGET, KEY, {"spec": {"size": 7}})
        manifests = [build_child(ctx, f"w-{number}") for number in range(children)]
        for manifest in manifests:
            manifest["data"] = {"generation": str(ctx.generation)}
        await ctx.execute([Create(CONFIG_MAP, manifest) for manifest in manifests], confirmed=True)
        return None

    seen: list[int] = []
    async with running(fake_api, Script(late)) as harness:
        fake_api.create(build_widget())
        await harness.eventually(lambda: fake_api.objects(CONFIG_MAP), "there are children")
        fake_api.watches.resume(WIDGET)
        await harness.converged()

        assert seen[:2] == [1, 2]
        made = fake_api.objects(CONFIG_MAP)
        assert [each["data"]["generation"] for each in made] == ["2"] * children
        assert harness.metric("controller_runtime_reconcile_errors_total", controller="widget") == 0


async def test_one_child_does_not_wait_for_the_look_at_the_primary(fake_api: FakeApi) -> None:
    async def replace(ctx: Context) -> Result | None:
        if not ctx.children(CONFIG_MAP):
            await ctx.execute([Create(CONFIG_MAP, build_child(ctx, "w-0"))])
        return None

    # The look is answered only when the child is there.
    async with running(fake_api, Script(replace)) as harness:
        fake_api.fail(
            "get",
            WIDGET,
            status=503,
            retry_after=0.01,
            times=3,
            where=lambda _: not fake_api.objects(CONFIG_MAP),
        )
        fake_api.create(build_widget())
        await harness.converged()

        assert len(fake_api.objects(CONFIG_MAP)) == 1
        assert harness.metric("controller_runtime_reconcile_errors_total", controller="widget") == 0
