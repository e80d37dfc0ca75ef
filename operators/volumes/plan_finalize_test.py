"""The plan for a DemoVolume that is being deleted: what becomes of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.plan import Create, Delete, Patch
from libs.common.testing.fakeapi.patches import apply_json_patch
from libs.contracts.claims import ClaimUser, ClaimView
from libs.contracts.snapshots import VolumeSnapshotView
from operators.volumes.api.v1alpha1 import Reason
from operators.volumes.naming import SNAPSHOT_OF, last_snapshot_name, snapshot_name
from operators.volumes.reconcile import plan_finalize, plan_volume
from operators.volumes.samples import (
    build_bound_claim,
    build_foreign_claim,
    is_kept_for,
    observe,
    parse_volume,
)

USERS = (ClaimUser("web-0", finished=False), ClaimUser("job-x", finished=True))


def ending(policy: str, claim: Manifest | None = None, **around: Any) -> Any:
    volume = parse_volume(reclaimPolicy=policy)
    return plan_finalize(volume, observe(claim or build_bound_claim(volume), **around))


def build_snapshot_view(**fields: Any) -> VolumeSnapshotView:
    manifest = {
        "metadata": {"name": snapshot_name("data", "claim-uid"), "namespace": "default"},
        "spec": {"source": {"persistentVolumeClaimName": "data"}},
        "status": {"readyToUse": True},
    }
    manifest["metadata"]["annotations"] = {SNAPSHOT_OF: "claim-uid"}  # type: ignore[index]  # a dict
    return VolumeSnapshotView.parse({**manifest, **fields})


def test_nothing_is_left_to_do_without_a_claim() -> None:
    for policy in ("Delete", "Retain", "Snapshot"):
        assert plan_finalize(parse_volume(reclaimPolicy=policy), observe(None)).done


def test_policy_delete_deletes_that_very_claim() -> None:
    plan = ending("Delete")

    assert not plan.done
    assert [action.step.uid for action in plan.actions] == ["claim-uid"]
    assert isinstance(plan.actions[0].step, Delete)


def test_pods_that_hold_the_claim_are_named() -> None:
    """A pod that has ended holds its claims too, which nobody expects."""
    plan = ending("Delete", users=USERS)

    assert plan.reason == Reason.IN_USE
    assert "pods web-0, job-x (finished)" in plan.message


def test_deletion_that_was_asked_for_is_waited_for() -> None:
    claim = build_bound_claim(parse_volume())
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    plan = ending("Delete", claim)

    assert (plan.actions, plan.done) == ((), False)


@pytest.mark.parametrize("made_under", ["Delete", "Retain"])
def test_policy_retain_lets_go_of_the_claim(made_under: str) -> None:
    volume = parse_volume(reclaimPolicy="Retain")
    claim = build_bound_claim(parse_volume(reclaimPolicy=made_under))
    (action,) = plan_finalize(volume, observe(claim)).actions
    assert isinstance(action.step, Patch)

    claim = apply_json_patch(claim, action.step.operations)

    assert not claim["metadata"].get("ownerReferences")
    assert not is_kept_for(claim)
    assert plan_finalize(volume, observe(claim)).done


@pytest.mark.parametrize("policy", ["Delete", "Retain", "Snapshot"])
def test_orphaning_deletion_keeps_the_claim_whatever_the_policy(policy: str) -> None:
    (action,) = ending(policy, is_orphaning=True).actions

    assert isinstance(action.step, Patch)
    assert action.reason == Reason.RELEASED


def test_finalizers_of_others_that_delay_a_deletion_are_named() -> None:
    # external-provisioner#1507.
    claim = build_bound_claim(parse_volume(reclaimPolicy="Delete"))
    claim["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["kubernetes.io/pvc-protection", "example.com/backup-running"],
    }

    message = ending("Delete", claim).message

    assert message.endswith("the finalizers of other components delay: example.com/backup-running")
    claim["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    assert ending("Delete", claim).message.endswith("to be deleted")


def test_deleted_claim_of_which_no_snapshot_can_be_taken_says_so() -> None:
    claim = build_bound_claim(parse_volume(reclaimPolicy="Snapshot"))
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert "no snapshot is taken" in ending("Snapshot", claim).message


def test_last_snapshot_is_taken_once_nobody_writes_any_more() -> None:
    assert ending("Snapshot", users=USERS).reason == Reason.IN_USE
    assert ending("Snapshot", users=USERS).actions == ()

    (action,) = ending("Snapshot").actions

    assert isinstance(action.step, Create)
    assert action.step.manifest["metadata"]["name"] == snapshot_name("data", "claim-uid")
    assert "ownerReferences" not in action.step.manifest["metadata"]


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        ({"status": {}}, Reason.SNAPSHOTTING),
        ({"status": {"error": {"message": "no space"}}}, Reason.SNAPSHOT_FAILED),
        (
            {"spec": {"source": {"persistentVolumeClaimName": "other"}}},
            Reason.SNAPSHOT_CONFLICT,
        ),
        ({"metadata": {"name": "x", "namespace": "default"}}, Reason.SNAPSHOT_CONFLICT),
    ],
)
def test_claim_stays_until_its_snapshot_is_ready(snapshot: Any, reason: Reason) -> None:
    plan = ending("Snapshot", snapshot=build_snapshot_view(**snapshot))

    assert (plan.actions, plan.done, plan.reason) == ((), False, reason)
    if reason != Reason.SNAPSHOT_CONFLICT:
        assert "reclaimPolicy to Retain or Delete" in plan.message, "there is a way out"


def test_claim_goes_once_its_snapshot_is_ready() -> None:
    (action,) = ending("Snapshot", snapshot=build_snapshot_view()).actions

    assert isinstance(action.step, Delete)


@pytest.mark.parametrize("held", [{}, {"annotations": {"of": "others"}}], ids=["bare", "annotated"])
def test_snapshot_of_an_earlier_volume_does_not_count_even_if_nothing_follows_the_adoption(
    held: Manifest,
) -> None:
    claim = build_foreign_claim()
    claim["metadata"] |= {"uid": "claim-uid", **held}
    volume = parse_volume(adopt="IfMatching", reclaimPolicy="Snapshot")
    plan = plan_volume(volume, observe(claim, snapshot=build_snapshot_view()))
    for action in plan.actions:
        assert isinstance(action.step, Patch)
        claim = apply_json_patch(claim, action.step.operations)

    name = last_snapshot_name(ClaimView.parse(claim))
    assert is_kept_for(claim)
    assert name != build_snapshot_view().key.name
    (action,) = ending("Snapshot", claim).actions
    assert isinstance(action.step, Create)
    assert action.step.manifest["metadata"]["name"] == name


def test_last_snapshot_that_somebody_deletes_is_followed_by_another() -> None:
    going = replace(build_snapshot_view(), deleting=True)
    plan = ending("Snapshot", snapshot=going)

    assert (plan.actions, plan.done) == ((), False)
    assert plan.reason == Reason.SNAPSHOTTING
    assert "is being deleted; it will be recreated" in plan.message


def test_claim_that_never_had_a_volume_is_deleted_without_snapshot() -> None:
    claim = build_bound_claim(parse_volume(reclaimPolicy="Snapshot"))
    del claim["spec"]["volumeName"]
    claim["status"] = {"phase": "Pending"}

    (action,) = ending("Snapshot", claim).actions

    assert isinstance(action.step, Delete)


def test_cluster_without_snapshots_keeps_the_claim_and_says_so() -> None:
    plan = ending("Snapshot", snapshots_served=False)

    assert (plan.actions, plan.done) == ((), False)
    assert plan.reason == Reason.SNAPSHOT_API_MISSING
    assert "set Retain or Delete" in plan.message


def test_claim_that_is_kept_is_deleted_once_the_policy_says_so() -> None:
    """A user who waits for a snapshot in vain changes the policy, even during the deletion."""
    claim = build_bound_claim(parse_volume(reclaimPolicy="Snapshot"))

    (action,) = ending("Delete", claim).actions

    assert isinstance(action.step, Delete)
