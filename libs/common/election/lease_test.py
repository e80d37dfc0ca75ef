"""Tests of the Lease object as the election reads and writes it."""

from datetime import UTC, datetime

import pytest

from libs.common.election.lease import LeaseRecord, build_lease, parse_lease, render_time
from libs.common.kinds import Key, Manifest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = Key("operators", "podset")


def test_record_survives_the_way_through_the_object() -> None:
    record = LeaseRecord("a", 15, 3, render_time(NOON), render_time(NOON), "7")

    assert parse_lease(build_lease(KEY, record, None)) == record


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"spec": None, "metadata": None},
        {"spec": {"holderIdentity": None, "leaseDurationSeconds": None, "leaseTransitions": None}},
        {"spec": {"leaseDurationSeconds": -1, "leaseTransitions": "x"}},
    ],
)
def test_lease_without_a_holder_is_free(manifest: Manifest) -> None:
    assert parse_lease(manifest) == LeaseRecord()


def test_labels_and_unknown_fields_of_the_object_stay() -> None:
    base: Manifest = {
        "metadata": {
            "name": "podset",
            "namespace": "operators",
            "uid": "u",
            "labels": {"helm": "1"},
            "resourceVersion": "1",
            "managedFields": [{}],
        },
        "spec": {"strategy": "OldestEmulationVersion"},
    }
    manifest = build_lease(KEY, LeaseRecord("a", 0.4, resource_version="2"), base)

    assert manifest["metadata"] == {
        "name": "podset",
        "namespace": "operators",
        "uid": "u",
        "labels": {"helm": "1"},
        "resourceVersion": "2",
    }
    assert manifest["spec"]["strategy"] == "OldestEmulationVersion"
    assert manifest["spec"]["leaseDurationSeconds"] == 1


def test_new_lease_takes_nothing_from_the_deleted_one() -> None:
    base: Manifest = {"metadata": {"uid": "u", "resourceVersion": "1"}}

    assert build_lease(KEY, LeaseRecord("a"), base)["metadata"] == {
        "namespace": "operators",
        "name": "podset",
    }


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("", "2026-01-01T12:00:00.000000Z"),
        ("2026-01-01T11:00:00.000000Z", "2026-01-01T12:00:00.000000Z"),
        ("2026-01-01T12:00:00.000000Z", "2026-01-01T12:00:00.000001Z"),
        ("2027-01-01T12:00:00.000000Z", "2027-01-01T12:00:00.000001Z"),
        ("nonsense", "2026-01-01T12:00:00.000000Z"),
    ],
)
def test_each_renewal_has_a_later_time(after: str, expected: str) -> None:
    assert render_time(NOON, after) == expected


def test_edit_of_labels_is_no_new_term() -> None:
    record = LeaseRecord("a", 15, 3, "t0", "t1", "7")

    assert record.same_term(LeaseRecord("a", 15, 3, "t0", "t1", "8"))
    assert not record.same_term(LeaseRecord("a", 15, 3, "t0", "t2", "8"))
