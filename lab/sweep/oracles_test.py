from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.sweep.modes import Mode
from lab.sweep.oracles import evaluate, lint
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan
from lab.sweep.recorder import Version
from lab.sweep.session import Record
from lab.sweep.triggers import Trigger
from lab.sweep.wire import Call
from lab.sweep.workload import load_workloads
from lab.sweep.workloads.podset import check_bound
from lab.sweep.workloads.volumes import check_kept, check_sizes
from libs.common.kinds import ENDPOINTS, POD, PVC, Kind
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.podset.controller import PODSET
from operators.volumes.api.v1alpha1 import DEMO_VOLUME

WORKLOAD = load_workloads("podset")[0]
TRIGGER = Trigger("write", "create", "create", "pods", "web-pod-0")


def build_version(
    kind: Kind, name: str, action: str = "ADDED", *, owner: str = "", **fields: Any
) -> Version:
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-of-{name}"}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner, "controller": True}]
    metadata |= fields.pop("metadata", {})
    return Version(action, kind, {"metadata": metadata, **fields})


def build_record(call: Call, **fields: Any) -> Record:
    defaults: dict[str, Any] = {
        "phase": "create",
        "process": 0,
        "at": 0.0,
        "query": {},
        "agent": "slipway-podset",
        "body": {"metadata": {"name": call.name}},
    }
    return Record(call, **{**defaults, **fields})


def build_outcome(*history: Version, **fields: Any) -> Outcome:
    return Outcome(Plan("podset", "strict"), "ns", history=list(history), **fields)


def find(outcome: Outcome, reference: Outcome | None = None) -> list[str]:
    findings = evaluate(outcome, reference or build_outcome(), WORKLOAD)
    return [finding.oracle for finding in findings]


def test_equal_runs_have_no_findings() -> None:
    pod = build_version(POD, "web-pod-0")
    outcome = build_outcome(pod, states={"create": {"pods web-pod-0": {}}})

    assert find(outcome, outcome) == []


def test_moment_that_never_came_is_a_failure() -> None:
    plan = Plan("podset", "strict", Mode.K1, TRIGGER)

    assert find(Outcome(plan, "ns")) == ["fired"]
    assert find(Outcome(plan, "ns", fired=True)) == []


def test_other_state_after_a_phase_is_found() -> None:
    reference = build_outcome(states={"create": {"pods a": {}}})

    assert find(build_outcome(states={"create": {}}), reference) == ["state"]


def test_object_created_twice_is_found_unless_the_fault_removed_it() -> None:
    pod = build_version(POD, "web-pod-0")
    reference = build_outcome(pod)
    gone = build_version(POD, "web-pod-0", "DELETED")

    assert find(build_outcome(pod, gone, pod), reference) == ["counts", "counts"]
    excused = build_outcome(pod, gone, pod, removed={"pods web-pod-0"})
    assert find(excused, reference) == []


def test_endpoints_that_the_server_deletes_with_their_service_may_be_created_again() -> None:
    made = build_version(ENDPOINTS, "web-ip")
    gone = build_version(ENDPOINTS, "web-ip", "DELETED")
    reference = build_outcome(made)

    assert find(build_outcome(made, gone, made, removed={"services other"}), reference) != []
    assert find(build_outcome(made, gone, made, removed={"services web-ip"}), reference) == []


def test_object_assigned_to_what_the_fault_removed_may_be_created_again() -> None:
    spec = {"claimRef": {"name": "web", "uid": "uid-of-web"}}
    actions = ("ADDED", "DELETED")
    claim, lost = (build_version(IP_CLAIM, "web", each) for each in actions)
    entry, released = (build_version(IP_ALLOCATION, "ip", each, spec=spec) for each in actions)
    reference = build_outcome(claim, entry)
    again = [claim, entry, lost, released, claim, entry]

    assert find(build_outcome(*again), reference) == ["counts"] * 4
    assert find(build_outcome(*again, removed={"ipclaims web"}), reference) == []


