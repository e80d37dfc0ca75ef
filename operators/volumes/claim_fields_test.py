"""Fields that DemoVolume passes on to its claim: metadata, choice of the volume, attributes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import PVC, Manifest
from libs.common.plan import Create, Patch
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.patches import apply_json_patch
from libs.common.testing.harness import OperatorHarness
from libs.contracts.claims import ClaimView
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume, Reason
from operators.volumes.fake_storage import DATA, bind, build, condition, status
from operators.volumes.naming import CLAIM_METADATA, REQUESTED, VOLUME_LABEL
from operators.volumes.observed import list_mismatches
from operators.volumes.reconcile import plan_finalize, plan_volume
from operators.volumes.samples import build_bound_claim, build_foreign_claim, observe, parse_volume
from operators.volumes.status import build_status

BACKUP = {"labels": {"backup": "daily"}, "annotations": {"example.com/cost-center": "7"}}


def created(volume: DemoVolume) -> Manifest:
    """Return the claim that a volume without one gets."""
    (action,) = plan_volume(volume, observe(None)).actions
    assert isinstance(action.step, Create)
    return action.step.manifest


def corrected(volume: DemoVolume, claim: Manifest) -> Manifest:
    """Return a claim after the plan, which then has nothing left to do."""
    for action in plan_volume(volume, observe(claim)).actions:
        assert isinstance(action.step, Patch)
        claim = apply_json_patch(claim, action.step.operations)
    assert plan_volume(volume, observe(claim)).actions == ()
    return claim


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_claim_gets_the_metadata_of_the_spec_and_needs_no_second_write(policy: str) -> None:
    volume = parse_volume(claimMetadata=BACKUP, reclaimPolicy=policy)
    claim = build_bound_claim(volume)

    assert claim["metadata"]["labels"] == {"backup": "daily", VOLUME_LABEL: "data"}
    assert claim["metadata"]["annotations"]["example.com/cost-center"] == "7"
    assert plan_volume(volume, observe(claim)).actions == ()


def test_entry_that_changes_or_is_removed_in_the_spec_does_so_on_the_claim_alone() -> None:
    claim = build_bound_claim(parse_volume(claimMetadata=BACKUP))
    claim["metadata"]["labels"]["of-others"] = "kept"
    claim["metadata"]["annotations"]["example.com/of-others"] = "kept"
    changed = corrected(parse_volume(claimMetadata={"labels": {"backup": "never"}}), claim)
    assert changed["metadata"]["labels"]["backup"] == "never"
    assert "example.com/cost-center" not in changed["metadata"]["annotations"]

    bare = corrected(parse_volume(), changed)
    assert bare["metadata"]["labels"] == {"of-others": "kept", VOLUME_LABEL: "data"}
    assert bare["metadata"]["annotations"] == {"example.com/of-others": "kept", REQUESTED: "10Gi"}


@pytest.mark.parametrize(
    "record",
    ["nonsense", "[]", '{"labels": 7}', '{"labels": ["storage.slipway.dev/demovolume", 1]}'],
)
def test_record_that_others_have_written_removes_nothing_of_the_operator(record: str) -> None:
    claim = build_bound_claim(parse_volume())
    claim["metadata"]["annotations"] = {CLAIM_METADATA: record}
    after = corrected(parse_volume(), claim)

    assert after["metadata"]["labels"] == {VOLUME_LABEL: "data"}
    assert CLAIM_METADATA not in after["metadata"]["annotations"]


def test_kept_claim_keeps_the_metadata_for_backups_but_not_the_record() -> None:
    volume = parse_volume(claimMetadata=BACKUP, reclaimPolicy="Retain")
    claim = build_bound_claim(volume)
    (action,) = plan_finalize(volume, observe(claim)).actions
    assert isinstance(action.step, Patch)
    metadata = apply_json_patch(claim, action.step.operations)["metadata"]

    assert metadata["labels"] == {"backup": "daily"}
    assert metadata["annotations"]["example.com/cost-center"] == "7"
    assert CLAIM_METADATA not in metadata["annotations"]


@pytest.mark.parametrize("key", ["storage.slipway.dev/kept-for", "pv.kubernetes.io/bind-completed"])
def test_keys_of_kubernetes_and_of_the_operator_are_left_alone(key: str) -> None:
    claim = build_bound_claim(parse_volume())
    claim["metadata"]["annotations"] = {CLAIM_METADATA: f'{{"annotations":["{key}"]}}', key: "x"}
    claim["metadata"]["annotations"].pop("storage.slipway.dev/kept-for", None)
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    after = corrected(parse_volume(), claim)

    assert after["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        ({"volumeName": "pv-7", "storageClassName": ""}, "volumeName", "pv-7"),
        (
            {"selector": {"matchLabels": {"disk": "fast"}}},
            "selector",
            {"matchLabels": {"disk": "fast"}},
        ),
        (
            {"selector": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}},
            "selector",
            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
        ),
        (
            {"dataSourceRef": {"apiGroup": "example.com", "kind": "Image", "name": "linux"}},
            "dataSourceRef",
            {"apiGroup": "example.com", "kind": "Image", "name": "linux"},
        ),
        ({"volumeAttributesClassName": "gold"}, "volumeAttributesClassName", "gold"),
    ],
    ids=str,
)
def test_field_of_the_claim_is_passed_on(asked: dict[str, Any], field: str, value: Any) -> None:
    assert created(parse_volume(**asked))["spec"][field] == value


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"volumeName": "pv-7"}, "volumeName pv-1"),
        ({"selector": {"matchLabels": {"disk": "fast"}}}, "selector"),
        ({"dataSourceRef": {"apiGroup": "example.com", "kind": "Image", "name": "x"}}, "populated"),
    ],
    ids=str,
)
def test_claim_that_was_chosen_otherwise_is_not_adopted(
    asked: dict[str, Any], problem: str
) -> None:
    volume = parse_volume(adopt="IfMatching", **asked)

    (found,) = list_mismatches(volume, observe(build_foreign_claim()))
    assert problem in found


def test_claim_that_was_chosen_in_the_same_way_is_adopted() -> None:
    reference = {"apiGroup": "example.com", "kind": "Image", "name": "linux"}
    selector = {"matchLabels": {"disk": "fast"}}
    claim = build_foreign_claim()
    claim["spec"] |= {"selector": selector, "dataSourceRef": reference}
    volume = parse_volume(
        adopt="IfMatching", volumeName="pv-1", selector=selector, dataSourceRef=reference
    )

    assert list_mismatches(volume, observe(claim)) == []


def modified(volume: DemoVolume, claim: Manifest, **refusals: str) -> tuple[str, str, str]:
    """Return the condition Modified of a volume."""
    reported: dict[StrEnum, str] = {Reason(name): text for name, text in refusals.items()}
    shown = build_status(volume, observe(claim), reported, current=[], now=FakeClock().now())
    held = find_condition({"status": shown}, "Modified")
    assert held is not None
    return held["status"], held["reason"], held.get("message", "")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ("False", "Modifying")),
        ({"currentVolumeAttributesClassName": "silver"}, ("False", "Modifying")),
        ({"currentVolumeAttributesClassName": "gold"}, ("True", "AttributesApplied")),
        (
            {"modifyVolumeStatus": {"status": "Infeasible"}},
            ("False", "ModifyInfeasible"),
        ),
        ({"phase": "Pending"}, ("Unknown", "NotBound")),
    ],
    ids=str,
)
def test_attributes_count_once_the_volume_has_them(
    status: Manifest, expected: tuple[str, str]
) -> None:
    volume = parse_volume(volumeAttributesClassName="gold")
    claim = build_bound_claim(volume, **status)

    assert modified(volume, claim)[:2] == expected


def test_class_of_attributes_that_is_refused_is_reported() -> None:
    volume = parse_volume(volumeAttributesClassName="gold")
    claim = build_bound_claim(parse_volume())

    assert modified(volume, claim, Modifying="no such class") == (
        "False",
        "ModifyFailed",
        "no such class",
    )


def test_claim_without_a_volume_is_not_asked_for_other_attributes() -> None:
    claim = build_bound_claim(parse_volume(), phase="Pending")

    assert plan_volume(parse_volume(volumeAttributesClassName="gold"), observe(claim)).actions == ()
    assert ClaimView.parse(claim).attributes_class == ""


async def test_attributes_change_with_the_spec(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build(volumeAttributesClassName="silver"))
    await harness.converged()
    bind(api)
    await harness.converged()
    api.patch(DEMO_VOLUME, DATA, {"spec": {"volumeAttributesClassName": "gold"}})
    await harness.converged()
    assert api.get(PVC, DATA)["spec"]["volumeAttributesClassName"] == "gold"
    assert condition(api, "Modified") == ("False", "Modifying")

    api.patch_status(PVC, DATA, {"currentVolumeAttributesClassName": "gold"})
    await harness.converged()
    assert condition(api, "Modified") == ("True", "AttributesApplied")
    assert status(api)["volumeAttributesClassName"] == "gold"
    mark = api.mark()
    await harness.restart()
    await harness.converged()
    assert [each for each in api.writes(since=mark) if each.kind == PVC] == []
