"""Views of KubeVirt and CDI: what they show, and that nothing makes them fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import POD, Manifest, build_object
from libs.contracts.cdi import DATA_VOLUME, DataVolumeView
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    RunStrategy,
    VmiView,
    VmView,
)
from libs.contracts.launchers import LauncherView, shrink_launcher
from libs.contracts.migrations import MigrationView

GI = 2**30

values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def build_part(**parts: Any) -> Manifest:
    return {"metadata": {"name": "web", "namespace": "default", "uid": "u"}, **parts}


def build_launcher() -> Manifest:
    return build_object(
        POD,
        "virt-launcher-web-x",
        "default",
        metadata={
            "uid": "p",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubevirt.io": "virt-launcher",
                "kubevirt.io/created-by": "u",
                "kubevirt.io/migrationJobUID": "m",
                "app": "web",
            },
            "annotations": {"large": "x" * 1000},
            "ownerReferences": [
                {"kind": "VirtualMachineInstance", "name": "web", "uid": "u", "controller": True}
            ],
        },
        spec={"nodeName": "node-1", "containers": [{"name": "compute"}]},
        status={
            "phase": "Running",
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "True"},
            ],
        },
    )


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        ({"runStrategy": "Always"}, RunStrategy.ALWAYS),
        ({"running": True}, RunStrategy.ALWAYS),
        ({"running": False}, RunStrategy.HALTED),
        ({"runStrategy": "FromTheFuture"}, "FromTheFuture"),
        ({}, ""),
    ],
)
def test_machine_shows_its_strategy_however_it_is_said(spec: Manifest, strategy: str) -> None:
    assert VmView.parse(build_part(spec=spec)).run_strategy == strategy


def test_machine_shows_disks_requests_and_failures() -> None:
    volumes = [
        {"name": "root", "dataVolume": {"name": "web-root-1"}},
        {"name": "init", "cloudInitNoCloud": {}},
    ]
    view = VmView.parse(
        build_part(
            spec={"runStrategy": "Always", "template": {"spec": {"volumes": volumes}}},
            status={
                "created": True,
                "printableStatus": "Running",
                "startFailure": {"consecutiveFailCount": 2, "retryAfterTimestamp": "t"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        )
    )

    assert view.disks == {"root": "web-root-1"}
    assert (view.created, view.ready, view.start_failures, view.retry_after) == (
        True,
        False,
        2,
        "t",
    )
    assert view.conditions.holds("Ready")
    assert VIRTUAL_MACHINE.path("a", "b") == "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/b"


def test_instance_shows_where_it_runs() -> None:
    view = VmiView.parse(
        build_part(
            spec={"evictionStrategy": "External"},
            status={
                "phase": "Running",
                "nodeName": "node-1",
                "evacuationNodeName": "node-1",
                "activePods": {"p": "node-1"},
                "interfaces": [
                    {"name": "default", "mac": "02:00:00:00:00:01", "ipAddress": "10.0.0.1"},
                    {"name": "lan", "ipAddresses": ["10.1.0.1", "fd00::1"]},
                ],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        )
    )

    assert (view.ready, view.final, view.migrating) == (True, False, False)
    assert (view.node_name, view.active_pods) == ("node-1", {"p": "node-1"})
    assert (view.eviction_strategy, view.evacuation_node) == ("External", "node-1")


@pytest.mark.parametrize(
    ("state", "under_way", "succeeded"),
    [
        ({"migrationUid": "m"}, False, False),
        ({"migrationUid": "m", "startTimestamp": "t"}, True, False),
        ({"startTimestamp": "t", "endTimestamp": "u", "completed": True}, False, True),
        (
            {"startTimestamp": "t", "endTimestamp": "u", "completed": True, "failed": True},
            False,
            False,
        ),
    ],
)
def test_migration_is_under_way_from_its_start_to_its_end(
    state: Manifest, under_way: bool, succeeded: bool
) -> None:
    view = VmiView.parse(build_part(status={"phase": "Running", "migrationState": state}))

    assert view.migration is not None
    assert (view.migrating, view.migration.succeeded) == (under_way, succeeded)


@pytest.mark.parametrize(
    ("strategy", "status", "halted"),
    [
        ("Halted", {"runStrategy": "Halted", "observedGeneration": 1}, True),
        ("Halted", {"runStrategy": "Halted", "created": True}, False),
        ("Halted", {"runStrategy": "Always", "printableStatus": "Stopped"}, False),
        ("Always", {"runStrategy": "Halted", "printableStatus": "Stopped"}, False),
        ("Halted", {"printableStatus": "Stopped"}, True),
        ("Halted", {"printableStatus": "Stopping"}, False),
        ("Halted", {}, False),
    ],
    ids=["off", "ending", "not seen", "to start", "old release", "old release, ending", "new"],
)
def test_machine_is_halted_once_kubevirt_has_acted_on_it(
    strategy: str, status: Manifest, halted: bool
) -> None:
    manifest = build_part(spec={"runStrategy": strategy}, status=status)
    manifest["metadata"]["generation"] = 3

    assert VmView.parse(manifest).halted is halted


def test_migration_names_its_instance_and_its_end() -> None:
    status = {"phase": "Failed", "migrationState": {"failureReason": "no room"}}

    view = MigrationView.parse(build_part(spec={"vmiName": "web"}, status=status))

    assert (view.vmi_name, view.final, view.succeeded) == ("web", True, False)
    assert view.state is not None and view.state.failure_reason == "no room"


def test_migration_says_when_it_failed() -> None:
    """The list of phases is what KubeVirt d923fdb wrote of a migration that failed."""
    phases = [
        {"phase": "Running", "phaseTransitionTimestamp": "2026-11-23T03:04:40Z"},
        {"phase": "Failed", "phaseTransitionTimestamp": "2026-11-23T03:04:41Z"},
    ]
    under_way = {"phase": "Running", "phaseTransitionTimestamps": phases[:1]}
    failed = {"phase": "Failed", "phaseTransitionTimestamps": phases}

    assert MigrationView.parse(build_part(status=under_way)).ended_at is None
    ended = MigrationView.parse(build_part(status=failed)).ended_at
    assert ended == datetime(2026, 11, 23, 3, 4, 41, tzinfo=UTC)


@pytest.mark.parametrize(
    ("condition", "blocked"),
    [
        ({"type": "migrationAbortRequested", "status": "True"}, ""),
        (
            {"type": "migrationRejectedByResourceQuota", "status": "True"},
            "a ResourceQuota of the namespace does not allow the second virt-launcher pod",
        ),
        (
            {"type": "migrationBlockedByBackup", "status": "True", "message": "a backup runs"},
            "a backup runs",
        ),
        ({"type": "migrationBlockedByBackup", "status": "False", "message": "none"}, ""),
    ],
)
def test_conditions_of_a_migration_say_what_it_waits_for(
    condition: dict[str, str], blocked: str
) -> None:
    """The types are those of KubeVirt d923fdb (`api/core/v1/types.go`)."""
    assert MigrationView.parse(build_part(status={"conditions": [condition]})).blocked == blocked


def test_launcher_that_no_node_can_run_quotes_the_scheduler() -> None:
    pod = build_launcher()
    words = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"]["conditions"] = [{**placed, "message": words}]

    assert LauncherView.parse(shrink_launcher(pod)).unscheduled == words
    pod["status"]["conditions"][0]["status"] = "True"
    assert LauncherView.parse(shrink_launcher(pod)).unscheduled == ""


def test_shrunk_launcher_shows_the_same() -> None:
    pod = build_launcher()

    small = shrink_launcher(pod)

    view = LauncherView.parse(small)
    assert view == LauncherView.parse(pod)
    assert (view.owner_uid, view.created_by, view.migration) == ("u", "u", "m")
    assert (view.node_name, view.address, view.addresses) == (
        "node-1",
        "10.0.0.1",
        ("10.0.0.1", "fd00::1"),
    )
    assert view.ready and view.live
    assert shrink_launcher(small) == small
    assert len(str(small)) < 800


@pytest.mark.parametrize(
    ("status", "progress", "succeeded"),
    [
        ({}, None, False),
        ({"phase": "ImportInProgress", "progress": "12.3%"}, 12.3, False),
        ({"phase": "ImportScheduled", "progress": "N/A"}, None, False),
        ({"phase": "WaitForFirstConsumer", "progress": "N/A"}, None, False),
        ({"phase": "Succeeded", "progress": "100.0%"}, 100.0, True),
        ({"phase": "Failed", "progress": "nan%"}, None, False),
    ],
)
def test_data_volume_tells_how_far_it_is(
    status: Manifest, progress: float | None, succeeded: bool
) -> None:
    view = DataVolumeView.parse(build_part(status=status))

    assert (view.progress, view.succeeded) == (progress, succeeded)
    assert DATA_VOLUME.resource == "datavolumes.cdi.kubevirt.io"


NOT_FOUND = "Unable to connect to http data source: expected status code 200, got 404"
NO_MODE = "no accessMode specified in StorageProfile standard"


@pytest.mark.parametrize(
    ("conditions", "refusal", "last_error"),
    [
        # As recorded of CDI.
        ([("Bound", "False", "ErrClaimNotValid", NO_MODE), ("Running", "False", "", "")], 1, 0),
        ([("Bound", "True", "Bound", ""), ("Running", "False", "Error", NOT_FOUND)], 0, 1),
        ([("Bound", "True", "Bound", ""), ("Running", "True", "Pod is running", "")], 0, 0),
        ([("Running", "False", "Completed", "Import Complete")], 0, 0),
        ([], 0, 0),
    ],
    ids=["no access mode", "404", "importing", "done", "new"],
)
def test_data_volume_says_what_keeps_it_from_being_filled(
    conditions: list[tuple[str, ...]], refusal: int, last_error: int
) -> None:
    names = ("type", "status", "reason", "message")
    stated = [dict(zip(names, each, strict=True)) for each in conditions]

    view = DataVolumeView.parse(build_part(status={"conditions": stated}))

    assert view.refusal == (NO_MODE if refusal else "")
    assert view.last_error == (NOT_FOUND if last_error else "")


@given(spec=values, status=values, extra=values)
def test_views_never_fail_on_what_others_wrote(spec: Any, status: Any, extra: Any) -> None:
    plain = build_part(spec=spec, status=status)
    nested = build_part(
        spec={"template": spec, "running": extra, "configuration": spec, "storage": extra},
        status=dict.fromkeys(
            (
                "conditions",
                "migrationState",
                "activePods",
                "interfaces",
                "startFailure",
                "stateChangeRequests",
                "podIPs",
                "progress",
                "restartCount",
                "observedGeneration",
            ),
            extra,
        ),
    )

    for each in (plain, nested):
        for view in (VmView, VmiView, MigrationView, LauncherView, DataVolumeView):
            assert view.parse(each).key.name == "web"
        assert LauncherView.parse(shrink_launcher(each)) == LauncherView.parse(each)