def test_child_made_before_the_end_of_its_owner_was_heard_of_may_come_once_more() -> None:
    def build(number: int, action: str = "ADDED") -> Version:
        owned = {"resourceVersion": str(number), "ownerReferences": [{"uid": "uid-of-web"}]}
        return build_version(POD, "web-pod-0", action, metadata=owned)

    metadata = {"resourceVersion": "5"}
    end = build_version(PODSET, "web", "DELETED", metadata=metadata, spec={"replicas": 1})
    usual = [build(2), end, build(7, "DELETED")]
    reference = build_outcome(*usual)

    assert find(build_outcome(*usual, build(8), build(9, "DELETED")), reference) == []
    again = [build(8), build(9, "DELETED"), build(10), build(11, "DELETED")]
    assert find(build_outcome(*usual, *again), reference) == ["counts", "counts"]
    early = [build(3), build(4, "DELETED")]
    assert find(build_outcome(*usual, *early), reference) == ["counts", "counts"]


def test_each_child_may_be_made_once_for_an_owner_that_is_gone() -> None:
    ends = [
        build_version(PODSET, "web", "DELETED", metadata=metadata, spec={"replicas": 2})
        for metadata in ({"uid": uid, "resourceVersion": "5"} for uid in ("first", "second"))
    ]

    def find_with(*owners: str) -> list[str]:
        late = [
            build_version(
                POD, "web-pod-0", owner=owner, metadata={"uid": str(n), "resourceVersion": "7"}
            )
            for n, owner in enumerate(owners)
        ]
        return find(build_outcome(*ends, *late), build_outcome(*ends))

    assert find_with("first", "second") == []
    assert find_with("first", "first") == ["counts"]


def test_late_probe_is_not_watching_and_late_phase_is_not_converged() -> None:
    assert find(build_outcome(late={"probe": "nothing came"})) == ["not-watching"]
    assert find(build_outcome(late={"grow": "nothing came"})) == ["converged"]


def test_same_request_over_and_over_is_a_hot_loop() -> None:
    record = build_record(Call("create", "", "pods", "ns", "web-pod-0"))

    assert find(build_outcome(records=[record] * 12)) == []
    assert find(build_outcome(records=[record] * 13)) == ["hot-loop"]


def test_defects_in_the_log_and_own_exits_are_found() -> None:
    assert find(build_outcome(log='{"event": "Unhandled error in reconcile (bug)"}')) == ["process"]
    assert find(build_outcome(exits=[1])) == ["process"]


def test_missing_permission_is_found_unless_it_was_the_fault() -> None:
    refused = ["create pods: forbidden"]
    assert find(build_outcome(refused=refused)) == ["rights"]
    forbidden = Plan("podset", "strict", Mode.E403, TRIGGER)
    assert find(Outcome(forbidden, "ns", refused=refused, fired=True)) == []


@pytest.mark.parametrize(
    ("call", "fields", "words"),
    [
        (Call("delete", "", "pods", "ns", "a"), {"body": {}}, "does not name the UID"),
        (Call("create", "", "pods", "ns", "a-"), {"body": {"metadata": {}}}, "leaves the name"),
        (Call("create", "", "pods", "other", "a"), {}, "outside the namespace: other"),
        (Call("apply", "", "pods", "ns", "a"), {"query": {"fieldManager": "me"}}, "as 'me'"),
        (Call("patch", "", "pods", "ns", "a"), {}, "neither UID nor version"),
        (Call("create", "", "pods", "ns", "a"), {"before": "7", "after": "7"}, "changed nothing"),
        (Call("create", "", "pods", "ns", "a"), {"agent": "curl"}, "User-Agent 'curl'"),
    ],
)
def test_write_that_breaks_a_convention_is_reported(call: Call, fields: Any, words: str) -> None:
    (line,) = lint(build_record(call, **fields), "ns", "podset")

    assert words in line


