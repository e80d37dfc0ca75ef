"""Script: an operator of Widgets whose passes do what a test says."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from libs.common.kinds import CONFIG_MAP
from libs.common.runtime import Context, Controller, Operator, Result
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.widget import FINALIZER, WIDGET, Settings

type Pass = Callable[[Context], Awaitable[Result | None]]


class Script:
    """Reconcile Widgets as a test says, and count.

    Attributes:
        count: Passes that ended, by name of the Widget.
        at_work: Passes that are running.
        most_at_work: Most passes that ran over one Widget at a time.
        finalizing: Calls of the clean-up.
    """

    def __init__(self, act: Pass | None = None) -> None:
        """Do nothing, or what `act` does."""
        self.act = act
        self.count: Counter[str] = Counter()
        self.at_work: Counter[str] = Counter()
        self.most_at_work = 0
        self.finalizing = 0

    async def reconcile(self, ctx: Context) -> Result | None:
        """Act as the test says."""
        name = ctx.key.name
        self.at_work[name] += 1
        self.most_at_work = max(self.most_at_work, self.at_work[name])
        try:
            return await self.act(ctx) if self.act else None
        finally:
            self.at_work[name] -= 1
            self.count[name] += 1

    async def finalize(self, ctx: Context) -> Result | None:
        """Act as the test says."""
        self.finalizing += 1
        return await self.act(ctx) if self.act else None

    def build_controller(self, _: Settings) -> Controller:
        """Declare a controller without a finalizer that owns ConfigMaps."""
        return Controller(
            "widget", primary=WIDGET, reconcile=self.reconcile, source="reflector"
        ).owns(CONFIG_MAP, source="reflector")

    def build_finalizing_controller(self, _: Settings) -> Controller:
        """Declare a controller with a finalizer; a Widget whose text is `free` needs none."""
        return Controller(
            "widget",
            primary=WIDGET,
            reconcile=self.reconcile,
            finalize=self.finalize,
            finalizer=FINALIZER,
            needs_finalizer=lambda widget: widget["spec"].get("text") != "free",
            source="reflector",
        )


@asynccontextmanager
async def running(
    api: FakeApi, script: Script, *, finalizer: bool = False, **options: Any
) -> AsyncIterator[OperatorHarness]:
    """Serve Widgets and run an operator that follows a script."""
    api.register(WIDGET)
    build = script.build_finalizing_controller if finalizer else script.build_controller
    operator = Operator("widget", (build,), settings=Settings)
    async with OperatorHarness(operator, api.config, **options) as harness:
        yield harness
