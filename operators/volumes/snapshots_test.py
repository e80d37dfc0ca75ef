"""Snapshots, as the last thing of a DemoVolume and as its source, over HTTP."""

from __future__ import annotations

import pytest

from libs.common.kinds import PVC, Key, Manifest, key_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.snapshots import VOLUME_SNAPSHOT
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, Reason
from operators.volumes.fake_storage import DATA, bind, build, condition, end_pod, run_pod
from operators.volumes.naming import snapshot_name


async def serve_snapshots(api: FakeApi, harness: OperatorHarness) -> None:
    """Create a volume that is in use and has a last snapshot to take, if snapshots are served."""
    api.register(VOLUME_SNAPSHOT)
    await harness.restart()
    api.create(build(reclaimPolicy="Snapshot"))
    await harness.converged()
    bind(api)
    await harness.converged()


async def begin_deletion(api: FakeApi, harness: OperatorHarness) -> Manifest:
    """Delete the volume, and return the last snapshot that is taken of it."""
    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()
    (snapshot,) = api.objects(VOLUME_SNAPSHOT)
    return snapshot


async def test_last_snapshot_is_ready_before_the_claim_goes(
    api: FakeApi, harness: OperatorHarness
) -> None:
    await serve_snapshots(api, harness)
    assert condition(api, "SnapshotsAvailable") == ("True", Reason.SNAPSHOT_API_FOUND)

    snapshot = await begin_deletion(api, harness)
    assert snapshot["spec"]["source"] == {"persistentVolumeClaimName": "data"}
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOTTING)
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]
    name = Key("default", snapshot["metadata"]["name"])
    api.patch_status(VOLUME_SNAPSHOT, name, {"readyToUse": True})
    await harness.converged()

    assert api.find(PVC, DATA) is None
    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(VOLUME_SNAPSHOT, name) is not None


async def test_claim_stays_if_its_last_snapshot_is_gone_though_the_watch_is_behind(
    api: FakeApi, harness: OperatorHarness
) -> None:
    await serve_snapshots(api, harness)
    snapshot = key_of(await begin_deletion(api, harness))
    protected = api.fail("delete", PVC, status=403, times=None, message="protected")
    api.patch_status(VOLUME_SNAPSHOT, snapshot, {"readyToUse": True})
    await harness.eventually(lambda: protected.hits)
    api.watches.pause(VOLUME_SNAPSHOT)

    api.delete(VOLUME_SNAPSHOT, snapshot)
    protected.release()

    await harness.eventually(lambda: api.find(VOLUME_SNAPSHOT, snapshot) is not None)
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]


async def test_failed_snapshot_is_repeated_with_the_class_that_the_message_asks_for(
    api: FakeApi, harness: OperatorHarness
) -> None:
    # kubeblocks#2883, external-snapshotter#667: a cluster without a default class.
    await serve_snapshots(api, harness)
    snapshot = await begin_deletion(api, harness)
    error = {"message": "cannot find default snapshot class"}
    api.patch_status(VOLUME_SNAPSHOT, key_of(snapshot), {"error": error})
    await harness.converged()
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOT_FAILED)
    (shown,) = [
        each["message"]
        for each in api.get(DEMO_VOLUME, DATA)["status"]["conditions"]
        if each["type"] == "Terminating"
    ]
    name = snapshot["metadata"]["name"]
    assert f"set spec.snapshotClassName and delete VolumeSnapshot default/{name}" in shown

    api.patch(DEMO_VOLUME, DATA, {"spec": {"snapshotClassName": "fast"}})
    await harness.converged()
    api.delete(VOLUME_SNAPSHOT, key_of(snapshot))
    await harness.converged()
    (repeated,) = api.objects(VOLUME_SNAPSHOT)
    assert repeated["spec"]["volumeSnapshotClassName"] == "fast"


