"""The harness reports what tests would not notice."""

from __future__ import annotations

import pytest

from libs.common.runtime import Context
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import until
from libs.common.testing.widget import build_widget


async def test_unhandled_error_that_a_retry_would_hide_fails_the_test(fake_api: FakeApi) -> None:
    async def fail_once(ctx: Context) -> None:
        if not script.count:
            raise TypeError

    async def run() -> None:
        async with running(fake_api, script) as harness:
            fake_api.create(build_widget())
            await until(lambda: script.count["w"] == 2)
            await harness.restart()
            await harness.converged()

    script = Script(fail_once)

    with pytest.raises(AssertionError, match="unhandled errors of reconciles: 1"):
        await run()
