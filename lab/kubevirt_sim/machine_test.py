"""The VM controller as tables: strategies, requests, failures, printable statuses.

The tables were derived from KubeVirt's source (main of August 2026); README.md names the places.
Compare each new release of KubeVirt with them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.kubevirt_sim.machine import backoff, build_instance, plan_machine, trim_requests
from lab.kubevirt_sim.printable import TABLE, StatusInputs, find_printable_status
from lab.kubevirt_sim.samples import build_machine
from libs.common.kinds import Manifest
from libs.common.plan import Create, Delete
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE, PrintableStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
START = {"action": "Start"}


def build_vm(strategy: str = "Always", **status: Any) -> Manifest:
    vm = build_machine(strategy=strategy)
    vm["metadata"] |= {"uid": "vm", "generation": 3, "resourceVersion": "1"}
    return {**vm, "status": status}


def build_vmi(phase: str, uid: str = "one", *, ran: bool = True, **status: Any) -> Manifest:
    vmi = build_instance(build_vm())
    vmi["metadata"] |= {"uid": uid, "resourceVersion": "1"}
    times = [{"phase": "Running", "phaseTransitionTimestamp": "t"}] if ran else []
    return {**vmi, "status": {"phase": phase, "phaseTransitionTimestamps": times, **status}}


def act(vm: Manifest, vmi: Manifest | None, *, disks_ready: bool = True) -> tuple[str, Manifest]:
    """Return what is done to the instance, `create`, `delete` or nothing, and the status."""
    plan = plan_machine(vm, vmi, [], disks_ready=disks_ready, now=NOW)
    names = {Create: "create", Delete: "delete"}
    steps = [step for step in plan.steps if step.kind == VIRTUAL_MACHINE_INSTANCE]
    return "".join(names[type(step)] for step in steps), plan.status


@pytest.mark.parametrize(
    ("strategy", "phase", "requests", "done", "left"),
    [
        ("Always", None, [], "create", []),
        ("Always", "Running", [], "", []),
        ("Always", "Succeeded", [], "delete", []),
        ("Always", "Failed", [], "delete", []),
        ("Always", "Running", [{"action": "Stop", "uid": "one"}, START], "delete", None),
        ("Always", "Running", [{"action": "Stop", "uid": "other"}, START], "", [START]),
        ("Halted", None, [], "", []),
        ("Halted", "Running", [], "delete", []),
        ("Manual", None, [], "", []),
        ("Manual", None, [START], "create", [START]),
        ("Manual", "Running", [START], "", []),
        ("Manual", "Succeeded", [], "", []),
        ("Manual", "Running", [{"action": "Stop", "uid": "one"}], "delete", None),
        ("Manual", None, [{"action": "Stop", "uid": "one"}], "", []),
        ("RerunOnFailure", "Failed", [], "delete", [START]),
        ("RerunOnFailure", "Succeeded", [], "delete", []),
        ("RerunOnFailure", None, [START], "create", [START]),
        ("Once", None, [], "create", []),
        ("Once", "Failed", [], "", []),
    ],
)
def test_strategy_decides(
    strategy: str, phase: str | None, requests: list[Any], done: str, left: list[Any] | None
) -> None:
    vm = build_vm(strategy, stateChangeRequests=requests, runStrategy=strategy)
    vmi = None if phase is None else build_vmi(phase)

    step, status = act(vm, vmi)

    assert step == done
    assert status.get("stateChangeRequests", []) == (requests if left is None else left)


def test_change_to_rerun_on_failure_starts_and_an_end_does_not() -> None:
    assert act(build_vm("RerunOnFailure", runStrategy="Halted"), None)[0] == "create"
    assert act(build_vm("RerunOnFailure", runStrategy="RerunOnFailure"), None)[0] == ""


def test_disks_that_are_not_ready_hold_a_start_but_not_a_stop() -> None:
    assert act(build_vm("Always"), None, disks_ready=False)[0] == ""
    assert act(build_vm("Halted"), build_vmi("Running"), disks_ready=False)[0] == "delete"


@given(
    requests=st.lists(
        st.sampled_from([START, {"action": "Stop", "uid": "one"}, {"action": "Stop", "uid": "x"}]),
        max_size=3,
    ),
    phase=st.sampled_from([None, "", "Running", "Succeeded", "Failed"]),
)
def test_only_the_first_request_is_taken_off(requests: list[Any], phase: str | None) -> None:
    vmi = None if phase is None else build_vmi(phase)

    left = trim_requests(list(requests), vmi)

    assert left in (requests, requests[1:])


@pytest.mark.parametrize(
    ("count", "chance", "seconds"),
    [(1, 0, 10), (2, 0, 40), (3, 0, 90), (5, 0, 250), (6, 0, 300), (1, 1, 15), (5, 1, 300)],
)
def test_back_off_grows_with_the_square_up_to_five_minutes(
    count: int, chance: float, seconds: float
) -> None:
    assert backoff(count, 300.0, chance) == seconds


def test_instance_that_never_ran_is_counted_once_and_delays_the_next() -> None:
    failed = build_vmi("Failed", ran=False)
    step, status = act(build_vm("Always"), failed)
    assert step == "delete" and status["startFailure"]["consecutiveFailCount"] == 1
    again = act(build_vm("Always", **status), failed)[1]
    assert again["startFailure"] == status["startFailure"]

    plan = plan_machine(build_vm("Always", **status), None, [], disks_ready=True, now=NOW)
    assert plan.steps == () and plan.wait == 10
    assert plan.status["printableStatus"] == "CrashLoopBackOff"


def test_instance_that_runs_clears_the_count() -> None:
    vm = build_vm("Always", startFailure={"consecutiveFailCount": 4, "lastFailedVMIUID": "x"})

    assert "startFailure" not in act(vm, build_vmi("Running"))[1]


def test_order_of_the_printable_statuses_is_that_of_the_source() -> None:
    assert [word.value for word, _ in TABLE] == [
        "Terminating",
        "Stopping",
        "Migrating",
        "Paused",
        "Running",
        "ErrorPvcNotFound",
        "DataVolumeError",
        "ErrorUnschedulable",
        "Provisioning",
        "WaitingForVolumeBinding",
        "ErrImagePull",
        "ImagePullBackOff",
        "Starting",
        "CrashLoopBackOff",
        "Stopped",
        "WaitingForReceiver",
    ]


def condition(type_: str, status: str = "True", reason: str = "") -> Manifest:
    return {"type": type_, "status": status, "reason": reason}


def disk(phase: str) -> Manifest:
    return {"metadata": {"name": "d"}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("vmi", "disks", "word"),
    [
        (None, [], "Stopped"),
        (build_vmi(""), [], "Starting"),
        (build_vmi("Scheduled"), [], "Starting"),
        (build_vmi("Running"), [], "Running"),
        (build_vmi("Succeeded"), [], "Stopped"),
        (build_vmi("Running", migrationState={"startTimestamp": "t"}), [], "Migrating"),
        (
            build_vmi("Running", migrationState={"startTimestamp": "t", "endTimestamp": "u"}),
            [],
            "Running",
        ),
        (build_vmi("Running", conditions=[condition("Paused")]), [], "Paused"),
        (build_vmi("Pending"), [disk("ImportInProgress")], "Provisioning"),
        (build_vmi("Pending"), [disk("WaitForFirstConsumer")], "WaitingForVolumeBinding"),
        (build_vmi("Pending"), [disk("Failed")], "DataVolumeError"),
        (build_vmi("Running"), [disk("Failed")], "Running"),
        (
            build_vmi(
                "Scheduling", conditions=[condition("PodScheduled", "False", "Unschedulable")]
            ),
            [],
            "ErrorUnschedulable",
        ),
        (
            build_vmi(
                "Pending", conditions=[condition("Synchronized", "False", "FailedPvcNotFound")]
            ),
            [],
            "ErrorPvcNotFound",
        ),
        (build_vmi("Unknown"), [], "Unknown"),
    ],
)
def test_first_word_that_fits_is_shown(
    vmi: Manifest | None, disks: list[Manifest], word: str
) -> None:
    strategy = "Always" if vmi is not None else "Halted"
    inputs = StatusInputs(build_vm(strategy), vmi, strategy, disks)

    assert find_printable_status(inputs) == PrintableStatus(word)


def test_instance_carries_what_its_machine_gives_it() -> None:
    vmi = build_instance(build_vm())

    metadata = vmi["metadata"]
    assert (metadata["name"], metadata["labels"]) == ("web", {"app": "web"})
    assert metadata["annotations"]["kubevirt.io/vm-generation"] == "3"
    assert metadata["ownerReferences"][0]["uid"] == "vm"
    assert vmi["spec"]["domain"]["firmware"]["uuid"] == "vm"
