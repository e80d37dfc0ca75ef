"""The operator as a whole, against a fake API server over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from libs.common.kinds import CONTROLLER_REVISION, EVENT, NAMESPACE, POD, Manifest, uid_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.podset.controller import OPERATOR, PODSET
from operators.podset.naming import ATTEMPT_ANNOTATION, SET_LABEL
from operators.podset.samples import (
    TEMPLATE,
    WEB,
    build_podset,
    condition,
    fail_pod,
    make_ready,
    names,
    writes,
)


async def run_pods(api: FakeApi, operator: OperatorHarness) -> None:
    """Let the pods that the operator makes get ready."""
    await operator.converged()
    for name in names(api):
        make_ready(api, name)
    await operator.converged()


async def test_set_makes_its_pods_and_tells(api: FakeApi, operator: OperatorHarness) -> None:
    api.create(build_podset(replicas=3))
    await run_pods(api, operator)

    status = api.get(PODSET, WEB)["status"]
    assert names(api) == status["podNames"] == ["web-pod-0", "web-pod-1", "web-pod-2"]
    assert status["readyReplicas"] == 3
    assert condition(api, "Ready") == ("True", "AllAvailable")


async def test_settled_set_is_not_written_again(api: FakeApi, operator: OperatorHarness) -> None:
    api.create(build_podset(replicas=3))
    await operator.converged()
    mark = api.mark()
    api.patch(PODSET, WEB, {"metadata": {"annotations": {"example.com/touched": "yes"}}})
    await operator.converged()
    await operator.restart()
    await operator.converged()

    assert writes(api, mark) == []


async def test_scale_subresource_works_in_both_directions(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=1))
    await operator.converged()
    for replicas in (4, 2):
        scale = {"spec": {"replicas": replicas}}
        await operator.client.patch(PODSET, WEB, scale, subresource="scale")
        await operator.converged()

        assert len(names(api)) == replicas
    found = await operator.client.get(PODSET, WEB, subresource="scale")
    assert found["status"]["selector"] == f"{SET_LABEL}=web"


async def test_pod_deleted_by_hand_comes_back(api: FakeApi, operator: OperatorHarness) -> None:
    api.create(build_podset(replicas=3))
    await operator.converged()
    before = uid_of(api.get(POD, ("default", "web-pod-1")))
    api.delete(POD, ("default", "web-pod-1"))
    await operator.converged()

    assert names(api) == ["web-pod-0", "web-pod-1", "web-pod-2"]
    assert uid_of(api.get(POD, ("default", "web-pod-1"))) != before


async def test_pod_that_terminates_is_replaced_beside_it(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2))
    await operator.converged()
    api.bind(("default", "web-pod-0"))
    api.delete(POD, ("default", "web-pod-0"))
    await operator.converged()
    assert names(api) == ["web-pod-0", "web-pod-1", "web-pod-2"]
    assert api.get(PODSET, WEB)["status"]["terminatingReplicas"] == 1

    api.finish_termination(POD, ("default", "web-pod-0"))
    await operator.converged()
    assert names(api) == ["web-pod-1", "web-pod-2"]
    assert api.get(PODSET, WEB)["status"]["terminatingReplicas"] == 0


async def test_pods_go_with_their_set(api: FakeApi, operator: OperatorHarness) -> None:
    api.create(build_podset(replicas=2))
    await operator.converged()
    api.delete(PODSET, WEB)
    await operator.eventually(lambda: not names(api), "the garbage is collected")
    # The watch of the children may be ahead of the one that says that their set was deleted.
    await operator.converged()
    await operator.eventually(
        lambda: not names(api) and not api.objects(CONTROLLER_REVISION, "default"),
        "what was created in the meantime is collected as well",
    )
    mark = api.mark()
    await operator.converged()

    assert writes(api, mark) == []


async def test_quota_shows_and_ends(api: FakeApi, operator: OperatorHarness) -> None:
    api.fail("create", POD, status=403, times=None, message="exceeded quota: pods")
    mark = api.mark()
    api.create(build_podset(replicas=100))
    await operator.eventually(
        lambda: condition(api, "ReplicaFailure") == ("True", "FailedCreate"), "the quota shows"
    )
    # Slow start: the first create of a reconcile is alone.
    assert len([each for each in api.writes(since=mark) if each.kind == POD]) < 20
    assert condition(api, "Ready") == ("False", "FailedCreate")

    api.faults.clear()
    await operator.eventually(lambda: len(names(api)) == 100)
    await operator.converged()
    assert condition(api, "ReplicaFailure") == ("False", "AsExpected")


async def test_namespace_that_is_going_is_left_alone(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2))
    await operator.converged()
    api.collector.pause()
    api.delete(NAMESPACE, ("", "default"))
    api.delete(POD, ("default", "web-pod-0"))
    await operator.converged()

    refused = [each for each in api.requests if each.status == 403]
    assert len(refused) == 1
    assert not operator.failing


async def test_update_replaces_every_pod_and_keeps_enough(
    api: FakeApi, operator: OperatorHarness
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    api.create(build_podset(replicas=4, template=TEMPLATE, updateStrategy=strategy))
    await run_pods(api, operator)
    api.patch(PODSET, WEB, {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}})
    fewest = 4
    while condition(api, "Ready")[0] != "True" or _old(api):
        await operator.converged()
        ready = [pod for pod in api.objects(POD) if (pod["status"].get("conditions") or [])]
        fewest = min(fewest, len(ready))
        for name in set(names(api)) - {pod["metadata"]["name"] for pod in ready}:
            make_ready(api, name)
        await operator.converged()

    assert fewest == 3
    assert len(names(api)) == api.get(PODSET, WEB)["status"]["updatedReplicas"] == 4


async def test_update_with_surge_goes_on_where_a_quota_leaves_no_room_for_it(
    api: FakeApi, operator: OperatorHarness
) -> None:
    """As with a Deployment: what may be unavailable goes, and makes room for the new pods."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    api.create(build_podset(replicas=3, template=TEMPLATE, updateStrategy=strategy))
    await run_pods(api, operator)
    api.fail(
        "create",
        POD,
        status=403,
        message="exceeded quota: pods",
        times=None,
        where=lambda _: len(names(api)) >= 3,
    )
    api.patch(PODSET, WEB, {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}})

    async def go_on() -> bool:
        for pod in api.objects(POD):
            if not pod["status"].get("conditions"):
                make_ready(api, pod["metadata"]["name"])
        return not _old(api) and condition(api, "Ready") == ("True", "AllAvailable")

    await operator.eventually(go_on, "every pod has the new template")
    assert len(names(api)) == 3


