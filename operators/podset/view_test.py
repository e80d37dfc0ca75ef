from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import POD, Manifest, build_object
from operators.podset.naming import (
    ATTEMPT_ANNOTATION,
    DELETION_COST_ANNOTATION,
    SLOT_LABEL,
    TEMPLATE_HASH_LABEL,
)
from operators.podset.shrink import shrink_pod
from operators.podset.simulation import build_owner
from operators.podset.view import is_gone, parse_pod, seconds_of


def build_pod(status: Manifest | None = None, **metadata: Any) -> Manifest:
    """Build a pod as a real API server shows it."""
    return build_object(
        POD,
        "web-pod-3",
        "default",
        metadata={
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-31T12:00:00Z",
            "labels": {"app": "web", TEMPLATE_HASH_LABEL: "h", SLOT_LABEL: "3"},
            "annotations": {"large": "x" * 1000},
            "ownerReferences": [build_owner()],
            "managedFields": [{"manager": "kubelet"}],
            **metadata,
        },
        spec={
            "nodeName": "node",
            "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
            "containers": [{"name": "main", "image": "busybox"}],
        },
        status=status or {},
    )


RUNNING: Manifest = {
    "phase": "Running",
    "podIP": "10.0.0.1",
    "conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:05Z"},
    ],
    "containerStatuses": [
        {"name": "main", "restartCount": 2, "state": {"running": {}}, "imageID": "sha256:0"},
        {"name": "side", "restartCount": 5, "state": {"running": {}}},
    ],
}
REJECTED: Manifest = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node has no cpu left"}
ENDED: Manifest = {
    "phase": "Failed",
    "conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-31T12:01:00Z"}
    ],
    "containerStatuses": [
        {"state": {"terminated": {"reason": "Error", "finishedAt": "2026-01-31T12:00:30Z"}}},
        {"state": {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-01-31T12:00:59Z"}}},
    ],
}
UNSCHEDULABLE: Manifest = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available",
            "lastTransitionTime": "2026-01-31T12:00:00Z",
        }
    ],
}
PULLING: Manifest = {
    "phase": "Pending",
    "containerStatuses": [
        {"restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
    ],
}
INITIALIZING: Manifest = {"state": {"waiting": {"reason": "PodInitializing"}}}
SET_UP: Manifest = {
    "name": "setup",
    "restartCount": 7,
    "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "t"}},
}
SETTING_UP: Manifest = {
    "phase": "Pending",
    "initContainerStatuses": [
        {"name": "setup", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        {"name": "proxy", "restartCount": 0, **INITIALIZING},
    ],
    "containerStatuses": [{"name": "main", "restartCount": 0, **INITIALIZING}],
}
SETUP_FAILED: Manifest = {
    **SETTING_UP,
    "initContainerStatuses": [
        {"name": "setup", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    ],
}
WITH_SIDECAR: Manifest = {
    **RUNNING,
    "initContainerStatuses": [SET_UP, {"name": "proxy", "restartCount": 3, "state": {}}],
}
STATUSES = [{}, RUNNING, REJECTED, ENDED, UNSCHEDULABLE, PULLING]
STATUSES += [SETTING_UP, SETUP_FAILED, WITH_SIDECAR]


def test_running_pod_is_read() -> None:
    pod = parse_pod(build_pod(RUNNING), "web")

    assert (pod.slot, pod.node, pod.phase, pod.is_ready) == (3, "node", "Running", True)
    assert (pod.ready_since, pod.restarts, pod.template_hash) == ("2026-01-31T12:00:05Z", 5, "h")
    assert pod.is_active and not pod.has_ended and not pod.problem


def test_restarts_of_sidecars_are_read_apart_from_those_of_containers() -> None:
    pod = parse_pod(build_pod(WITH_SIDECAR), "web")

    assert (pod.restarts, pod.sidecar_restarts) == (5, 3)


def test_pod_that_is_being_deleted_does_not_count() -> None:
    pod = parse_pod(build_pod(ENDED, deletionTimestamp="2026-01-31T12:00:00Z"), "web")

    assert not pod.is_active and not pod.has_ended


@pytest.mark.parametrize(
    ("status", "ended", "problem"),
    [
        (ENDED, "2026-01-31T12:00:59Z", "Error"),
        (REJECTED, "2026-01-31T12:00:00Z", "OutOfcpu: Node has no cpu left"),
        (UNSCHEDULABLE, "", "Unschedulable"),
        (PULLING, "", "ImagePullBackOff"),
        (SETTING_UP, "", "Init:CrashLoopBackOff"),
        (SETUP_FAILED, "", "Init:Error"),
        ({**SETTING_UP, "initContainerStatuses": [SET_UP]}, "", ""),
    ],
    ids=["ended", "rejected", "unschedulable", "pulling", "init", "init failed", "init done"],
)
def test_trouble_and_end_are_read(status: Manifest, ended: str, problem: str) -> None:
    pod = parse_pod(build_pod(status), "web")

    assert (pod.ended, pod.problem) == (ended, problem)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        *(("7", 7), ("-7", -7), ("-007", -7), ("0", 0), ("-2147483648", -(2**31))),
        *(("x", 0), ("", 0), (None, 0), ("-", 0), ("2147483648", 0), ("9" * 5_000, 0)),
        # What Python takes for a number and Kubernetes does not.
        *(("+7", 0), ("007", 0), (" 7", 0), ("1_0", 0), ("\u0667", 0)),
    ],
)
def test_deletion_cost_that_is_no_number_counts_as_none(text: str | None, cost: int) -> None:
    pod = build_pod(RUNNING, annotations={DELETION_COST_ANNOTATION: text} if text else {})

    assert parse_pod(pod, "web").deletion_cost == cost


@pytest.mark.parametrize(
    ("text", "attempt"),
    [("3", 3), ("x", 0), ("-1", 0), ("9" * 30, 1000), ("9" * 5_000, 1000), ("\u0667", 0)],
)
def test_attempt_is_read_with_a_bound(text: str, attempt: int) -> None:
    pod = build_pod(RUNNING, annotations={ATTEMPT_ANNOTATION: text})

    assert parse_pod(pod, "web").attempt == attempt


@pytest.mark.parametrize("status", STATUSES)
@given(
    annotations=st.dictionaries(
        st.sampled_from([ATTEMPT_ANNOTATION, DELETION_COST_ANNOTATION, "other"]),
        st.integers(0, 9).map(str),
    ),
    going=st.booleans(),
)
def test_shrunk_pod_reads_like_the_whole_one(
    status: Manifest, annotations: dict[str, str], going: bool
) -> None:
    fields = {"deletionTimestamp": "2026-01-31T12:00:00Z"} if going else {}
    pod = build_pod(status, annotations=annotations, **fields)
    shrunk = shrink_pod(pod)

    assert parse_pod(shrunk, "web") == parse_pod(pod, "web")
    assert shrink_pod(shrunk) == shrunk
    assert shrunk["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]
    assert len(json.dumps(shrunk)) < 1_200


def test_heartbeat_of_a_pod_changes_nothing_in_the_cache() -> None:
    later = {**RUNNING, "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "10.0.0.2"}

    assert shrink_pod(build_pod(RUNNING)) == shrink_pod(build_pod(later))


def test_pods_of_a_set_share_what_they_have_in_common() -> None:
    first, second = shrink_pod(build_pod(RUNNING)), shrink_pod(build_pod(RUNNING, name="x"))

    for name in ("labels", "ownerReferences"):
        assert first["metadata"][name] is second["metadata"][name]
    assert first["status"]["conditions"][0] is second["status"]["conditions"][0]


def test_shrunk_pod_is_parsed_once_for_each_set() -> None:
    shrunk = shrink_pod(build_pod(RUNNING))

    assert parse_pod(shrunk, "web") is parse_pod(shrunk, "web")
    assert parse_pod(shrunk, "other").slot is None
    assert parse_pod(shrunk, "web").slot == 3


@pytest.mark.parametrize(
    ("metadata", "gone"),
    [
        ({}, False),
        ({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}, False),
        ({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}, True),
        ({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0, "finalizers": ["x"]}, False),
    ],
)
def test_pod_without_grace_and_finalizers_is_gone(metadata: Manifest, gone: bool) -> None:
    assert is_gone(build_pod(**metadata)) is gone
    assert is_gone(shrink_pod(build_pod(**metadata))) is gone


def test_time_is_parsed_and_an_empty_one_is_none() -> None:
    assert seconds_of("1970-01-01T00:01:00Z") == 60
    assert seconds_of("") is None
