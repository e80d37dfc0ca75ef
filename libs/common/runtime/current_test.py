"""`is_current` asks the API server: what the cache shows may be over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from libs.common.kinds import Key
from libs.common.runtime import Context, Result
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.script import Script, running
from libs.common.testing.widget import WIDGET, build_widget

KEY = Key("default", "w")
FINALIZED = {"metadata": {"finalizers": ["example.com/keep"]}}


def replace(api: FakeApi) -> None:
    """Put another object under the same name, of the same generation."""
    api.vanish(WIDGET, KEY)
    api.create(build_widget())


def begin_deletion(api: FakeApi) -> None:
    """Delete an object that somebody else has a finalizer on."""
    api.patch(WIDGET, KEY, FINALIZED)
    api.delete(WIDGET, KEY)


CHANGES: dict[str, tuple[Callable[[FakeApi], object], bool]] = {
    "nothing": (lambda api: None, True),
    "a label": (lambda api: api.patch(WIDGET, KEY, {"metadata": {"labels": {"a": "b"}}}), True),
    "the spec": (lambda api: api.patch(WIDGET, KEY, {"spec": {"count": 7}}), False),
    "the incarnation": (replace, False),
    "a deletion that has begun": (begin_deletion, False),
    "a deletion": (lambda api: api.vanish(WIDGET, KEY), False),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_primary_is_current_only_as_the_server_has_it(fake_api: FakeApi, what: str) -> None:
    change, expected = CHANGES[what]
    seen: list[bool] = []

    async def ask(ctx: Context) -> Result | None:
        if not seen:
            fake_api.watches.pause(WIDGET)
            change(fake_api)
            assert ctx.get(WIDGET, KEY) == ctx.primary, "the cache has not heard of it"
            seen.append(await ctx.is_current())
            fake_api.watches.resume(WIDGET)
        return None

    async with running(fake_api, Script(ask)) as harness:
        fake_api.create(build_widget())
        await harness.converged()

    assert seen == [expected]