async def test_snapshot_that_is_older_than_the_last_use_is_followed_by_another(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Between two pods of a Deployment nobody uses the volume; what the second writes counts."""
    await serve_snapshots(api, harness)
    early = await begin_deletion(api, harness)
    run_pod(api)
    await harness.converged()
    assert condition(api, "Terminating") == ("True", Reason.IN_USE)
    api.patch_status(VOLUME_SNAPSHOT, key_of(early), {"readyToUse": True})
    end_pod(api)
    await harness.converged()

    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOTTING)
    (late,) = [each for each in api.objects(VOLUME_SNAPSHOT) if key_of(each) != key_of(early)]
    api.patch_status(VOLUME_SNAPSHOT, key_of(late), {"readyToUse": True})
    await harness.converged()
    assert api.find(PVC, DATA) is None
    assert api.find(DEMO_VOLUME, DATA) is None


async def test_snapshot_of_an_earlier_volume_is_not_the_last_of_the_next(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The claim is the same, and months may lie between them."""
    await serve_snapshots(api, harness)
    early = await begin_deletion(api, harness)
    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Retain"}})
    await harness.converged()
    api.patch_status(VOLUME_SNAPSHOT, key_of(early), {"readyToUse": True})
    api.create(build(reclaimPolicy="Snapshot", adopt="IfMatching"))
    await harness.converged()
    assert condition(api, "Ready") == ("True", Reason.BOUND)

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    assert api.find(PVC, DATA) is not None
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOTTING)
    assert len(api.objects(VOLUME_SNAPSHOT)) == 2


async def test_last_snapshot_is_taken_once_somebody_gives_its_name_free(
    api: FakeApi, harness: OperatorHarness
) -> None:
    await serve_snapshots(api, harness)
    name = snapshot_name("data", api.get(PVC, DATA)["metadata"]["uid"])
    metadata = {"name": name, "namespace": "default"}
    api.create(
        {"apiVersion": VOLUME_SNAPSHOT.api_version, "kind": VOLUME_SNAPSHOT.kind}
        | {"metadata": metadata, "spec": {}}
    )
    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOT_CONFLICT)

    api.delete(VOLUME_SNAPSHOT, Key("default", name))
    await harness.converged()

    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOTTING)


async def test_cluster_without_snapshots_is_no_reason_to_lose_data(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build(reclaimPolicy="Snapshot"))
    await harness.converged()
    bind(api)
    await harness.converged()
    assert condition(api, "SnapshotsAvailable") == ("False", Reason.SNAPSHOT_API_MISSING)
    assert condition(api, "Ready") == ("True", Reason.BOUND)
    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOT_API_MISSING)
    assert api.find(PVC, DATA) is not None

    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Retain"}})
    await harness.converged()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(PVC, DATA) is not None


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_source_that_goes_before_the_copy_has_begun_is_missed_where_its_claim_goes_too(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    """A class that waits for a pod copies then; nothing keeps the source until the copy begins."""
    api.create(build(reclaimPolicy=policy))
    await harness.converged()
    bind(api)
    api.create(build("clone", source={"volume": "data"}, storageClassName="lazy"))
    await harness.converged()
    clone = Key("default", "clone")
    assert condition(api, "Ready", clone) == ("True", Reason.WAITING_FOR_FIRST_CONSUMER)

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    expected = {
        "Delete": ("False", Reason.SOURCE_MISSING),
        "Retain": ("True", Reason.WAITING_FOR_FIRST_CONSUMER),
    }
    assert condition(api, "Ready", clone) == expected[policy]


async def test_clone_that_waits_for_its_source_notices_when_that_is_deleted(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build(reclaimPolicy="Retain"))
    api.create(build("clone", source={"volume": "data"}))
    await harness.converged()
    clone = Key("default", "clone")
    assert condition(api, "Ready", clone) == ("False", Reason.SOURCE_NOT_READY)

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    assert condition(api, "Ready", clone) == ("False", Reason.SOURCE_MISSING)


async def test_source_is_waited_for_and_then_used(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build("clone", source={"volume": "data"}))
    await harness.converged()
    clone = Key("default", "clone")
    assert condition(api, "Ready", clone) == ("False", Reason.SOURCE_MISSING)
    api.create(build())
    await harness.converged()
    assert condition(api, "Ready", clone) == ("False", Reason.SOURCE_NOT_READY)
    assert api.find(PVC, clone) is None

    bind(api)
    await harness.converged()

    source = api.get(PVC, clone)["spec"]["dataSource"]
    assert (source["kind"], source["name"]) == ("PersistentVolumeClaim", "data")
