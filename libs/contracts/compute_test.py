"""Views of Instance and Operation, and that nothing makes them fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Manifest
from libs.common.reading import condition_at, holds_at
from libs.contracts.compute import (
    INSTANCE_UID_LABEL,
    InstanceView,
    OperationView,
    instance_uids,
)

values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def build(**parts: Any) -> Manifest:
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 3},
        **parts,
    }


def test_instance_shows_where_it_runs_and_under_which_addresses() -> None:
    ready = {"type": "Ready", "status": "True", "observedGeneration": 3, "message": "runs"}
    view = InstanceView.parse(
        build(
            spec={"size": "small", "power": "Stopped", "firewallRef": {"name": "web"}},
            status={
                "phase": "Stopping",
                "vmiUID": "vmi",
                "nodeName": "n1",
                "publicIP": "203.0.113.7",
                "conditions": [ready],
            },
        )
    )

    assert (view.size, view.firewall, view.stopped) == ("small", "web", True)
    assert (view.vmi_uid, view.node) == ("vmi", "n1")
    assert (view.ready, view.message) == (True, "runs")
    assert INSTANCE_UID_LABEL == "compute.slipway.dev/instance-uid"


def test_instance_shows_since_when_it_is_ready_and_which_disk_it_has() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"}
    view = InstanceView.parse(build(status={"conditions": [ready], "rootDisk": {"name": "disk"}}))
    broken = InstanceView.parse(
        build(status={"conditions": [{**ready, "lastTransitionTime": "?"}]})
    )

    assert view.ready_since == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert view.root_disk == "disk"
    assert (broken.ready_since, broken.root_disk) == (None, "")


def test_condition_of_an_older_generation_does_not_hold() -> None:
    old = build(
        status={"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}]}
    )
    silent = build(status={"conditions": [{"type": "Ready", "status": "True"}]})

    assert not holds_at(old, "Ready")
    assert holds_at(silent, "Ready")
    assert condition_at(silent, "Running") == {}


def test_operation_that_failed_is_finished_and_did_not_succeed() -> None:
    view = OperationView.parse(
        build(spec={"type": "Reboot", "targetRef": {"name": "web"}}, status={"phase": "Failed"})
    )

    assert (view.type, view.instance) == ("Reboot", "web")
    assert view.finished
    assert not view.succeeded


@given(spec=values, status=values, extra=values)
def test_views_never_fail_on_what_others_wrote(spec: Any, status: Any, extra: Any) -> None:
    for manifest in (
        build(spec=spec, status=status),
        build(spec={"targetRef": spec}, status={"conditions": extra, "instances": status}),
        build(spec={"networkRef": extra}, status={"conditions": [extra], "operation": spec}),
    ):
        assert InstanceView.parse(manifest).key.name == "web"
        assert OperationView.parse(manifest).key.name == "web"
        assert all(isinstance(uid, str) for uid in instance_uids(manifest, "status", "instances"))
