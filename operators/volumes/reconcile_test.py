"""The plan of a DemoVolume: what is written for what is seen."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from libs.common.actions import refusals_of
from libs.common.errors import Forbidden
from libs.common.kinds import Manifest
from libs.common.plan import Create, Outcome, Patch, StepFailure
from libs.common.testing.fakeapi.patches import apply_json_patch
from libs.contracts.claims import ClaimUser, ClaimView
from operators.volumes.api.v1alpha1 import DemoVolume, Reason
from operators.volumes.naming import KEPT_FOR
from operators.volumes.observed import SourceView
from operators.volumes.reconcile import plan_finalize, plan_volume
from operators.volumes.resources import build_reference
from operators.volumes.samples import (
    UID,
    build_bound_claim,
    build_foreign_claim,
    build_statefulset_owner,
    build_volume,
    is_kept_for,
    observe,
    parse_volume,
)

USERS = (ClaimUser("web-0", finished=False), ClaimUser("job-x", finished=True))


def patched(volume: DemoVolume, claim: Manifest, **around: Any) -> Manifest:
    """Return the claim after the plan was carried out."""
    for action in plan_volume(volume, observe(claim, **around)).actions:
        assert isinstance(action.step, Patch)
        assert action.step.uid == claim["metadata"]["uid"]
        claim = apply_json_patch(claim, action.step.operations)
    return claim


# Creation.


def test_claim_of_the_name_and_size_is_created() -> None:
    (action,) = plan_volume(parse_volume("any", name="data", size=5), observe(None)).actions

    assert isinstance(action.step, Create)
    assert action.reason == Reason.CREATED
    claim = action.step.manifest
    assert claim["metadata"]["name"] == "data"
    assert claim["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert "storageClassName" not in claim["spec"]


def test_claim_without_a_name_is_named_like_the_volume() -> None:
    (action,) = plan_volume(parse_volume("data"), observe(None)).actions

    assert isinstance(action.step, Create)
    assert action.step.key.name == "data"


@pytest.mark.parametrize(("policy", "owned"), [("Delete", True), ("Retain", False)])
def test_owner_reference_is_set_only_where_the_collector_may_delete(
    policy: str, owned: bool
) -> None:
    """A foreground deletion would delete a referring claim before any finalizer is asked."""
    volume = parse_volume(reclaimPolicy=policy)

    (action,) = plan_volume(volume, observe(None)).actions

    assert isinstance(action.step, Create)
    metadata = action.step.manifest["metadata"]
    assert ("ownerReferences" in metadata) is owned
    assert is_kept_for(action.step.manifest) is not owned


def test_claim_that_replaces_a_lost_one_is_a_warning() -> None:
    manifest = build_volume()
    manifest["status"] = {"pvcRef": {"name": "data", "uid": "before"}}

    (action,) = plan_volume(DemoVolume.parse(manifest), observe(None)).actions

    assert action.reason == Reason.REPLACED
    assert action.warning


@pytest.mark.parametrize(
    "around",
    [
        pytest.param({"source": None}, id="missing"),
        pytest.param({"source": SourceView(ready=False, size=None)}, id="not ready"),
        pytest.param({"source": SourceView(ready=True, size=Fraction(2**40))}, id="too large"),
        pytest.param({"source": SourceView(True, None, "Block")}, id="other mode"),
        pytest.param(
            {"source": SourceView(True, None), "snapshots_served": False}, id="no snapshots"
        ),
    ],
)
def test_claim_is_not_created_before_its_source_fits(around: Any) -> None:
    """A pending claim cannot be changed, so a wrong one would remain wrong."""
    volume = parse_volume(source={"snapshot": "monday"})

    assert plan_volume(volume, observe(None, **around)).actions == ()


def test_clone_names_the_claim_of_its_source() -> None:
    volume = parse_volume(source={"volume": "other"})
    source = SourceView(
        ready=True, size=Fraction(2**30), volume_mode="Filesystem", claim="other-claim"
    )

    (action,) = plan_volume(volume, observe(None, source=source)).actions

    assert isinstance(action.step, Create)
    assert action.step.manifest["spec"]["dataSource"] == {
        "kind": "PersistentVolumeClaim",
        "name": "other-claim",
    }


# Correction.


def test_settled_claim_needs_nothing() -> None:
    for policy in ("Delete", "Retain", "Snapshot"):
        volume = parse_volume(reclaimPolicy=policy)
        assert plan_volume(volume, observe(build_bound_claim(volume))).actions == ()


@pytest.mark.parametrize("labels", [None, {"app": "x"}, {"app.kubernetes.io/managed-by": "me"}])
def test_labels_come_back_and_others_stay(labels: dict[str, str] | None) -> None:
    volume = parse_volume()
    claim = build_bound_claim(volume)
    wanted = claim["metadata"].pop("labels")
    if labels is not None:
        claim["metadata"]["labels"] = labels

    assert patched(volume, claim)["metadata"]["labels"] == {**(labels or {}), **wanted}


@pytest.mark.parametrize("before", ["Delete", "Retain", "Snapshot"])
@pytest.mark.parametrize("after", ["Delete", "Retain", "Snapshot"])
def test_policy_may_change_at_any_time(before: str, after: str) -> None:
    volume = parse_volume(reclaimPolicy=after)
    claim = build_bound_claim(parse_volume(reclaimPolicy=before))
    plan = plan_volume(volume, observe(claim))

    claim = patched(volume, claim)

    assert claim["metadata"].get("ownerReferences", []) == (
        [build_reference(volume)] if after == "Delete" else []
    )
    assert is_kept_for(claim) is (after != "Delete")
    assert plan_volume(volume, observe(claim)).actions == ()
    assert plan.takes_over is bool(plan.actions)


def test_references_of_others_stay_when_ours_goes() -> None:
    claim = build_bound_claim(parse_volume())
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    claim["metadata"]["ownerReferences"].append(other)

    claim = patched(parse_volume(reclaimPolicy="Retain"), claim)

    assert claim["metadata"]["ownerReferences"] == [other]


def test_change_of_the_size_tests_the_size_that_was_seen() -> None:
    volume = parse_volume(size=20)

    (action,) = plan_volume(volume, observe(build_bound_claim(volume))).actions

    assert isinstance(action.step, Patch)
    path = "/spec/resources/requests/storage"
    assert action.step.operations == [
        {"op": "test", "path": path, "value": "10Gi"},
        {"op": "replace", "path": path, "value": "20Gi"},
        {
            "op": "add",
            "path": "/metadata/annotations/storage.slipway.dev~1requested",
            "value": "20Gi",
        },
    ]


def test_claim_that_is_being_deleted_is_left_alone() -> None:
    volume = parse_volume(size=20)
    claim = build_bound_claim(volume)
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert plan_volume(volume, observe(claim)).actions == ()


# Somebody else's claim.


@pytest.mark.parametrize("adopt", ["Never", "IfMatching"])
def test_claim_of_somebody_else_is_never_touched(adopt: str) -> None:
    volume = parse_volume(adopt=adopt, size=20)
    owned = observe(build_foreign_claim(build_statefulset_owner()), holder="StatefulSet db")
    kept = build_foreign_claim()
    kept["metadata"]["annotations"] = {KEPT_FOR: "uid-of-another"}

    assert plan_volume(volume, owned).actions == ()
    assert plan_volume(volume, observe(kept, holder="DemoVolume other")).actions == ()
    assert plan_finalize(volume, owned).done


def test_claim_of_an_earlier_volume_of_that_name_is_not_ours() -> None:
    """A reference to another UID is another owner, whatever the name says."""
    volume = parse_volume()
    claim = build_bound_claim(volume)
    claim["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-one-before"

    assert plan_volume(volume, observe(claim, holder="DemoVolume data")).actions == ()
    assert plan_finalize(volume, observe(claim, holder="DemoVolume data")).done


def test_unowned_claim_is_left_alone_unless_adoption_is_asked_for() -> None:
    assert plan_volume(parse_volume(), observe(build_foreign_claim())).actions == ()


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_matching_claim_is_adopted_and_grown_later(policy: str) -> None:
    volume = parse_volume(adopt="IfMatching", size=20, reclaimPolicy=policy)
    plan = plan_volume(volume, observe(build_foreign_claim()))

    assert plan.takes_over
    assert [action.reason for action in plan.actions] == [Reason.ADOPTED]
    claim = patched(volume, build_foreign_claim())
    claim = patched(volume, claim)
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert plan_volume(volume, observe(claim)).actions == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 5},
        {"accessModes": ["ReadWriteMany"]},
        {"volumeMode": "Block"},
        {"storageClassName": "fast"},
        {"source": {"snapshot": "monday"}},
    ],
)
def test_claim_that_does_not_match_is_not_adopted(spec: Any) -> None:
    volume = parse_volume(adopt="IfMatching", **spec)

    assert plan_volume(volume, observe(build_foreign_claim())).actions == ()


def test_claim_left_by_a_volume_that_is_gone_can_be_adopted() -> None:
    claim = build_foreign_claim()
    claim["metadata"]["annotations"] = {KEPT_FOR: "uid-of-one-that-is-gone"}

    assert is_kept_for(patched(parse_volume(adopt="IfMatching", reclaimPolicy="Retain"), claim))


def test_refusals_are_told_by_the_action_that_failed() -> None:
    plan = plan_volume(parse_volume(), observe(None))
    error = Forbidden(403, "Forbidden", "exceeded quota")
    outcome = Outcome(failures=(StepFailure(plan.actions[0].step, error),))

    assert refusals_of(plan.actions, outcome) == {Reason.CREATED: "exceeded quota"}


def test_create_of_our_own_claim_counts_as_done() -> None:
    volume = parse_volume(reclaimPolicy="Retain")
    (action,) = plan_volume(volume, observe(None)).actions
    assert isinstance(action.step, Create)
    assert action.step.ours is not None

    assert action.step.ours(build_bound_claim(volume))
    assert not action.step.ours(build_foreign_claim())
    assert ClaimView.parse(build_bound_claim(volume)).annotations[KEPT_FOR] == UID
