"""The workloads of podset: when a phase ends, and which states count as equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.sweep.modes import Mode
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.triggers import Trigger
from lab.sweep.workload import State, load_workloads
from lab.sweep.workloads.podset import fold_adopted, fold_names, has_owned, has_pods
from libs.common.kinds import CONTROLLER_REVISION, POD, Manifest, build_object
from operators.podset.controller import PODSET

WORKLOADS = {each.id: each for each in load_workloads("podset")}


def build_record(*versions: str, revisions: int = 1, **status: Any) -> NamespaceRecord:
    """Build the record of a converged set with a pod of each version."""
    record = NamespaceRecord()
    owner = {"uid": "set", "controller": True}
    for number, version in enumerate(versions):
        note(record, POD, f"web-pod-{number}", annotations={"version": version}, owner=owner)
    for number in range(revisions):
        note(record, CONTROLLER_REVISION, f"web-{number}", owner=owner)
    podset = build_object(PODSET, "web", "ns", metadata={"uid": "set", "generation": 2})
    podset["status"] = {
        "observedGeneration": 2,
        "readyReplicas": len(versions),
        "updateRevision": "web-0",
        "conditions": [{"type": "Ready", "status": "True"}],
        **status,
    }
    record.note("ADDED", PODSET, podset)
    return record


def note(
    record: NamespaceRecord, kind: Any, name: str, *, owner: Manifest, **metadata: Any
) -> None:
    fields = {"uid": f"uid-of-{name}", "ownerReferences": [owner], **metadata}
    record.note("ADDED", kind, build_object(kind, name, "ns", metadata=fields))


@pytest.mark.parametrize(
    ("status", "over"),
    [
        ({}, True),
        ({"terminatingReplicas": 1}, False),
        ({"readyReplicas": 1}, False),
        ({"updateRevision": ""}, False),
    ],
)
def test_phase_is_over_only_when_the_status_has_counted_the_pods(
    status: dict[str, Any], over: bool
) -> None:
    """The write may be refused with Retry-After: all else is as it should be a second before."""
    held = next(each for each in WORKLOADS["history"].phases if each.name == "hold")

    assert has_pods(2, "1")(build_record("1", "1", **status)) is over
    assert has_owned(2)(build_record("1", "1", **status)) is over
    assert held.until(build_record("2", "3", revisions=2, **status)) is over


def test_adopted_pods_and_new_ones_give_equal_states() -> None:
    def build_state(**status: Any) -> State:
        return {"podsets web": {"status": {"replicas": 2, **status}}}

    adopted = fold_adopted(build_state(updatedReplicas=0, podNames=["old-0", "old-1"]))
    new = fold_adopted(build_state(updatedReplicas=2, currentRevision="web-1"))

    assert adopted == new


def test_deletion_of_the_revision_that_is_rolled_back_to_is_not_tried() -> None:
    spares = WORKLOADS["history"].spares
    lost = Trigger("event", "back", "MODIFIED", "controllerrevisions.apps", "*")

    assert spares(Mode.GONE, lost)
    assert not spares(Mode.CUT, lost)
    assert not spares(Mode.GONE, replace(lost, phase="hold"))


def build_pods(**versions: str) -> State:
    """Build the state of pods by slot."""
    return {
        f"pods web-pod-{slot[1:]}": {
            "metadata": {
                "name": f"web-pod-{slot[1:]}",
                "annotations": {"version": version},
                "labels": {"app": "web", "batch.tutorial.kubebuilder.io/slot": slot[1:]},
            },
            "spec": {"hostname": f"web-pod-{slot[1:]}"},
        }
        for slot, version in versions.items()
    }


def test_pods_of_two_templates_may_have_each_other_s_slots() -> None:
    """A foreign pod had the name of a slot for a while; a partition names a number of pods."""
    wanted = fold_names(build_pods(s0="3", s1="2"))

    assert fold_names(build_pods(s0="2", s2="3")) == wanted
    assert fold_names(build_pods(s0="3", s1="3")) != wanted
    assert fold_names(build_pods(s0="3")) != wanted
