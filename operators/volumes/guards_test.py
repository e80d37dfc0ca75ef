"""Second lines of defense where the cache is behind, and what tells a source from another."""

from __future__ import annotations

import pytest

from libs.common.kinds import POD, PVC, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.claims import ClaimView
from libs.contracts.snapshots import VOLUME_SNAPSHOT, VolumeSnapshotView
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from operators.volumes.fake_storage import DATA, bind, build, condition, run_pod, status
from operators.volumes.observed import SourceView, find_source_problem, list_mismatches
from operators.volumes.reconcile import plan_volume
from operators.volumes.resources import build_metadata_patch
from operators.volumes.samples import (
    build_bound_claim,
    build_foreign_claim,
    build_statefulset_owner,
    observe,
    parse_volume,
)


def build_copy(source: str) -> Manifest:
    """Build an unowned claim that is filled from another one."""
    claim = build_foreign_claim()
    claim["metadata"] = {"name": "data", "namespace": "default"}
    claim["spec"]["dataSource"] = {"kind": "PersistentVolumeClaim", "name": source}
    claim["spec"].pop("volumeName")
    return claim


@pytest.mark.parametrize("change", ["gone", "newer"])
async def test_claim_is_not_taken_over_for_a_volume_that_the_cache_alone_has(
    api: FakeApi, harness: OperatorHarness, change: str
) -> None:
    """A mark of an owner that is gone hands the claim, and its data, to the garbage collector."""
    # Without its source the volume makes no claim of its own.
    api.create(build(adopt="IfMatching", source={"volume": "other"}))
    await harness.converged()
    api.watches.pause(DEMO_VOLUME)
    if change == "gone":
        api.vanish(DEMO_VOLUME, DATA)
    else:
        api.patch(DEMO_VOLUME, DATA, {"spec": {"adopt": "Never"}})
    mark = api.mark()
    before = api.create(build_copy("other"))

    def asks_twice() -> bool:
        reads = api.requests.select(
            kind=DEMO_VOLUME, since=mark, where=lambda request: request.verb == "get"
        )
        return len(reads) >= 2

    # The second time is of its own accord: no event says that the cache has caught up.
    await harness.eventually(asks_twice, "the operator asks the API server again")
    assert [each for each in api.writes(since=mark) if each.kind == PVC] == []
    api.watches.resume(DEMO_VOLUME)
    await harness.converged()
    assert api.get(PVC, DATA)["metadata"] == before["metadata"]


def test_snapshot_that_tells_no_mode_fits_any_volume() -> None:
    snapshot = build_object(VOLUME_SNAPSHOT, "old", "default")
    snapshot["status"] = {"readyToUse": True, "restoreSize": "5Gi"}
    source = SourceView.of_snapshot(VolumeSnapshotView.parse(snapshot))
    for mode in ("Filesystem", "Block"):
        volume = parse_volume(source={"snapshot": "old"}, volumeMode=mode)
        assert find_source_problem(volume, observe(None, source=source)) is None


@pytest.mark.parametrize(
    ("origin", "asked", "fits"),
    [
        (("PersistentVolumeClaim", "db"), {"volume": "db"}, True),
        (("PersistentVolumeClaim", "other"), {"volume": "db"}, False),
        (("VolumeSnapshot", "db"), {"volume": "db"}, False),
        (("VolumeSnapshot", "old"), {"snapshot": "old"}, True),
        (("VolumeSnapshot", "other"), {"snapshot": "old"}, False),
        (("PersistentVolumeClaim", "old"), {"snapshot": "old"}, False),
        (None, {"snapshot": "old"}, False),
    ],
    ids=str,
)
def test_claim_with_other_data_is_not_adopted_as_the_copy(
    origin: tuple[str, str] | None, asked: dict[str, str], fits: bool
) -> None:
    claim = build_foreign_claim()
    if origin is not None:
        claim["spec"]["dataSource"] = {"kind": origin[0], "name": origin[1]}
    source = SourceView(True, None, claim="db")
    volume = parse_volume(adopt="IfMatching", source=asked)
    problems = list_mismatches(volume, observe(claim, source=source))

    assert problems == ([] if fits else ["it was not populated from spec.source"])


def test_claim_that_others_own_as_well_is_written_once() -> None:
    volume = parse_volume()
    claim = build_bound_claim(volume)
    claim["metadata"]["ownerReferences"].append({**build_statefulset_owner(), "controller": False})

    assert build_metadata_patch(volume, ClaimView.parse(claim)) == []
    assert plan_volume(volume, observe(claim)).actions == ()


async def test_pod_without_a_node_does_not_count_as_a_user(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.converged()
    bind(api)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    api.create(build_object(POD, "waiting", "default", spec=spec))
    await harness.converged()
    assert "usedBy" not in status(api)
    assert not status(api).get("usedByCount")

    run_pod(api)
    await harness.converged()
    assert status(api)["usedBy"] == ["web-0"]
    assert condition(api, "Ready") == ("True", "Bound")
