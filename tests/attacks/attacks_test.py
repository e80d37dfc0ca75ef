"""Attack a system with all operators, installed as the pages say, and publish what came of it.

Each attempt has a control: the same thing, done by somebody who may or in a harmless form, must
succeed. `./dev test --only security` runs them; `python -m tests.security.page` writes the table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from libs.common.kinds import CONFIG_MAP
from libs.common.testing.apiserver import AssetsMissing, find_assets
from tests.attacks.attempt import Attempt
from tests.attacks.object_attempts import PLAIN_RULES, UNTOUCHED
from tests.attacks.stage import EDITOR, ROOT, Stage, open_stage
from tests.attacks.table import ATTEMPTS

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Install and start everything, once for all attempts."""
    try:
        missing = not (find_assets() / "kube-controller-manager").exists()
    except AssetsMissing as err:
        pytest.skip(str(err))
    if missing:
        pytest.skip("the binaries for tests, as others publish them, lack kube-controller-manager")
    async with open_stage(tmp_path_factory.mktemp("attacks")) as opened:
        await opened.client(EDITOR).create(CONFIG_MAP, PLAIN_RULES)
        yield opened


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.id)
async def test_attempt_fails_and_its_control_succeeds(attempt: Attempt, stage: Stage) -> None:
    outcome = await attempt.attack(stage)
    control = await attempt.prove(stage)

    assert outcome == attempt.outcome
    assert control == attempt.success


async def test_objects_of_others_and_the_operators_have_survived(stage: Stage) -> None:
    for kind, key in UNTOUCHED:
        live = await stage.client(ROOT).get(kind, key)
        assert not live["metadata"].get("deletionTimestamp"), key
        assert not live["metadata"].get("ownerReferences"), key
    for operator, process in stage.processes.items():
        assert process.poll() is None, stage.logs[operator].read_text()[-3000:]
