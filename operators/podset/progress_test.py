"""When a set is said to make no progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from libs.common.conditions import find_condition, render_time
from libs.common.kinds import POD, Manifest
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.kstatus import compute_status
from operators.podset.controller import OPERATOR, PODSET
from operators.podset.samples import TEMPLATE, WEB, build_pod, build_podset, condition

OVERDUE = "ProgressDeadlineExceeded"
BROKEN = {**TEMPLATE, "spec": {"containers": [{"name": "main", "image": "missing"}]}}
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


def make_ready(api: FakeApi, moment: datetime | None = None) -> None:
    """Make all pods run that are not of the broken template."""
    now = render_time(moment or datetime.now(UTC))
    for pod in api.objects(POD):
        if pod["spec"]["containers"][0]["image"] == "missing" or is_ready(pod):
            continue
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        key = ("default", pod["metadata"]["name"])
        api.patch_status(POD, key, {"phase": "Running", "conditions": [ready]})


def is_ready(pod: Manifest) -> bool:
    return find_condition(pod, "Ready") is not None


async def settle(api: FakeApi, harness: OperatorHarness) -> None:
    """Let operator and kubelets react to each other until all that can run runs."""
    await harness.converged()
    while any(
        not is_ready(pod) and pod["spec"]["containers"][0]["image"] != "missing"
        for pod in api.objects(POD)
    ):
        make_ready(api)
        await harness.converged()


@pytest.fixture
def clock() -> AdvancedClock:
    return AdvancedClock()


async def test_update_that_hangs_is_told_after_the_deadline_and_not_before(
    api: FakeApi, clock: AdvancedClock
) -> None:
    async with OperatorHarness(OPERATOR, api.config, clock=clock) as harness:
        api.create(build_podset(replicas=3, template=TEMPLATE, updateStrategy=ROLLING))
        await settle(api, harness)
        assert condition(api, "Ready") == ("True", "AllAvailable")
        api.patch(PODSET, WEB, {"spec": {"template": BROKEN}})
        await settle(api, harness)
        assert condition(api, "Progressing") == ("True", "Updating")

        clock.seconds = 500
        await harness.restart()
        await harness.converged()
        assert condition(api, "Progressing") == ("True", "Updating")
        assert condition(api, "Stalled") == ("False", "AsExpected")

        clock.seconds = 700
        await harness.restart()
        await harness.converged()
        assert condition(api, "Progressing") == ("False", OVERDUE)
        assert condition(api, "Stalled") == ("True", OVERDUE)
        assert condition(api, "Ready") == ("False", "Updating")
        mark = api.mark()
        await harness.restart()
        await harness.converged()
        assert [each for each in api.writes(since=mark) if each.kind == PODSET] == []

        api.patch(PODSET, WEB, {"spec": {"template": TEMPLATE}})
        await settle(api, harness)
        assert condition(api, "Ready") == ("True", "AllAvailable")
        assert condition(api, "Stalled") == ("False", "AsExpected")


async def test_deadline_comes_by_itself(api: FakeApi) -> None:
    """Nothing happens to the pods any more, so no event triggers another reconcile."""
    async with OperatorHarness(OPERATOR, api.config) as harness:
        api.create(build_podset(replicas=1, template=BROKEN, progressDeadlineSeconds=1))

        await harness.eventually(
            lambda: condition(api, "Stalled") == ("True", OVERDUE), "the deadline is exceeded"
        )

        assert condition(api, "Progressing") == ("False", OVERDUE)


@pytest.mark.parametrize("cause", ["quota", "name"])
async def test_set_that_is_refused_its_pods_is_stalled_after_the_deadline(
    api: FakeApi, clock: AdvancedClock, cause: str
) -> None:
    async with OperatorHarness(OPERATOR, api.config, clock=clock) as harness:
        if cause == "quota":
            api.fail("create", POD, status=403, times=1_000, message="exceeded quota: pods")
        else:
            api.create(build_pod("web-pod-0"))
        policy = "TerminationComplete"
        api.create(build_podset(replicas=1, template=TEMPLATE, podReplacementPolicy=policy))
        reason = "FailedCreate" if cause == "quota" else "NameTaken"
        await harness.eventually(
            lambda: condition(api, "Ready") == ("False", reason), "the cause is reported"
        )
        assert condition(api, "Progressing") == ("True", reason)
        assert condition(api, "Stalled") == ("False", "AsExpected")
        assert compute_status(api.get(PODSET, WEB)) == "InProgress"

        clock.seconds = 700
        await harness.restart()
        await harness.eventually(
            lambda: condition(api, "Stalled") == ("True", OVERDUE), "the deadline is exceeded"
        )
        assert condition(api, "Ready") == ("False", reason)
        assert compute_status(api.get(PODSET, WEB)) == "Failed"

        api.patch(PODSET, WEB, {"spec": {"minReadySeconds": 1}})
        await harness.eventually(
            lambda: condition(api, "Stalled") == ("False", "AsExpected"),
            "the deadline starts again",
        )
        assert condition(api, "Progressing") == ("True", reason)


async def test_new_spec_starts_the_deadline_again_while_a_set_progresses(
    api: FakeApi, clock: AdvancedClock
) -> None:
    async with OperatorHarness(OPERATOR, api.config, clock=clock) as harness:
        api.create(build_podset(replicas=1, template=BROKEN))
        await harness.converged()
        clock.seconds = 500
        api.patch(PODSET, WEB, {"spec": {"minReadySeconds": 1}})
        await harness.converged()
        clock.seconds = 900
        await harness.restart()
        await harness.converged()

        assert condition(api, "Stalled") == ("False", "AsExpected")


async def test_pods_that_become_ready_one_by_one_are_progress(
    api: FakeApi, clock: AdvancedClock
) -> None:
    async with OperatorHarness(OPERATOR, api.config, clock=clock) as harness:
        api.create(build_podset(replicas=2, template=TEMPLATE))
        await harness.converged()
        first = api.objects(POD)[0]["metadata"]["name"]
        clock.seconds = 590
        ready = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": render_time(datetime.now(UTC) + timedelta(seconds=590)),
        }
        api.patch_status(POD, ("default", first), {"phase": "Running", "conditions": [ready]})
        await harness.converged()

        clock.seconds = 1_100
        await harness.restart()
        await harness.converged()

        assert condition(api, "Progressing") == ("True", "PodsNotReady")
