"""Where an address leads while its machine starts, moves, stops and comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import POD, Key, Manifest, build_object
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE, VmiView
from libs.contracts.launchers import LauncherView
from operators.ipam.api.v1alpha1.claims import BindingState, ClaimReason
from operators.ipam.claim.binding import (
    Binding,
    Finding,
    Observation,
    RoutedEndpoint,
    find_machine,
    plan_binding,
    sort_places,
)

TARGET = Binding(target="Instance/web", target_uid="i1")
V4 = {False}
RUNNING: dict[str, Any] = {"phase": "Running", "nodeName": "n1", "activePods": {"p1": "n1"}}
MOVING: dict[str, Any] = {
    **RUNNING,
    "activePods": {"p1": "n1", "p2": "n2"},
    "migrationState": {
        "migrationUid": "m",
        "sourceNode": "n1",
        "targetNode": "n2",
        "startTimestamp": "2026-01-01T00:01:00Z",
    },
}
MOVED: dict[str, Any] = {
    **MOVING,
    "nodeName": "n2",
    "migrationState": {
        **MOVING["migrationState"],
        "endTimestamp": "2026-01-01T00:02:00Z",
        "completed": True,
    },
}


def build_vmi(uid: str = "v1", created: str = "2026-01-01T00:00:00Z", **status: Any) -> VmiView:
    manifest = build_object(VIRTUAL_MACHINE_INSTANCE, "web", "default", status=status)
    manifest["metadata"] |= {"uid": uid, "creationTimestamp": created}
    return VmiView.parse(manifest)


def build_pod(
    name: str, node: str, *, vmi: str = "v1", migration: str = "", **status: Any
) -> LauncherView:
    ip = f"10.0.0.{name[1:]}"
    labels = {"kubevirt.io/migrationJobUID": migration} if migration else {}
    pod: Manifest = build_object(POD, name, "default", spec={"nodeName": node})
    pod["status"] = {"phase": "Running", "podIP": ip, **status}
    pod["metadata"] |= {
        "uid": name,
        "creationTimestamp": f"2026-01-01T00:00:0{name[1:]}Z",
        "labels": labels,
        "ownerReferences": [{"kind": "X", "name": "web", "uid": vmi, "controller": True}],
    }
    return LauncherView.parse(pod)


SOURCE, GOAL = build_pod("p1", "n1"), build_pod("p2", "n2", migration="m")
AT_SOURCE = (RoutedEndpoint("10.0.0.1", "n1", Key("default", "p1"), "p1"),)
AT_GOAL = (RoutedEndpoint("10.0.0.2", "n2", Key("default", "p2"), "p2"),)
BOUND = replace(TARGET, vmi_uid="v1", vmi_created="2026-01-01T00:00:00Z", places=AT_SOURCE, epoch=1)


def find(vmi: VmiView | None, *pods: LauncherView) -> Finding:
    return find_machine(TARGET, vmi, pods, V4)


def test_machine_that_runs_is_at_its_pod() -> None:
    plan = plan_binding(TARGET, find(build_vmi(**RUNNING), SOURCE))

    assert plan.binding == BOUND
    assert (plan.state, plan.reason) == (BindingState.BOUND, ClaimReason.BOUND)


@pytest.mark.parametrize("ready", [("True", "True"), ("False", "False"), ("True", "False")])
def test_address_stays_at_the_source_until_the_migration_has_completed(
    ready: tuple[str, str],
) -> None:
    """Upstream: kubevirt/kubevirt#11350 both pods ready, ovn-kubernetes#6764 none ready."""
    pods = [
        build_pod("p1", "n1", conditions=[{"type": "Ready", "status": ready[0]}]),
        build_pod("p2", "n2", migration="m", conditions=[{"type": "Ready", "status": ready[1]}]),
    ]
    during = plan_binding(BOUND, find(build_vmi(**MOVING), *pods))
    after = plan_binding(during.binding, find(build_vmi(**MOVED), *pods))

    assert during.binding == BOUND, "not even the epoch changes"
    assert (during.state, during.reason) == (BindingState.BOUND, ClaimReason.MIGRATING)
    assert after.binding.places == AT_GOAL
    assert after.binding.epoch == 2


def test_migration_on_one_node_stays_with_the_first_pod() -> None:
    goal = build_pod("p2", "n1", migration="m")
    state = {**MOVING["migrationState"], "targetNode": "n1"}
    active = {"p1": "n1", "p2": "n1"}
    vmi = build_vmi(**{**MOVING, "activePods": active, "migrationState": state})

    assert find(vmi, SOURCE, goal).binding.places == AT_SOURCE


def test_failed_migration_changes_nothing() -> None:
    ended = {**MOVED["migrationState"], "failed": True}
    vmi = build_vmi(**{**MOVED, "nodeName": "n1", "migrationState": ended})

    assert plan_binding(BOUND, find(vmi, SOURCE, GOAL)).binding == BOUND


@pytest.mark.parametrize(
    ("vmi", "pods"),
    [
        pytest.param(build_vmi(**{**RUNNING, "phase": "Unknown"}), [SOURCE], id="unknown phase"),
        pytest.param(build_vmi(**RUNNING), [], id="the pod is not known"),
        pytest.param(
            build_vmi(**RUNNING), [build_pod("p1", "n1", podIP="")], id="kubevirt#7508: no IP"
        ),
        pytest.param(build_vmi(**MOVED), [SOURCE], id="the new pod is not known yet"),
        pytest.param(build_vmi("v0", "2025-12-31T00:00:00Z", **RUNNING), [SOURCE], id="late event"),
    ],
)
def test_what_does_not_add_up_moves_nothing(vmi: VmiView, pods: list[LauncherView]) -> None:
    plan = plan_binding(BOUND, find(vmi, *pods))

    assert plan.binding == BOUND
    assert plan.state is BindingState.BOUND


