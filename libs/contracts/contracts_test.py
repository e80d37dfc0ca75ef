"""Views of other people's objects: what they show, and that nothing makes them fail."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import POD, Key, Manifest, build_object
from libs.contracts.cdi import DATA_VOLUME, DataVolumeView
from libs.contracts.claims import (
    ClaimUser,
    ClaimView,
    StorageClassView,
    claims_of,
    holds_claims,
    shrink_pod,
)
from libs.contracts.snapshots import VOLUME_SNAPSHOT, VolumeSnapshotView

GI = Fraction(2**30)

values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def build_claim(**parts: Any) -> Manifest:
    return {
        "metadata": {"name": "data", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        **parts,
    }


def test_claim_shows_sizes_phase_and_class() -> None:
    view = ClaimView.parse(
        build_claim(
            spec={
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "volumeName": "pv-1",
                "resources": {"requests": {"storage": "2Gi"}},
            },
            status={
                "phase": "Bound",
                "capacity": {"storage": "1Gi"},
                "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                "conditions": [
                    {"type": "Resizing", "status": "False"},
                    {"type": "FileSystemResizePending", "status": "True", "message": "m"},
                ],
            },
        )
    )

    assert (view.key, view.bound, view.storage_class) == (Key("default", "data"), True, "fast")
    assert (view.requested, view.capacity) == (2 * GI, GI)
    assert view.resize_status == "NodeResizePending"
    assert [held.type for held in view.conditions] == ["FileSystemResizePending"]
    assert view.condition("Resizing") is None
    assert view.volume_mode == "Filesystem"


@pytest.mark.parametrize(
    ("claim", "name"),
    [
        (build_claim(), None),
        (build_claim(spec={"storageClassName": ""}), ""),
        (build_claim(spec={"storageClassName": "fast"}), "fast"),
    ],
)
def test_no_class_and_the_empty_class_are_told_apart(claim: Manifest, name: str | None) -> None:
    """The empty name asks for a volume that somebody made by hand."""
    assert ClaimView.parse(claim).storage_class == name


@pytest.mark.parametrize(
    ("manifest", "expandable", "waits"),
    [
        ({"allowVolumeExpansion": True, "volumeBindingMode": "Immediate"}, True, False),
        ({"allowVolumeExpansion": False, "volumeBindingMode": "WaitForFirstConsumer"}, False, True),
        ({}, False, False),
        ({"allowVolumeExpansion": "true"}, False, False),
    ],
)
def test_class_tells_whether_claims_grow_and_wait(
    manifest: Manifest, expandable: bool, waits: bool
) -> None:
    view = StorageClassView.parse({"metadata": {"name": "c"}, **manifest})

    assert (view.expandable, view.waits_for_consumer) == (expandable, waits)


def test_snapshot_is_ready_only_when_it_says_so() -> None:
    manifest = build_claim(
        spec={"source": {"persistentVolumeClaimName": "data"}},
        status={"readyToUse": True, "restoreSize": "1Gi", "error": {"message": "once"}},
    )

    view = VolumeSnapshotView.parse(manifest)

    assert (view.source_claim, view.ready, view.restore_size) == ("data", True, GI)
    assert view.error == "once"
    assert not VolumeSnapshotView.parse(build_claim()).ready
    assert VOLUME_SNAPSHOT.path("a", "b") == (
        "/apis/snapshot.storage.k8s.io/v1/namespaces/a/volumesnapshots/b"
    )


def build_pod(**spec: Any) -> Manifest:
    return build_object(
        POD,
        "web",
        "default",
        metadata={"uid": "u", "resourceVersion": "1", "annotations": {"large": "x" * 1000}},
        spec={"containers": [{"name": "c"}], **spec},
        status={"phase": "Running", "containerStatuses": [{}]},
    )


def test_pod_names_each_of_its_claims_once() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "logs"}},
    ]

    assert claims_of(build_pod(volumes=volumes)) == ["data", "logs"]


def test_shrunk_pod_tells_the_same_of_its_claims() -> None:
    pod = build_pod(
        nodeName="n", volumes=[{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}]
    )

    small = shrink_pod(pod)

    assert claims_of(small) == claims_of(pod)
    assert holds_claims(small)
    assert ClaimUser.parse(small) == ClaimUser.parse(pod)
    assert shrink_pod(small) == small
    assert len(str(small)) < 400


def test_pod_holds_claims_once_it_has_a_node_and_until_it_is_gone() -> None:
    """As Kubernetes' own protection has it: also when the pod has ended."""
    ended = build_pod(nodeName="n")
    ended["status"]["phase"] = "Succeeded"

    assert not holds_claims(build_pod())
    assert holds_claims(ended)
    assert str(ClaimUser.parse(ended)) == "web (finished)"


@given(spec=values, status=values, extra=values)
def test_views_never_fail_on_what_others_wrote(spec: Any, status: Any, extra: Any) -> None:
    manifest = build_claim(spec=spec, status=status)
    nested = build_claim(
        spec={"resources": spec, "source": extra, "volumes": extra, "accessModes": extra},
        status={"capacity": status, "conditions": extra, "allocatedResourceStatuses": status},
    )

    for each in (manifest, nested):
        assert ClaimView.parse(each).key.name == "data"
        assert VolumeSnapshotView.parse(each).key.name == "data"
        assert StorageClassView.parse(each).name == "data"
        assert shrink_pod(each)["metadata"]["name"] == "data"


def test_disk_that_cannot_be_cloned_quotes_cdi() -> None:
    """As recorded of CDI: a clone that is smaller than its source has no phase and no claim."""
    words = "target resources requests storage size is smaller than the source 67108864 < 71139328"
    bound = {"type": "Bound", "status": "False", "reason": "CloneValidationFailed"}
    held = {"metadata": {"name": "new"}, "status": {"conditions": [{**bound, "message": words}]}}

    view = DataVolumeView.parse(held)

    assert (view.last_error, view.refusal, view.failed) == (words, "", False)


@pytest.mark.parametrize(
    ("type_", "reason", "message", "words"),
    [
        ("Running", "ImagePullFailed", "unexpected EOF", "ImagePullFailed: unexpected EOF"),
        ("Running", "ChecksumError", "checksum mismatch", "ChecksumError: checksum mismatch"),
        ("Bound", "ErrExceededQuota", "exceeded quota: s", "ErrExceededQuota: exceeded quota: s"),
        ("Running", "ErrExceededQuota", "Error starting pod", "ErrExceededQuota: Error starting"),
        ("Running", "Error", "expected status code 200, got 403", "expected status code 200"),
        ("Bound", "Pending", "target PVC Pending", ""),
        ("Bound", "NotFound", "No PVC found", ""),
        ("Running", "Completed", "Import Complete", ""),
    ],
)
def test_every_reason_of_cdi_is_reported_unless_it_means_progress(
    type_: str, reason: str, message: str, words: str
) -> None:
    """As the real CDI reported them for disks that could not be filled."""
    condition = {"type": type_, "status": "False", "reason": reason, "message": message}
    manifest = build_object(DATA_VOLUME, "d", "default", status={"conditions": [condition]})

    error = DataVolumeView.parse(manifest).last_error
    assert error.startswith(words) and bool(error) is bool(words)
