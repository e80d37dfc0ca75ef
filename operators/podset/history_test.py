"""Revisions over HTTP: what is recorded, what a partition keeps, and how a set is rolled back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import CONTROLLER_REVISION, POD, Kind, Manifest, uid_of
from libs.common.ownership import controller_uid
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.kstatus import compute_status
from operators.podset.controller import PODSET
from operators.podset.meaning import POD_TEMPLATE
from operators.podset.naming import SET_LABEL, TEMPLATE_HASH_LABEL
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


def build_template(image: str) -> Manifest:
    """Build a template whose pods run an image."""
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["image"] = image
    return template


def rolling(**limits: Any) -> Manifest:
    """Build an update strategy."""
    return {"type": "RollingUpdate", "rollingUpdate": limits}


def images(api: FakeApi) -> list[str]:
    """Return the images of all pods, in alphabetical order."""
    return sorted(map(image_of, api.objects(POD)))


def image_of(pod: Manifest) -> str:
    """Return the image of a pod."""
    return str(pod["spec"]["containers"][0]["image"])


def recorded(api: FakeApi) -> dict[str, int]:
    """Return the number of each revision by the image that it records."""
    return {
        each["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: each["revision"]
        for each in api.objects(CONTROLLER_REVISION)
    }


def name_of(api: FakeApi, image: str) -> str:
    """Return the name of the revision that records an image."""
    (found,) = [
        each["metadata"]["name"]
        for each in api.objects(CONTROLLER_REVISION)
        if each["data"]["spec"]["template"]["spec"]["containers"][0]["image"] == image
    ]
    return str(found)


async def converge(api: FakeApi, operator: OperatorHarness) -> None:
    """Make pods ready until nothing changes any more."""
    for _ in range(12):
        await operator.converged()
        fresh = [
            pod["metadata"]["name"]
            for pod in api.objects(POD)
            if (pod.get("status") or {}).get("phase") != "Running"
        ]
        if not fresh:
            return
        for name in fresh:
            make_ready(api, name)
    raise AssertionError("the set does not come to rest")


def change(api: FakeApi, **spec: Any) -> None:
    """Change fields of the spec."""
    api.patch(PODSET, WEB, {"spec": spec})


async def test_template_is_recorded_before_pods_are_made_and_once(
    api: FakeApi, operator: OperatorHarness
) -> None:
    created = api.create(build_podset(replicas=2, template=build_template("one")))
    await converge(api, operator)

    made = [each for each in writes(api, 0) if each.startswith("create") and "PodSet" not in each]
    (revision,) = api.objects(CONTROLLER_REVISION)
    status = api.get(PODSET, WEB)["status"]
    assert made[0].startswith("create controllerrevisions ")
    assert controller_uid(revision) == uid_of(created)
    assert revision["revision"] == 1
    assert revision["data"]["spec"]["template"]["spec"] == build_template("one")["spec"]
    assert status["currentRevision"] == status["updateRevision"] == revision["metadata"]["name"]
    labels = revision["metadata"]["labels"]
    assert all(
        pod["metadata"]["labels"][TEMPLATE_HASH_LABEL] == labels[TEMPLATE_HASH_LABEL]
        for pod in api.objects(POD)
    )
    mark = api.mark()
    await operator.restart()
    await operator.converged()
    assert writes(api, mark) == []


async def test_pod_that_a_partition_protects_is_recreated_from_its_own_template(
    api: FakeApi, operator: OperatorHarness
) -> None:
    strategy = rolling(partition=2)
    api.create(build_podset(replicas=3, template=build_template("one"), updateStrategy=strategy))
    await converge(api, operator)
    change(api, template=build_template("two"))
    await converge(api, operator)
    assert images(api) == ["one", "one", "two"]
    status = api.get(PODSET, WEB)["status"]
    assert status["currentRevision"] == name_of(api, "one")
    assert status["updateRevision"] == name_of(api, "two")

    await operator.restart()
    for image in ("one", "two"):
        victim = next(
            pod for pod in api.objects(POD) if pod["spec"]["containers"][0]["image"] == image
        )
        api.delete(POD, ("default", victim["metadata"]["name"]))
        await converge(api, operator)
        assert images(api) == ["one", "one", "two"]

    change(api, updateStrategy=rolling(partition=0))
    await converge(api, operator)
    assert images(api) == ["two", "two", "two"]
    assert api.get(PODSET, WEB)["status"]["currentRevision"] == name_of(api, "two")


@pytest.mark.parametrize("deleted", ["scaled", "new"])
async def test_partition_keeps_the_older_template_while_no_pod_has_it(
    api: FakeApi, operator: OperatorHarness, deleted: str
) -> None:
    # kubernetes#121534. An autoscaler that scales to 0 at night must not complete a canary.
    strategy = rolling(partition=2)
    api.create(build_podset(replicas=4, template=build_template("one"), updateStrategy=strategy))
    await converge(api, operator)
    change(api, template=build_template("two"))
    await converge(api, operator)
    old = [pod for pod in api.objects(POD) if image_of(pod) == "one"]
    if deleted == "new":
        change(api, replicas=2, podsToDelete=[pod["metadata"]["name"] for pod in old])
    else:
        change(api, replicas=0)
    await converge(api, operator)
    change(api, replicas=4, podsToDelete=[])
    await converge(api, operator)

    assert images(api) == ["one", "one", "two", "two"]


async def test_new_template_of_a_set_that_was_scaled_to_0_is_not_the_current_one(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2, template=build_template("one"), updateStrategy=rolling()))
    await converge(api, operator)
    change(api, replicas=0, template=build_template("two"))
    await converge(api, operator)
    change(api, replicas=2, updateStrategy=rolling(partition=1))
    await converge(api, operator)

    assert images(api) == ["one", "two"]


async def test_set_whose_named_revision_was_deleted_uses_the_same_template_of_the_spec(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=3, template=build_template("one"), updateStrategy=rolling()))
    await converge(api, operator)
    revision = name_of(api, "one")
    change(api, templateRevision=revision)
    await converge(api, operator)
    api.delete(CONTROLLER_REVISION, ("default", revision))
    api.delete(POD, ("default", "web-pod-0"))
    await converge(api, operator)

    assert images(api) == ["one"] * 3
    assert condition(api, "Ready") == ("True", "AllAvailable")
    assert recorded(api) == {"one": 1}


async def test_set_whose_named_revision_is_unknown_keeps_its_number_of_pods(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=3, template=build_template("one"), updateStrategy=rolling()))
    await converge(api, operator)
    change(api, template=build_template("two"), templateRevision="web-0123456789-abcde")
    await converge(api, operator)
    api.delete(POD, ("default", "web-pod-0"))
    change(api, replicas=4)
    await converge(api, operator)

    assert images(api) == ["one"] * 4
    assert condition(api, "Ready") == ("False", "InvalidSpec")
    assert condition(api, "Available") == ("True", "MinimumAvailable")
    assert condition(api, "Stalled") == ("True", "InvalidSpec")
    ready = find_condition(api.get(PODSET, WEB), "Ready") or {}
    assert "remove the field to use spec.template" in ready["message"]
    mark = api.mark()
    await operator.restart()
    await operator.converged()
    assert writes(api, mark) == []


async def test_set_whose_template_is_unknown_reports_how_many_pods_are_left(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2, template=build_template("one"), updateStrategy=rolling()))
    await converge(api, operator)
    revision = name_of(api, "one")
    change(api, template=build_template("two"), templateRevision=revision)
    await converge(api, operator)
    for each in api.objects(CONTROLLER_REVISION):
        api.delete(CONTROLLER_REVISION, ("default", each["metadata"]["name"]))
    api.delete(POD, ("default", "web-pod-0"))
    await operator.converged()

    assert names(api) == ["web-pod-1"]
    assert condition(api, "Ready") == ("False", "InvalidSpec")
    assert condition(api, "Available") == ("False", "MinimumUnavailable")
    ready = find_condition(api.get(PODSET, WEB), "Ready") or {}
    assert "kubectl get" not in ready["message"], "there is none to list"


async def test_paused_set_creates_pods_from_the_template_that_its_pods_have(
    api: FakeApi, operator: OperatorHarness
) -> None:
    # argo-rollouts#4261: what is paused is the update, as for a Deployment.
    api.create(build_podset(replicas=2, template=build_template("one"), updateStrategy=rolling()))
    await converge(api, operator)
    change(api, paused=True, template=build_template("two"), replicas=3)
    await converge(api, operator)
    assert images(api) == ["one"] * 3
    assert condition(api, "Ready") == ("False", "Paused")
    assert condition(api, "Available") == ("True", "MinimumAvailable")
    assert recorded(api) == {"one": 1}

    change(api, replicas=0)
    await converge(api, operator)
    change(api, replicas=1)
    await converge(api, operator)
    assert images(api) == ["one"]

    change(api, paused=False)
    await converge(api, operator)
    assert images(api) == ["two"]
    assert condition(api, "Ready") == ("True", "AllAvailable")


async def test_set_that_is_paused_from_the_beginning_has_no_template_to_use(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=1, template=build_template("one"), paused=True))
    await converge(api, operator)
    assert names(api) == []
    assert condition(api, "Ready") == ("False", "Paused")

    change(api, paused=False)
    await converge(api, operator)
    assert images(api) == ["one"]


async def test_protected_pod_that_fails_at_once_is_replaced_after_a_delay(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(
        build_podset(
            replicas=1, template=build_template("one"), updateStrategy=rolling(partition=1)
        )
    )
    await converge(api, operator)
    change(api, template=build_template("two"))
    await converge(api, operator)
    for _ in range(2):
        fail_pod(api, names(api)[0])
        await operator.converged()

    assert images(api) == ["one"]
    assert condition(api, "Stalled") == ("True", "BackOff")


async def test_set_is_rolled_back_to_a_revision_and_forward_again(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2, template=build_template("one"), updateStrategy=rolling()))
    await converge(api, operator)
    change(api, template=build_template("two"))
    await converge(api, operator)
    assert images(api) == ["two", "two"]

    change(api, templateRevision=name_of(api, "one"))
    await converge(api, operator)
    assert images(api) == ["one", "one"]
    assert recorded(api) == {"one": 3, "two": 2}
    assert api.get(PODSET, WEB)["status"]["updateRevision"] == name_of(api, "one")
    assert condition(api, "Ready") == ("True", "AllAvailable")
    assert api.get(PODSET, WEB)["spec"]["template"] == build_template("two")

    change(api, templateRevision=None)
    await converge(api, operator)
    assert images(api) == ["two", "two"]
    assert recorded(api) == {"one": 3, "two": 4}


@pytest.mark.parametrize("forged", ["content", "owner", "missing"])
async def test_revision_that_is_not_one_of_the_set_is_refused_and_its_pods_stay(
    api: FakeApi, operator: OperatorHarness, forged: str
) -> None:
    created = api.create(
        build_podset(replicas=1, template=build_template("one"), updateStrategy=rolling())
    )
    await converge(api, operator)
    revision = copy.deepcopy(api.objects(CONTROLLER_REVISION)[0])
    metadata = revision["metadata"]
    owner = {**metadata["ownerReferences"][0]}
    if forged == "owner":
        owner["uid"] = "somebody-else"
        metadata["labels"].pop(SET_LABEL)
    else:
        revision["data"]["spec"]["template"]["spec"]["containers"][0]["image"] = "evil"
    revision["metadata"] = {
        "name": "forged",
        "namespace": "default",
        "labels": metadata["labels"],
        "ownerReferences": [owner],
    }
    if forged != "missing":
        api.create(revision)
    change(api, templateRevision="forged")
    await operator.converged()

    assert images(api) == ["one"]
    assert condition(api, "Ready") == ("False", "InvalidSpec")
    (ready,) = [
        each for each in api.get(PODSET, WEB)["status"]["conditions"] if each["type"] == "Ready"
    ]
    assert ready["message"].startswith("PodSet default/web: spec.templateRevision: ")
    assert uid_of(api.get(PODSET, WEB)) == uid_of(created)


async def test_history_keeps_as_many_templates_as_asked_for_and_those_of_pods(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=1, template=build_template("v0"), revisionHistoryLimit=2))
    await converge(api, operator)
    for version in range(1, 6):
        change(api, template=build_template(f"v{version}"))
        await converge(api, operator)

    # The pod of an OnDelete set still has the first template.
    assert images(api) == ["v0"]
    assert sorted(recorded(api)) == ["v0", "v3", "v4", "v5"]


async def test_next_set_of_the_name_takes_over_orphaned_pods_with_their_revisions(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2, template=build_template("one")))
    await converge(api, operator)
    api.delete(PODSET, WEB, propagation="Orphan")
    await operator.eventually(
        lambda: not any(map(controller_uid, api.objects(CONTROLLER_REVISION))), "orphaned"
    )
    created = api.create(
        build_podset(
            replicas=2, template=build_template("two"), updateStrategy=rolling(partition=2)
        )
    )
    await converge(api, operator)
    api.delete(POD, ("default", names(api)[0]))
    await converge(api, operator)

    assert images(api) == ["one", "one"]
    owners = {controller_uid(each) for each in api.objects(CONTROLLER_REVISION)}
    assert owners == {uid_of(created)}


async def test_revision_that_cannot_be_written_is_reported_and_written_later(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.fail(
        "create", CONTROLLER_REVISION, status=403, times=1, message="exceeded quota: revisions"
    )
    api.create(build_podset(replicas=1, template=build_template("one")))
    await converge(api, operator)

    assert recorded(api) == {"one": 1}
    assert images(api) == ["one"]


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (POD_TEMPLATE, 500, 'failed calling webhook "a.example.com": refused'),
        (CONTROLLER_REVISION, 500, 'failed calling webhook "a.example.com": refused'),
        (CONTROLLER_REVISION, 403, "exceeded quota: revisions"),
    ],
)
async def test_set_heals_with_the_template_of_its_pods_while_a_new_one_cannot_be_recorded(
    api: FakeApi, operator: OperatorHarness, kind: Kind, code: int, words: str
) -> None:
    api.create(build_podset(replicas=3, template=build_template("one"), updateStrategy=rolling()))
    await converge(api, operator)
    fault = api.fail("create", kind, status=code, message=words, times=None)
    change(api, template=build_template("two"), replicas=2)
    await operator.eventually(lambda: fault.hits and len(names(api)) == 2)
    api.delete(POD, ("default", "web-pod-0"))
    await operator.eventually(lambda: names(api) == ["web-pod-0", "web-pod-1"])

    assert images(api) == ["one", "one"]
    await operator.eventually(lambda: condition(api, "Ready") == ("False", "FailedCreate"))
    assert condition(api, "ReplicaFailure") == ("True", "FailedCreate")
    found = find_condition(api.get(PODSET, WEB), "Ready")
    assert found is not None and words in found["message"]

    fault.release()

    def is_updated() -> bool:
        for pod in api.objects(POD):
            make_ready(api, pod["metadata"]["name"])
        return images(api) == ["two", "two"]

    await operator.eventually(is_updated, "the pods have the new template")


async def test_counts_are_current_while_the_spec_is_invalid(
    api: FakeApi, operator: OperatorHarness
) -> None:
    expression = {"key": "app", "operator": "In", "values": ["web"]}
    selector = {"matchExpressions": [expression]}
    api.create(build_podset(replicas=3, template=TEMPLATE, selector=selector))
    await converge(api, operator)
    assert api.get(PODSET, WEB)["status"]["readyReplicas"] == 3
    change(api, template={**TEMPLATE, "metadata": {"labels": {"app": "other"}}})
    await operator.converged()
    assert condition(api, "Ready") == ("False", "InvalidSpec")
    api.delete(POD, ("default", "web-pod-1"))
    await operator.converged()

    status = api.get(PODSET, WEB)["status"]
    assert [status[f"{name}eplicas"] for name in ("r", "readyR", "availableR", "updatedR")] == [
        2
    ] * 4
    assert status["podNames"] == ["web-pod-0", "web-pod-2"]
    assert condition(api, "Available") == ("False", "MinimumUnavailable")
    assert condition(api, "Progressing") == ("False", "InvalidSpec")
    assert condition(api, "ReplicaFailure") == ("Unknown", "InvalidSpec")
    assert compute_status(api.get(PODSET, WEB)) == "Failed"
    mark = api.mark()
    await operator.restart()
    await operator.converged()
    assert writes(api, mark) == []

    change(api, template=TEMPLATE)
    await converge(api, operator)
    assert condition(api, "Ready") == ("True", "AllAvailable")
