from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from libs.common.errors import (
    Conflict,
    Forbidden,
    Invalid,
    MutatedByAdmission,
    ServerError,
    Unreachable,
)
from libs.common.kinds import POD, Key, Manifest
from libs.common.plan import Create, Delete, Outcome, Patch, Step, StepFailure
from operators.podset.api.v1 import POD_NAMES_LIMIT, PodSetStatus
from operators.podset.reconcile import Observed
from operators.podset.simulation import START, TEMPLATE, Cluster, Process, desire, start
from operators.podset.status import build_status, find_refusal

CREATE = Create(POD, {"metadata": {"name": "web-pod-0", "namespace": "default"}})
DELETE = Delete(POD, Key("default", "web-pod-0"), "u")
PATCH = Patch(POD, Key("default", "web-pod-0"), "u", ())
WEBHOOK = 'Internal error occurred: failed calling webhook "x.example.com": connection refused'


def conditions(status: Manifest) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def message_of(process: Process) -> str:
    """Return the message of the condition Ready."""
    return str(process.status()["conditions"][0]["message"])


def failed(step: Step, error: Exception) -> Outcome:
    """Build the outcome of a reconcile in which one step failed."""
    return Outcome(failures=(StepFailure(step, error),))


def quota() -> Forbidden:
    """Build the error of an exhausted quota."""
    return Forbidden(403, "Forbidden", "exceeded quota: pods", operation="POST /pods")


def test_settled_set_is_ready() -> None:
    _, process = start(3)
    status = process.status()

    assert conditions(status) == {
        "Ready": ("True", "AllAvailable"),
        "Available": ("True", "MinimumAvailable"),
        "Progressing": ("False", "AllAvailable"),
        "ReplicaFailure": ("False", "AsExpected"),
        "Stalled": ("False", "AsExpected"),
        "Conflict": ("False", "AsExpected"),
    }
    assert {name: value for name, value in status.items() if name != "conditions"} == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "updatedReplicas": 3,
        "terminatingReplicas": 0,
        "selector": "batch.tutorial.kubebuilder.io/podset=web",
        "podNames": ["web-pod-0", "web-pod-1", "web-pod-2"],
    }


def test_status_fits_its_model() -> None:
    _, process = start(3)

    assert PodSetStatus.from_manifest(process.status()).to_manifest() == process.status()


def test_pending_pods_count_but_are_not_ready() -> None:
    process = Process(Cluster(), desire(replicas=2))
    process.reconcile()
    status = process.status()

    assert (status["replicas"], status["readyReplicas"]) == (2, 0)
    assert conditions(status)["Ready"] == ("False", "PodsNotReady")
    assert conditions(status)["Progressing"] == ("True", "PodsNotReady")


def test_message_names_a_pod_and_its_trouble() -> None:
    cluster, process = start(2)
    waiting = [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    cluster.change(
        "web-pod-1",
        lambda pod: pod.update(status={"phase": "Pending", "containerStatuses": waiting}),
    )
    process.deliver()

    assert message_of(process) == "1 of 2 pods available; web-pod-1 (ImagePullBackOff)"


def test_message_names_a_pod_of_which_nothing_is_known_but_that_it_is_not_available() -> None:
    """A probe that fails shows nowhere else in the status of a pod."""
    cluster, process = start(2, minReadySeconds=30)
    assert "web-pod-0 (ready, waits for spec.minReadySeconds)" in message_of(process)
    cluster.later(30)
    cluster.run("web-pod-1", ready=False)
    process.deliver()

    assert message_of(process) == "1 of 2 pods available; web-pod-1 (Running, not ready)"


def test_update_that_does_not_go_on_names_the_new_pod_in_trouble() -> None:
    template = {**TEMPLATE, "metadata": {"labels": {"app": "web", "v": "2"}}}
    cluster, process = start(3)
    process.desired = desire(replicas=3, template=template, updateStrategy={"type": "Recreate"})
    assert message_of(process) == "3 pods of an older template left"
    cluster.delete("web-pod-2", cluster.pods["web-pod-2"]["metadata"]["uid"])
    cluster.vanish("web-pod-2")
    process.deliver()
    process.reconcile()
    waiting = [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    cluster.change("web-pod-2", lambda pod: pod["status"].update(containerStatuses=waiting))
    process.deliver()

    assert message_of(process) == "2 pods of an older template left; web-pod-2 (ImagePullBackOff)"


def _wait(containers: list[Manifest], pod: Manifest) -> None:
    pod["status"].update(phase="Pending", containerStatuses=containers)


def test_pod_that_only_starts_is_no_problem_to_name() -> None:
    cluster = Cluster()
    process = Process(cluster, desire(template=TEMPLATE, replicas=3))
    process.reconcile()
    for name, reason in (("web-pod-0", "ContainerCreating"), ("web-pod-2", "ErrImagePull")):
        waiting = [{"state": {"waiting": {"reason": reason}}}]
        cluster.change(name, partial(_wait, waiting))
    process.deliver()

    assert message_of(process) == "0 of 3 pods available; web-pod-2 (ErrImagePull)"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"replicas": 4}, "ScalingUp"),
        ({"replicas": 2}, "ScalingDown"),
        ({"replicas": 4, "paused": True}, "ScalingUp"),
        ({"replicas": 3, "updateStrategy": {"type": "Recreate"}, "paused": True}, "Paused"),
        ({"replicas": 3, "updateStrategy": {"type": "Recreate"}}, "Updating"),
    ],
)
def test_reason_says_what_is_left_to_do(spec: dict[str, Any], reason: str) -> None:
    _, process = start(3)
    process.desired = desire(**({"template": TEMPLATE} | spec))
    if "updateStrategy" in spec:
        labels = {"metadata": {"labels": {"v": "2"}}}
        process.desired = desire(**{**spec, "template": TEMPLATE | labels})

    ready = conditions(process.status())["Ready"]
    assert ready == ("False", reason)