@pytest.mark.parametrize(
    "record",
    [
        build_record(
            Call("delete", "", "pods", "ns", "a"), body={"preconditions": {"uid": "uid-of-a"}}
        ),
        build_record(
            Call("patch", "", "pods", "ns", "a"),
            body={"json-patch": [{"op": "test", "path": "/metadata/uid"}]},
        ),
        build_record(
            Call("apply", "", "podsets", "ns", "a", "status"),
            query={"fieldManager": "podset-status"},
        ),
    ],
    ids=["delete", "patch", "apply"],
)
def test_write_with_good_manners_passes(record: Record) -> None:
    assert lint(record, "ns", "podset") == []


def test_repeated_write_after_a_lost_response_may_change_nothing() -> None:
    call = Call("create", "", "pods", "ns", "web-pod-0")
    record = build_record(call, before="7", after="7")
    outcome = build_outcome(records=[record])

    assert find(outcome) == ["hygiene"]
    lost = replace(outcome, plan=Plan("podset", "strict", Mode.A1, TRIGGER), fired=True)
    assert find(lost) == []


def test_write_that_was_under_way_when_a_component_was_killed_may_be_repeated() -> None:
    call = Call("apply", "", "services", "ns", "shop", "status")
    manager = {"fieldManager": "podset"}
    failed, refused, again = (
        build_record(call, query=manager, at=at, status=status, before="7", after=after)
        for at, status, after in ((1.0, 500, ""), (1.0, 409, ""), (2.0, 200, "7"))
    )

    def find_in(mode: Mode, first: Record) -> list[str]:
        plan = Plan("podset", "strict", mode, TRIGGER)
        return find(Outcome(plan, "ns", records=[first, again], fired=True))

    assert find_in(Mode.ETCD, failed) == []
    assert find_in(Mode.ETCD, refused) == ["hygiene"]
    assert find_in(Mode.K2, failed) == ["hygiene"]


def test_leader_that_was_held_back_may_do_again_what_the_next_one_did() -> None:
    plan = Plan("podset", "strict", Mode.H, TRIGGER)
    call = Call("create", "", "pods", "ns", "web-pod-1")
    held, later, other = (
        build_record(call, before="7", after="7", **fields)
        for fields in ({}, {"phase": "change"}, {"process": 1})
    )

    def find_in(record: Record, holder: int) -> list[str]:
        return find(Outcome(plan, "ns", records=[record], fired=True, fired_process=holder))

    assert find_in(held, 0) == []
    assert find_in(later, 0) == ["hygiene"]
    assert find_in(other, 0) == ["hygiene"]
    assert find_in(other, 1) == []


def test_pods_beyond_replicas_and_surge_are_found() -> None:
    podset = build_version(PODSET, "web", spec={"replicas": 1})
    pods = [build_version(POD, f"web-pod-{n}", owner="uid-of-web") for n in range(3)]
    going = {"metadata": {"deletionTimestamp": "now"}}
    leaving = build_version(POD, "web-pod-0", "MODIFIED", owner="uid-of-web", **going)

    assert check_bound([podset, *pods[:2]]) == []
    assert check_bound([podset, *pods]) == ["3 active pods, at most 2 may be"]
    assert check_bound([podset, *pods[:2], leaving, pods[2]]) == []


def test_claim_that_shrinks_is_found() -> None:
    sizes = [{"resources": {"requests": {"storage": size}}} for size in ("10Gi", "20Gi", "10Gi")]
    history = [build_version(PVC, "data", spec=spec) for spec in sizes]

    assert check_sizes(history[:2]) == []
    assert len(check_sizes(history)) == 1


def test_deleted_claim_of_a_volume_that_keeps_it_is_found() -> None:
    kept, free = (
        build_version(DEMO_VOLUME, "data", spec={"reclaimPolicy": policy})
        for policy in ("Retain", "Delete")
    )
    leaving = build_version(PVC, "data", metadata={"deletionTimestamp": "now"})

    assert check_kept([free, leaving]) == []
    assert check_kept([kept, leaving]) != []
