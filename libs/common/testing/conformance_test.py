"""The conformance suite finds operators that are wrong: widgets, each with one mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import CONFIG_MAP, SECRET, Manifest, build_object
from libs.common.plan import Apply, Create
from libs.common.runtime import Context, Controller, Operator, Result
from libs.common.testing import widget
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.widget import WIDGET, build_widget


def build_suite(
    controller: Callable[[Any], Controller], initial_objects: Iterable[Manifest] = (), **more: Any
) -> OperatorConformance:
    """Build the suite for an operator with a mistake."""
    subject = Subject(
        Operator("widget", (controller,), settings=widget.Settings),
        crds=(build_crd(WIDGET, None, ("status",)),),
        objects=lambda: (build_widget(),),
        change={"spec": {"count": 3}},
        children=(CONFIG_MAP,),
        initial_objects=lambda: tuple(initial_objects),
        settings={"source": "reflector"},
        **more,
    )
    return OperatorConformance.of(subject)


def build_wrong(**parts: Any) -> Callable[[Any], Controller]:
    """Build a widget operator, parts of whose controller are others."""

    def build(settings: Any) -> Controller:
        return replace(widget.build_controller(settings), **parts)

    return build


async def show(ctx: Context, generation: int, current: Iterable[Manifest] = ()) -> None:
    """Say that a Widget is ready."""
    condition = Condition.true("Ready", "AllMade")
    said = build_conditions(current, [condition], generation=generation, now=ctx.now())
    await ctx.apply_status({"conditions": said})


async def rewrite_time(ctx: Context) -> None:
    """Forget what the conditions were before."""
    await show(ctx, ctx.generation)


async def speak_of_the_first_spec(ctx: Context) -> None:
    """Report conditions of a generation that was not the observed one."""
    held = (ctx.primary.get("status") or {}).get("conditions") or ()
    await show(ctx, 1, held)


async def leave_an_orphan(ctx: Context) -> None:
    """Make a ConfigMap that belongs to nobody, once."""
    orphan = build_object(CONFIG_MAP, "orphan", ctx.key.namespace)
    if ctx.get(CONFIG_MAP, ctx.key._replace(name="orphan")) is None:
        await ctx.execute([Create(CONFIG_MAP, orphan, ours=lambda _: True)])


async def never_end(_: Context) -> Result:
    """Return a Result from a clean-up, as a successful reconcile does."""
    return Result()


async def read_a_secret(ctx: Context) -> None:
    """Copy what a Secret has; that it changes is not heard, since it is only read."""
    secret = ctx.get(SECRET, ctx.key._replace(name="s"))
    copied = build_object(
        CONFIG_MAP,
        "copy",
        ctx.key.namespace,
        metadata={"ownerReferences": [ctx.owner_reference()]},
        data={"there": str(secret is not None)},
    )
    await ctx.execute([Apply(CONFIG_MAP, copied)])


async def test_times_that_are_written_anew_are_found() -> None:
    suite = build_suite(build_wrong(reconcile=rewrite_time))

    with pytest.raises(AssertionError, match=r"writes after a restart: .'patch widgets/status"):
        await suite.test_no_writes_when_converged()


async def test_conditions_of_an_older_spec_are_found() -> None:
    suite = build_suite(build_wrong(reconcile=speak_of_the_first_spec))

    with pytest.raises(AssertionError, match="default/w: Ready is of an older spec"):
        await suite.test_no_writes_when_converged()


async def test_clean_up_that_never_ends_is_found() -> None:
    suite = build_suite(build_wrong(finalize=never_end))

    with pytest.raises(AssertionError, match=r"held by a finalizer: .'default/w \(AllMade"):
        await suite.test_deletion_leaves_what_was_there_before()


async def test_child_that_outlives_its_owner_is_found_unless_that_is_meant() -> None:
    wrong = build_wrong(reconcile=leave_an_orphan)

    with pytest.raises(pytest.fail.Exception, match="ConfigMap default/orphan is there"):
        await build_suite(wrong).test_deletion_leaves_what_was_there_before()
    meant = build_suite(wrong, outliving=(CONFIG_MAP,))
    await meant.test_deletion_leaves_what_was_there_before()


async def test_kind_that_is_read_and_not_watched_is_found() -> None:
    secret = build_object(SECRET, "s", "default")

    def build(settings: Any) -> Controller:
        return build_wrong(reconcile=read_a_secret)(settings).reads(SECRET)

    with pytest.raises(AssertionError, match=r"is their kind watched\?: .'patch configmaps"):
        await build_suite(build, [secret]).test_change_of_others_is_heard()


async def test_difference_is_told_in_words() -> None:
    """Pytest explains the asserts of tests, not the asserts of a library."""
    suite = build_suite(widget.build_controller)
    expected = await suite.run()
    other = replace(expected, state={**expected.state, "ConfigMap default/more": {"data": {}}})

    with pytest.raises(pytest.fail.Exception, match="ConfigMap default/more is there"):
        suite._assert_same(other, expected, "a fault")
