"""The status of a DemoVolume: what people and machines read."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.crd import build_crd, lint_crd
from libs.common.kinds import Manifest
from libs.contracts.claims import ClaimUser, StorageClassView
from operators.volumes.api.v1alpha1 import USERS_SHOWN, ConditionType, DemoVolume, Reason
from operators.volumes.observed import Observed, SourceView
from operators.volumes.reconcile import plan_finalize
from operators.volumes.samples import (
    EXPANDABLE,
    build_bound_claim,
    build_foreign_claim,
    build_statefulset_owner,
    build_volume,
    observe,
    parse_volume,
)
from operators.volumes.status import Refusals, build_final_status, build_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
LAZY = StorageClassView("lazy", expandable=True, waits_for_consumer=True)


def show(volume: DemoVolume, observed: Observed, refusals: Refusals | None = None) -> Manifest:
    return build_status(volume, observed, refusals or {}, current=(), now=NOW)


def condition(status: Manifest, condition_type: str) -> tuple[str, str, str]:
    found = find_condition({"status": status}, condition_type)
    assert found is not None
    return found["status"], found["reason"], found["message"]


def pending(volume: DemoVolume) -> Manifest:
    claim = build_bound_claim(volume)
    del claim["spec"]["volumeName"]
    claim["status"] = {"phase": "Pending"}
    return claim


def test_status_of_a_bound_volume_tells_all_about_it() -> None:
    volume = parse_volume("any", name="data")
    users = (ClaimUser("web-0", finished=False),)

    status = show(volume, observe(build_bound_claim(volume), users=users))

    assert {name: status[name] for name in status if name != "conditions"} == {
        "observedGeneration": 1,
        "name": "data",
        "pvcRef": {"name": "data", "uid": "claim-uid"},
        "reclaimPolicy": "Delete",
        "volumeName": "pv-1",
        "storageClassName": "standard",
        "requested": "10Gi",
        "capacity": "10Gi",
        "usedByCount": 1,
        "usedBy": ["web-0"],
    }
    assert condition(status, ConditionType.READY)[:2] == ("True", Reason.BOUND)
    assert condition(status, ConditionType.BOUND)[:2] == ("True", Reason.BOUND)
    assert condition(status, ConditionType.RESIZED)[:2] == ("True", Reason.SIZE_REACHED)
    assert condition(status, ConditionType.DRIFTED)[:2] == ("False", Reason.IN_SYNC)
    assert condition(status, ConditionType.CONFLICT)[:2] == ("False", Reason.NO_CONFLICT)


def test_status_name_is_copied_from_the_spec_before_anything_else_is_there() -> None:
    assert show(parse_volume("any", name="data"), observe(None))["name"] == "data"


def test_users_are_bounded_and_counted() -> None:
    users = tuple(ClaimUser(f"web-{number}", finished=False) for number in range(1000))

    status = show(parse_volume(), observe(build_bound_claim(parse_volume()), users=users))

    assert len(status["usedBy"]) == USERS_SHOWN
    assert status["usedByCount"] == 1000


def test_waiting_for_the_first_consumer_is_ready_and_no_error() -> None:
    """A user who waits for Ready before starting the pod would otherwise wait indefinitely."""
    volume = parse_volume()

    status = show(volume, observe(pending(volume), storage_class=LAZY))

    reason = Reason.WAITING_FOR_FIRST_CONSUMER
    assert condition(status, ConditionType.READY)[:2] == ("True", reason)
    assert condition(status, ConditionType.BOUND)[:2] == ("False", reason)
    assert condition(status, ConditionType.RESIZED)[:2] == ("Unknown", Reason.NOT_BOUND)


def test_pending_claim_is_provisioning_once_its_consumer_is_there() -> None:
    volume = parse_volume()
    claim = pending(volume)
    claim["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "node-1"}

    status = show(volume, observe(claim, storage_class=LAZY))

    assert condition(status, ConditionType.READY)[:2] == ("False", Reason.PROVISIONING)


def test_claim_whose_origin_went_before_it_was_copied_is_not_ready() -> None:
    """No pod could ever start with it, so no condition should say that it waits for one."""
    volume = parse_volume(source={"snapshot": "monday"})
    lost = "VolumeSnapshot default/monday"

    status = show(volume, observe(pending(volume), storage_class=LAZY, lost_origin=lost))
    assert condition(status, ConditionType.READY)[:2] == ("False", Reason.SOURCE_MISSING)
    assert condition(status, ConditionType.BOUND)[2].startswith(lost)

    status = show(volume, observe(build_bound_claim(volume), lost_origin=lost))
    assert condition(status, ConditionType.READY)[:2] == ("True", Reason.BOUND)


@pytest.mark.parametrize(
    ("class_name", "storage_class", "words"),
    [
        ("fast", None, "storage class fast does not exist"),
        ("", None, "created by hand"),
        (None, None, "the cluster has no default storage class; set spec.storageClassName"),
        ("standard", EXPANDABLE, "see its events"),
    ],
)
def test_claim_that_waits_for_its_volume_says_what_may_be_wrong(
    class_name: str | None, storage_class: StorageClassView | None, words: str
) -> None:
    volume = parse_volume()
    claim = pending(volume)
    claim["spec"]["storageClassName"] = class_name

    status = show(volume, observe(claim, storage_class=storage_class))

    assert condition(status, ConditionType.READY)[:2] == ("False", Reason.PROVISIONING)
    assert words in condition(status, ConditionType.READY)[2]


def test_lost_volume_is_not_ready_and_the_claim_is_not_made_anew() -> None:
    volume = parse_volume()
    claim = build_bound_claim(volume)
    claim["status"]["phase"] = "Lost"

    status = show(volume, observe(claim))

    assert condition(status, ConditionType.READY)[:2] == ("False", Reason.LOST)


def test_volume_that_is_too_small_is_not_ready() -> None:
    volume = parse_volume(size=20)

    status = show(volume, observe(build_bound_claim(volume, requested="20Gi")))

    assert condition(status, ConditionType.READY)[:2] == ("False", Reason.RESIZING)
    assert (status["requested"], status["capacity"]) == ("20Gi", "10Gi")


PENDING_ON_NODE: Manifest = {"allocatedResourceStatuses": {"storage": "NodeResizePending"}}
RUNNING, FINISHED = ClaimUser("web-0", finished=False), ClaimUser("job-x", finished=True)


@pytest.mark.parametrize("users", [(), (FINISHED,)], ids=["unused", "job done"])
def test_volume_whose_file_system_waits_for_a_pod_is_ready(users: tuple[ClaimUser, ...]) -> None:
    """The kubelet grows it before the pod starts; waiting for Ready first would never end."""
    volume = parse_volume(size=20)
    claim = build_bound_claim(volume, requested="20Gi", **PENDING_ON_NODE)

    status = show(volume, observe(claim, users=users))

    assert condition(status, ConditionType.READY)[:2] == ("True", Reason.FILE_SYSTEM_PENDING)
    assert condition(status, ConditionType.RESIZED)[:2] == ("False", Reason.FILE_SYSTEM_PENDING)


def test_volume_whose_file_system_is_mounted_is_ready_once_it_has_grown() -> None:
    volume = parse_volume(size=20)
    claim = build_bound_claim(volume, requested="20Gi", **PENDING_ON_NODE)

    status = show(volume, observe(claim, users=(RUNNING, FINISHED)))

    ready = condition(status, ConditionType.READY)
    assert ready[:2] == ("False", Reason.FILE_SYSTEM_PENDING)
    assert ready[2].endswith("; if that lasts, restart pod web-0")


def test_smaller_size_of_a_claim_that_cannot_change_says_what_happens() -> None:
    volume = parse_volume(size=5)
    claim = pending(volume)
    claim["spec"]["resources"]["requests"]["storage"] = "20Gi"

    status = show(volume, observe(claim, storage_class=LAZY))

    drifted = condition(status, ConditionType.DRIFTED)
    assert drifted[:2] == ("True", Reason.LARGER_THAN_SPEC)
    assert "it will be replaced" in drifted[2]


def test_claim_that_is_being_deleted_is_not_ready() -> None:
    volume = parse_volume()
    claim = build_bound_claim(volume)
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    users = (ClaimUser("web-0", finished=False),)
    used = condition(show(volume, observe(claim, users=users)), ConditionType.READY)
    assert "still used by pod web-0" in used[2]

    status = show(volume, observe(claim))

    assert condition(status, ConditionType.READY)[:2] == ("False", Reason.CLAIM_TERMINATING)


def test_request_above_the_size_is_shown_as_drift_but_ready() -> None:
    volume = parse_volume()

    status = show(volume, observe(build_bound_claim(volume, requested="20Gi", capacity="20Gi")))

    assert condition(status, ConditionType.READY)[0] == "True"
    assert condition(status, ConditionType.DRIFTED)[:2] == ("True", Reason.LARGER_THAN_SPEC)


def test_rounded_up_capacity_is_no_drift() -> None:
    """Drivers round 15675Mi up to 16Gi; comparing text would call that a shrink."""
    volume = parse_volume(size="15675Mi")
    claim = build_bound_claim(volume, requested="15675Mi", capacity="16Gi")

    status = show(volume, observe(claim))

    assert condition(status, ConditionType.DRIFTED)[0] == "False"
    assert condition(status, ConditionType.RESIZED)[0] == "True"


def test_refused_correction_is_drift() -> None:
    volume = parse_volume()
    claim = build_bound_claim(volume)
    del claim["metadata"]["labels"]

    status = show(volume, observe(claim), {Reason.CORRECTED: "denied by policy"})

    assert condition(status, ConditionType.DRIFTED) == (
        "True",
        Reason.CORRECTION_FAILED,
        "denied by policy",
    )


def test_refused_creation_says_what_the_server_said() -> None:
    status = show(parse_volume(), observe(None), {Reason.CREATED: "exceeded quota: storage"})

    assert condition(status, ConditionType.READY) == (
        "False",
        Reason.CREATE_FAILED,
        "exceeded quota: storage",
    )


@pytest.mark.parametrize(
    ("observed", "spec", "reason", "words"),
    [
        pytest.param(
            observe(build_foreign_claim(build_statefulset_owner()), holder="StatefulSet db"),
            {"adopt": "IfMatching"},
            Reason.FOREIGN_CLAIM,
            "belongs to StatefulSet db",
            id="owned",
        ),
        pytest.param(
            observe(build_foreign_claim()),
            {},
            Reason.UNOWNED_CLAIM,
            "set spec.adopt to IfMatching",
            id="unowned",
        ),
        pytest.param(
            observe(build_foreign_claim()),
            {"adopt": "IfMatching", "accessModes": ["ReadWriteMany"], "volumeMode": "Block"},
            Reason.MISMATCH,
            "accessModes ReadWriteOnce, which differs from spec.accessModes; it has volumeMode",
            id="every difference is named",
        ),
    ],
)
def test_conflict_names_who_is_in_the_way_and_what_to_do(
    observed: Observed, spec: Any, reason: Reason, words: str
) -> None:
    status = show(parse_volume(**spec), observed)

    assert condition(status, ConditionType.CONFLICT)[:2] == ("True", reason)
    assert words in condition(status, ConditionType.CONFLICT)[2]
    assert condition(status, ConditionType.READY)[:2] == ("False", reason)
    assert "pvcRef" not in status
    assert "capacity" not in status


@pytest.mark.parametrize(
    ("source", "reason", "words"),
    [
        (None, Reason.SOURCE_MISSING, "VolumeSnapshot monday"),
        (SourceView(ready=False, size=None), Reason.SOURCE_NOT_READY, "is not ready"),
        (
            SourceView(True, Fraction(2**40), "Block"),
            Reason.SOURCE_MISMATCH,
            "1Ti, which spec.size does not",
        ),
    ],
)
def test_source_that_does_not_fit_is_explained(source: Any, reason: Reason, words: str) -> None:
    volume = parse_volume(source={"snapshot": "monday"})

    status = show(volume, observe(None, source=source))

    assert condition(status, ConditionType.READY)[:2] == ("False", reason)
    assert words in condition(status, ConditionType.READY)[2]


@pytest.mark.parametrize("served", [True, False])
def test_need_for_snapshots_is_shown_where_the_spec_has_one(served: bool) -> None:
    volume = parse_volume(reclaimPolicy="Snapshot")

    status = show(volume, observe(build_bound_claim(volume), snapshots_served=served))

    assert condition(status, ConditionType.SNAPSHOTS_AVAILABLE)[0] == str(served)
    assert condition(status, ConditionType.READY)[0] == "True"
    assert (
        find_condition({"status": show(parse_volume(), observe(None))}, "SnapshotsAvailable")
        is None
    )


def test_deletion_that_waits_says_for_what() -> None:
    volume = parse_volume()
    observed = observe(build_bound_claim(volume), users=(ClaimUser("web-0", finished=False),))

    status = build_final_status(
        volume, observed, plan_finalize(volume, observed), {}, current=(), now=NOW
    )

    assert condition(status, ConditionType.TERMINATING)[:2] == ("True", Reason.IN_USE)
    assert "pod web-0" in condition(status, ConditionType.TERMINATING)[2]
    assert condition(status, ConditionType.READY)[:2] == ("False", Reason.TERMINATING)
    assert status["usedBy"] == ["web-0"]


def test_status_does_not_change_with_the_time_alone() -> None:
    volume = parse_volume()
    observed = observe(build_bound_claim(volume))
    before = show(volume, observed)

    after = build_status(volume, observed, {}, current=before["conditions"], now=LATER)

    assert after == before


def test_status_fits_its_own_schema() -> None:
    """What the API server would prune or refuse is a bug of ours."""
    volume = parse_volume()
    status = show(volume, observe(build_bound_claim(volume)))

    assert DemoVolume.parse({**build_volume(), "status": status}).status is not None
    schema = build_crd(DemoVolume)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert set(status) <= set(schema["properties"]["status"]["properties"])


def test_api_keeps_the_conventions() -> None:
    assert lint_crd(DemoVolume) == []
