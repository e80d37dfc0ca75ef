"""The end of a process has a bound, whatever a reconciler does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from libs.common.kinds import LEASE, Key
from libs.common.runtime import Context, Operator, manager
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script
from libs.common.testing.widget import WIDGET, Settings, build_widget

ELECTION: dict[str, Any] = {
    "leader_elect": True,
    "lease_duration_seconds": 60,
    "renew_deadline_seconds": 40,
    "retry_period_seconds": 0.05,
}


async def test_reconcile_that_ignores_its_cancellation_does_not_keep_the_lease(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "_CANCEL_SECONDS", 0.1)
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def insist(_: Context) -> None:
        begun.set()
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()

    fake_api.register(WIDGET)
    operator = Operator("widget", (Script(insist).build_controller,), settings=Settings)
    harness = OperatorHarness(operator, fake_api.config, **ELECTION, drain_timeout_seconds=0.1)
    await harness.start()
    fake_api.create(build_widget())
    await begun.wait()

    await asyncio.wait_for(harness.stop(), 10)

    assert harness.exits == [1]
    assert not fake_api.get(LEASE, Key("default", "widget"))["spec"].get("holderIdentity")
    let_go.set()
    await harness.client.close()