def test_old_template_is_no_matter_when_pods_are_updated_on_delete() -> None:
    _, process = start(3)
    process.desired = desire(replicas=3)
    status = process.status()

    assert conditions(status)["Ready"] == ("True", "AllAvailable")
    assert status["updatedReplicas"] == 0


def test_pod_is_available_once_it_has_been_ready_for_long_enough() -> None:
    cluster, process = start(1, minReadySeconds=30)

    assert process.status()["availableReplicas"] == 0
    cluster.later(30)
    assert process.status()["availableReplicas"] == 1


def test_strict_set_says_what_it_waits_for() -> None:
    cluster, process = start(2, podReplacementPolicy="TerminationComplete")
    cluster.delete("web-pod-1", cluster.pods["web-pod-1"]["metadata"]["uid"])
    process.deliver()
    status = process.status()

    assert conditions(status)["Ready"] == ("False", "WaitingForTermination")
    assert (status["replicas"], status["terminatingReplicas"]) == (1, 1)
    assert "web-pod-1" in status["conditions"][0]["message"]


def test_failing_pods_stall_the_set() -> None:
    cluster, process = start(2)
    for _ in range(2):
        cluster.end("web-pod-1")
        process.deliver()
        process.reconcile()
    status = process.status()

    assert conditions(status)["Stalled"] == ("True", "BackOff")
    assert conditions(status)["Ready"] == ("False", "BackOff")
    assert "web-pod-1 (Error)" in status["conditions"][4]["message"]
    cluster.later(9)
    assert process.status()["conditions"][4]["message"] == status["conditions"][4]["message"]


def test_name_that_is_taken_is_a_conflict() -> None:
    cluster = Cluster()
    cluster.create({"metadata": {"name": "web-pod-1"}, "spec": {}})
    process = Process(cluster, desire(replicas=2))
    process.reconcile()
    status = process.status()

    assert conditions(status)["Conflict"] == ("True", "NameTaken")
    assert status["podNames"] == ["web-pod-0", "web-pod-2"]


def test_strict_set_that_lacks_a_slot_says_which_pod_to_delete() -> None:
    cluster = Cluster()
    cluster.create({"metadata": {"name": "web-pod-1"}, "spec": {}})
    process = Process(cluster, desire(replicas=2, podReplacementPolicy="TerminationComplete"))
    process.reconcile()

    assert conditions(process.status())["Ready"] == ("False", "NameTaken")
    assert conditions(process.status())["Progressing"] == ("True", "NameTaken")
    assert "until these pods are deleted: web-pod-1 (no controller)" in message_of(process)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (failed(CREATE, quota()), "FailedCreate"),
        (failed(CREATE, Invalid(422, "Invalid", "spec.containers")), "FailedCreate"),
        (failed(DELETE, quota()), "FailedDelete"),
        (failed(PATCH, quota()), "FailedUpdate"),
        (failed(PATCH, Invalid(422, "Invalid", "denied by a policy")), "FailedUpdate"),
        (failed(PATCH, Conflict(409, "Conflict", "the test failed")), None),
        (failed(CREATE, MutatedByAdmission(POD, Key("default", "web-pod-0"), "x")), "FailedCreate"),
        (failed(CREATE, ServerError(500, "InternalError", WEBHOOK)), "FailedCreate"),
        (failed(DELETE, ServerError(500, "InternalError", WEBHOOK)), "FailedDelete"),
        (failed(CREATE, ServerError(500, "InternalError", "etcdserver: leader changed")), None),
        (failed(CREATE, Unreachable("POST", "refused")), None),
        (failed(DELETE, Conflict(409, "Conflict", "changed")), None),
        (None, None),
    ],
)
def test_refusal_is_told_and_a_hiccup_is_not(outcome: Outcome | None, reason: str | None) -> None:
    refusal = find_refusal(outcome)

    assert (refusal.reason if refusal else None) == reason


def test_refused_pod_shows_the_words_of_the_server() -> None:
    desired = desire(replicas=2)
    status = build_status(desired, Observed(()), START, failed(CREATE, quota()))

    assert conditions(status)["ReplicaFailure"] == ("True", "FailedCreate")
    assert conditions(status)["Ready"] == ("False", "FailedCreate")
    assert status["conditions"][0]["message"] == "exceeded quota: pods"


def test_times_of_conditions_stay_until_they_change() -> None:
    _, process = start(1)
    first = process.status()
    podset = process.desired.podset.model_copy(update={"status": PodSetStatus.from_manifest(first)})
    desired = type(process.desired)(
        podset, process.desired.blueprint, process.desired.budget, process.desired.owner
    )

    assert build_status(desired, process.observe(), START + timedelta(days=1)) == first


def test_names_are_listed_by_slot_up_to_a_bound() -> None:
    process = Process(Cluster(), desire(replicas=POD_NAMES_LIMIT + 5))
    process.reconcile()
    status = process.status()

    assert status["replicas"] == POD_NAMES_LIMIT + 5
    assert status["podNames"] == [f"web-pod-{slot}" for slot in range(POD_NAMES_LIMIT)]
