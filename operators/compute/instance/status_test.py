"""What an Instance shows of its machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import Manifest
from operators.compute.instance.observed import Machine, Run
from operators.compute.instance.status import build_status
from operators.compute.samples import (
    LARGE,
    build_observation,
    parse_instance,
    show_disk,
    show_machine,
    show_run,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOT_SHARED = "cannot migrate VMI: PVC web-root is not shared"


def show(run: Manifest, machine: Machine | None = None, **spec: Any) -> Manifest:
    """Return the Instance of size `large` after a reconcile that saw a run."""
    instance = parse_instance(size="large", status={"size": "small"}, **spec)
    observed = build_observation(
        size=LARGE,
        disks=[show_disk()],
        machine=show_machine() if machine is None else machine,
        run=Run.parse(run),
    )
    return {"status": build_status(instance, observed, {}, now=NOW)}


def build_run(*conditions: Manifest, cpus: int, memory: str) -> Manifest:
    """Build a run whose spec has the size `large` already, as KubeVirt writes it first."""
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "run-1"},
        "spec": {
            "domain": {"cpu": {"sockets": 4, "cores": 1, "threads": 1}, "memory": {"guest": "8Gi"}},
            "volumes": [{"name": "root", "dataVolume": {"name": "web-root"}}],
        },
        "status": {
            "phase": "Running",
            "nodeName": "node-1",
            "currentCPUTopology": {"sockets": cpus, "cores": 1, "threads": 1},
            "memory": {"guestAtBoot": "4Gi", "guestCurrent": memory, "guestRequested": "8Gi"},
            "conditions": [ready, *conditions],
        },
    }


def state(type_: str, status: str = "True", message: str = "", reason: str = "") -> Manifest:
    return {"type": type_, "status": status, "message": message, "reason": reason}


@pytest.mark.parametrize(
    ("cpus", "memory", "size"),
    [(2, "4Gi", "small"), (4, "4Gi", "small"), (2, "8Gi", "small"), (4, "8Gi", "large")],
)
def test_size_is_what_the_guest_has(cpus: int, memory: str, size: str) -> None:
    assert show(build_run(cpus=cpus, memory=memory))["status"]["size"] == size


@pytest.mark.parametrize("change", ["HotVCPUChange", "HotMemoryChange"])
def test_size_that_waits_for_a_migration_is_told(change: str) -> None:
    pinned = state("LiveMigratable", "False", NOT_SHARED, "DisksNotLiveMigratable")

    moving = find_condition(show(build_run(state(change), cpus=2, memory="4Gi")), "ResizePending")
    stuck = find_condition(
        show(build_run(state(change), pinned, cpus=2, memory="4Gi")), "ResizePending"
    )

    assert moving is not None and moving["reason"] == "HotplugInProgress"
    assert stuck is not None and stuck["reason"] == "HotplugBlocked"
    assert NOT_SHARED in stuck["message"]
    assert find_condition(show(build_run(cpus=4, memory="8Gi")), "ResizePending") is None


def test_size_that_kubevirt_refuses_is_told_in_its_words() -> None:
    words = "another CPU hotplug is in progress"
    failure = state("Failure", message=words, reason="HotPlugCPUError")
    machine = show_machine(status={"conditions": [failure]})

    shown = find_condition(show(build_run(cpus=2, memory="4Gi"), machine), "ResizePending")

    assert shown is not None
    assert (shown["reason"], words in shown["message"]) == ("HotplugRefused", True)


def test_paused_machine_is_shown_as_such() -> None:
    run = build_run(state("Paused", reason="PausedByUser"), cpus=4, memory="8Gi")
    run["status"]["conditions"][0]["status"] = "False"

    shown = show(run)

    running = find_condition(shown, "Running")
    assert running is not None
    assert (running["status"], running["reason"]) == ("False", "Paused")
    assert "virtctl unpause" in running["message"]
    assert shown["status"]["phase"] == "Paused"


@pytest.mark.parametrize(
    ("condition", "phase", "reason", "words"),
    [
        (
            ("Paused", "True", "low-level IO error", "PausedIOError"),
            "Running",
            "Paused",
            "low-level IO error",
        ),
        (
            ("Synchronized", "False", "Failed to get write lock", "Failed"),
            "Scheduled",
            "StartFailed",
            "write lock",
        ),
        (("Ready", "False", "", "PodTerminating"), "Running", "Stopping", "is being deleted"),
        (("Ready", "False", "", "GuestNotRunning"), "Scheduling", "Starting", "Events of its pod"),
        (("Ready", "False", "", ""), "Running", "Starting", "the guest boots"),
    ],
)
def test_machine_that_does_not_run_says_why(
    condition: tuple[str, str, str, str], phase: str, reason: str, words: str
) -> None:
    run = build_run(cpus=4, memory="8Gi")
    conditions = [{"type": "Ready", "status": "False"}, state(*condition)]
    run["status"] |= {"phase": phase, "conditions": conditions[condition[0] == "Ready" :]}

    running = find_condition(show(run), "Running")
    assert running is not None
    assert (running["status"], running["reason"]) == ("False", reason)
    assert words in running["message"]


def test_disk_that_one_node_alone_can_mount_is_why_a_guest_cannot_move() -> None:
    pinned = state("LiveMigratable", "False", NOT_SHARED, "DisksNotLiveMigratable")

    shown = find_condition(show(build_run(pinned, cpus=4, memory="8Gi")), "Migratable")

    assert shown is not None
    assert shown["message"] == (
        f"{NOT_SHARED}; set spec.rootDisk.accessModes to ReadWriteMany and rebuild the machine"
    )


READY_STATES = [
    ({}, {}, "True/Running"),
    ({"power": "Stopped"}, {"run": None}, "True/Stopped"),
    ({}, {"run": None}, "False/Starting"),
    ({}, {"disks": [show_disk(filled=False)]}, "False/Provisioning"),
    ({}, {"disks": [show_disk(filled=False, failed=True)]}, "False/ImportFailed"),
    ({"networkRef": {"name": "lan"}}, {}, "False/NetworkMissing"),
    ({"firewallRef": {"name": "web"}}, {}, "False/FirewallMissing"),
    ({"publicIP": {"mode": "Claim", "claimName": "a"}}, {}, "False/ClaimMissing"),
    ({}, {"silent_node": "node-1"}, "False/NodeSilent"),
    ({}, {"foreign": ("VirtualMachine default/web",)}, "False/Conflict"),
    ({}, {"size": None}, "False/SizeMissing"),
]


@pytest.mark.parametrize(
    ("spec", "observation", "expected"), READY_STATES, ids=[each[2] for each in READY_STATES]
)
def test_ready_names_the_first_thing_that_is_missing(
    spec: dict[str, Any], observation: dict[str, Any], expected: str
) -> None:
    parts = {"disks": [show_disk()], "machine": show_machine(), "run": show_run(agent=True)}
    observed = build_observation(**{**parts, **observation})

    shown = {"status": build_status(parse_instance(**spec), observed, {}, now=NOW)}

    ready = find_condition(shown, "Ready")
    assert ready is not None
    assert f"{ready['status']}/{ready['reason']}" == expected
    assert shown["status"]["message"] == ready["message"]


def test_machine_that_no_node_can_run_quotes_the_scheduler() -> None:
    words = "0/3 nodes are available: 1 node(s) had volume node affinity conflict"
    run = build_run(state("PodScheduled", "False", words, "Unschedulable"), cpus=2, memory="4Gi")
    run["status"] |= {"phase": "Scheduling", "nodeName": ""}
    machine = show_machine(status={"printableStatus": "ErrorUnschedulable"})

    running = find_condition(show(run, machine), "Running")

    assert running is not None and running["reason"] == "StartFailed"
    assert words in running["message"]


def test_machine_whose_size_was_deleted_stays_ready_and_says_so() -> None:
    """It runs, and is started again with the CPUs and memory that it has."""
    machine, run = show_machine(), show_run(agent=True)
    observed = build_observation(size=None, disks=[show_disk()], machine=machine, run=run)

    shown = {
        "status": build_status(parse_instance(status={"size": "small"}), observed, {}, now=NOW)
    }

    ready = find_condition(shown, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("True", "Running")
    assert "InstanceSize small does not exist" in ready["message"]


def test_lost_guest_agent_is_named_in_ready() -> None:
    """For example, after a kernel panic."""
    status = {"verifiedBoot": {"vmiUID": "run-1", "proof": "Agent"}}
    observed = build_observation(disks=[show_disk()], machine=show_machine(), run=show_run())

    shown = {"status": build_status(parse_instance(status=status), observed, {}, now=NOW)}

    ready = find_condition(shown, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("True", "AgentLost")
    assert "responded earlier" in ready["message"]