def test_pod_that_only_claims_to_be_the_machines_is_not_believed() -> None:
    """A label can be written by anybody; the owner reference and activePods cannot."""
    forged = build_pod("p1", "n1", vmi="other")

    assert find(build_vmi(**RUNNING), forged).observation is Observation.UNKNOWN


def test_machine_that_ends_takes_the_address_off_and_the_next_run_gets_it() -> None:
    gone = plan_binding(BOUND, find(None))
    assert gone.binding.places == ()
    assert gone.state is BindingState.WITHDRAWN
    assert gone.binding.epoch == 2

    late = plan_binding(gone.binding, find(build_vmi("v0", "2025-12-31T00:00:00Z", **RUNNING)))
    assert late.binding.places == (), "an earlier run never gets it back"

    again = build_vmi("v2", "2026-01-01T01:00:00Z", **{**RUNNING, "activePods": {"p3": "n1"}})
    bound = plan_binding(gone.binding, find(again, build_pod("p3", "n1", vmi="v2")))
    assert bound.state is BindingState.BOUND
    assert (bound.binding.vmi_uid, bound.binding.epoch) == ("v2", 3)


def test_address_that_was_taken_off_says_so_in_each_pass() -> None:
    """A Service has no run to be kept in mind: a restart must not make another state of it."""
    service = Binding(target="Service/web")
    lost = Finding(Observation.ABSENT, service, ClaimReason.TARGET_NOT_FOUND)
    bound = replace(service, places=(RoutedEndpoint("10.0.0.9"),), epoch=1)

    gone = plan_binding(bound, lost)
    again = plan_binding(gone.binding, lost)

    assert gone.state is again.state is BindingState.WITHDRAWN
    assert again.binding == gone.binding
    assert plan_binding(service, lost).state is BindingState.PENDING, "it was never there"


def test_move_between_targets_is_seen_in_two_steps() -> None:
    other = Binding(target="Instance/db", target_uid="i2", places=(RoutedEndpoint("10.0.0.9"),))
    finding = Finding(Observation.FOUND, other, ClaimReason.BOUND)

    first = plan_binding(BOUND, finding)
    assert (first.state, first.binding.places, first.again) == (BindingState.MOVING, (), True)
    second = plan_binding(first.binding, finding)
    assert second.state is BindingState.BOUND
    assert second.binding == replace(other, epoch=3)


def test_claim_without_target_leads_nowhere() -> None:
    plan = plan_binding(BOUND, None)

    assert (plan.state, plan.binding) == (BindingState.UNBOUND, Binding(epoch=2))
    assert plan_binding(plan.binding, None).binding == plan.binding


def test_dual_stack_pod_has_a_place_in_each_family() -> None:
    pod = build_pod("p1", "n1", podIPs=[{"ip": "10.0.0.1"}, {"ip": "fd00::1"}])
    vmi = build_vmi(**RUNNING)

    both = find_machine(TARGET, vmi, [pod], {False, True})
    six = find_machine(TARGET, vmi, [pod], {True})

    assert [place.address for place in both.binding.places] == ["10.0.0.1", "fd00::1"]
    assert [place.address for place in six.binding.places] == ["fd00::1"]


# What holds in every order of what is seen.

PHASES = st.sampled_from(["", "Pending", "Scheduled", "Running", "Succeeded", "Failed", "Unknown"])
NODES = st.sampled_from(["n1", "n2"])


@st.composite
def build_view(draw: st.DrawFn) -> Finding:
    run = draw(st.integers(1, 3))
    pods = [
        build_pod(f"p{number}", draw(NODES), vmi=f"v{draw(st.integers(1, 3))}")
        for number in draw(st.sets(st.integers(1, 4), max_size=3))
    ]
    migration = draw(st.sampled_from([None, MOVING["migrationState"], MOVED["migrationState"]]))
    vmi = build_vmi(
        f"v{run}",
        f"2026-01-01T00:00:0{run}Z",
        phase=draw(PHASES),
        nodeName=draw(NODES),
        activePods={pod.uid: pod.node_name for pod in pods},
        **({"migrationState": migration} if migration else {}),
    )
    return find(draw(st.sampled_from([vmi, vmi, None])), *pods)


@given(st.lists(build_view(), max_size=12))
def test_history_of_a_binding_is_sound(sights: list[Finding]) -> None:
    """At most one place; the epoch grows with each change; no run gives way to an earlier one."""
    binding, newest = TARGET, ""
    for observation in sights:
        plan = plan_binding(binding, observation)
        after = plan.binding
        assert len(after.places) <= 1
        assert after.epoch - binding.epoch == int(after.places != binding.places) or (
            after.places and after.epoch == binding.epoch + 1
        )
        if after.places:
            assert after.vmi_created >= newest, "an earlier run got the address"
            newest = after.vmi_created
        assert (plan.state is BindingState.BOUND) == bool(after.places)
        assert plan_binding(after, observation).binding == after, "a second look changes nothing"
        binding = after


@given(st.lists(st.builds(RoutedEndpoint, st.sampled_from(["10.0.0.2", "10.0.0.1", "fd00::1"]))))
def test_places_are_sorted_and_each_is_there_once(places: list[RoutedEndpoint]) -> None:
    found = [place.address for place in sort_places(places)]

    assert found == [a for a in ("10.0.0.1", "10.0.0.2", "fd00::1") if RoutedEndpoint(a) in places]
