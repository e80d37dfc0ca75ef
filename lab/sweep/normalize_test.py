from __future__ import annotations

from typing import Any

from lab.sweep.normalize import normalize
from libs.common.testing.differences import describe_difference

UID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def build_pod(uid: str = UID, owner: str = OTHER, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "web-pod-0",
            "namespace": "s-1",
            "uid": uid,
            "resourceVersion": "7",
            "ownerReferences": [{"name": "web", "uid": owner, "controller": True}],
            **metadata,
        }
    }


def test_what_no_two_runs_share_is_masked() -> None:
    names = {OTHER: "podsets web"}
    first = normalize(build_pod(resourceVersion="7"), names, "s-1")
    second = normalize(build_pod(uid=OTHER, resourceVersion="9"), names, "s-1")

    assert first == second
    assert first["metadata"]["namespace"] == "<namespace>"


def test_reference_to_another_incarnation_shows() -> None:
    names = {OTHER: "podsets web", UID: "podsets other"}
    first = normalize(build_pod(), names, "s-1")
    second = normalize(build_pod(owner=UID), names, "s-1")

    assert describe_difference(first, second) == [
        'metadata.ownerReferences[0].uid: "<podsets web>" became "<podsets other>"'
    ]


def test_how_often_a_spec_was_written_is_no_difference_but_being_behind_is() -> None:
    def build(generation: int, observed: int) -> dict[str, Any]:
        condition = {"type": "Ready", "observedGeneration": observed}
        status = {"observedGeneration": observed, "conditions": [condition]}
        return {**build_pod(generation=generation), "status": status}

    first, again, behind = (normalize(build(*each), {}, "s-1") for each in ((4, 4), (6, 6), (6, 5)))

    assert first == again
    assert describe_difference(first, behind) == [
        "status.conditions[0].observedGeneration: 0 became -1",
        "status.observedGeneration: 0 became -1",
    ]