async def test_template_that_the_server_refuses_leaves_the_pods_that_work(
    api: FakeApi, operator: OperatorHarness
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    api.create(build_podset(replicas=3, template=TEMPLATE, updateStrategy=strategy))
    await run_pods(api, operator)
    fault = api.fail("create", POD, status=422, message="spec.containers[0].image", times=None)
    api.patch(PODSET, WEB, {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}})

    await operator.eventually(lambda: fault.hits >= 4, "it was tried again and again")
    assert len(_old(api)) == 3


def _old(api: FakeApi) -> list[Manifest]:
    return [pod for pod in api.objects(POD) if "v" not in pod["metadata"]["labels"]]


@pytest.mark.parametrize(("verb", "code"), [("create", 500), ("create", 404), ("delete", 404)])
async def test_refusal_of_a_webhook_is_shown_whatever_its_code(
    api: FakeApi, operator: OperatorHarness, verb: str, code: int
) -> None:
    """A 404 for a deletion is not the end of the pod, and a 500 is a response."""
    api.create(build_podset(replicas=1))
    await operator.converged()
    denied = 'admission webhook "a.example.com" denied the request: no'
    api.fail(verb, POD, status=code, message=denied, times=None)

    api.patch(PODSET, WEB, {"spec": {"replicas": 2 if verb == "create" else 0}})

    reason = {"create": "FailedCreate", "delete": "FailedDelete"}[verb]
    await operator.eventually(lambda: condition(api, "ReplicaFailure") == ("True", reason))
    assert condition(api, "Ready") == ("False", reason)


async def test_failing_pods_are_backed_off_over_restarts(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=1, backoff={"baseSeconds": 2}))
    await operator.converged()
    fail_pod(api, "web-pod-0")
    await operator.eventually(lambda: _attempt(api) == "1", "the first failure costs nothing")
    ended = datetime.now(UTC).replace(microsecond=0)
    fail_pod(api, "web-pod-0", ended)
    await operator.converged()
    assert condition(api, "Stalled") == ("True", "BackOff")

    await operator.restart(crash=True)
    await operator.eventually(lambda: _attempt(api) == "2", "the back-off ends")
    assert datetime.now(UTC) >= ended + timedelta(seconds=2)
    await operator.converged()
    assert condition(api, "Stalled") == ("False", "AsExpected")


def _attempt(api: FakeApi) -> str:
    pod = api.find(POD, ("default", "web-pod-0")) or {"metadata": {}}
    return str(pod["metadata"].get("annotations", {}).get(ATTEMPT_ANNOTATION, ""))


async def test_restart_in_the_middle_fills_up_the_rest(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=300))
    await operator.eventually(lambda: len(names(api)) > 20, "it has begun")
    await operator.restart(crash=True)
    await operator.converged()

    assert names(api) == sorted(f"web-pod-{slot}" for slot in range(300))


async def test_two_leaders_at_once_make_each_pod_once(api: FakeApi) -> None:
    async with (
        OperatorHarness(OPERATOR, api.config) as first,
        OperatorHarness(OPERATOR, api.config) as second,
    ):
        api.create(build_podset(replicas=200))
        await asyncio.gather(first.converged(), second.converged())

        made = [each for each in api.writes() if each.kind == POD and each.status == 201]
        assert len(made) == len(names(api)) == 200


async def test_spec_that_contradicts_itself_is_told(
    api: FakeApi, operator: OperatorHarness
) -> None:
    expression = {"key": "app", "operator": "In", "values": ["other"]}
    selector = {"matchExpressions": [expression]}
    api.create(build_podset(replicas=1, template=TEMPLATE, selector=selector))
    await operator.converged()

    assert condition(api, "Ready") == ("False", "InvalidSpec")
    assert names(api) == []


async def test_events_tell_what_was_done(api: FakeApi, operator: OperatorHarness) -> None:
    api.create(build_podset(replicas=5))
    await operator.converged()
    await operator.eventually(lambda: api.objects(EVENT), "an event is written")

    (event,) = api.objects(EVENT)
    assert event["reason"] == "PodsCreated"
    assert event["note"] == "Created web-pod-0, web-pod-1, web-pod-2 and 2 more"


async def test_event_names_the_pod_that_ended_and_is_replaced(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=1))
    await run_pods(api, operator)
    fail_pod(api, "web-pod-0", datetime.now(UTC) - timedelta(hours=1))

    def warnings() -> list[Manifest]:
        return [event for event in api.objects(EVENT) if event["type"] == "Warning"]

    await operator.eventually(warnings, "an event about the pod")
    (event,) = warnings()
    assert event["reason"] == "PodsEnded"
    assert event["note"] == "web-pod-0 ended and is replaced: Failed"
