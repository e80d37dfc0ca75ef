"""The volumes operator against an API server over HTTP, as a user would try it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.contracts.snapshots import VOLUME_SNAPSHOT
from libs.common.crd import build_crd
from libs.common.kinds import CRD, EVENT, POD, PVC, STORAGE_CLASS, Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume, Reason
from operators.volumes.controller import OPERATOR
from operators.volumes.naming import FINALIZER, snapshot_name
from operators.volumes.samples import (
    build_class,
    build_foreign_claim,
    build_statefulset_owner,
    is_kept_for,
)

DATA = Key("default", "data")


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run an API server that knows DemoVolume and two classes."""
    async with FakeApi() as api:
        api.register(build_crd(DemoVolume))
        api.create(build_class())
        api.create(build_class("lazy", waits=True))
        yield api


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator for namespace default."""
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), snapshot_api_poll_seconds=1
    ) as harness:
        yield harness


def build(name: str = "data", /, **spec: Any) -> Manifest:
    spec = {"size": 10, "storageClassName": "standard", **spec}
    return {
        "apiVersion": DEMO_VOLUME.api_version,
        "kind": DEMO_VOLUME.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def take_name(api: FakeApi, *, owned: bool = False) -> Manifest:
    """Create the claim `data` as somebody else, with or without an owner."""
    claim = build_foreign_claim()
    claim["metadata"] = {"name": "data", "namespace": "default"}
    if owned:
        owner = api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "db", "namespace": "default"},
                "spec": {
                    "serviceName": "db",
                    "selector": {"matchLabels": {"app": "db"}},
                    "template": {
                        "metadata": {"labels": {"app": "db"}},
                        "spec": {"containers": [{"name": "c", "image": "i"}]},
                    },
                },
            }
        )
        reference = {**build_statefulset_owner(), "uid": owner["metadata"]["uid"]}
        claim["metadata"]["ownerReferences"] = [reference]
    return api.create(claim)


def bind(api: FakeApi, capacity: str = "10Gi", key: Key = DATA) -> None:
    """Give a claim its volume, as a provisioner does; once more to grow it."""
    api.patch(PVC, key, {"spec": {"volumeName": f"pv-{key.name}"}})
    api.patch_status(PVC, key, {"phase": "Bound", "capacity": {"storage": capacity}})


def protect(api: FakeApi, key: Key = DATA) -> None:
    """Protect a claim in use, as Kubernetes does."""
    api.patch(PVC, key, {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}})


def unprotect(api: FakeApi, key: Key = DATA) -> None:
    """End the protection of a claim."""
    api.patch(PVC, key, {"metadata": {"finalizers": None}})


def run_pod(api: FakeApi, name: str = "web-0", claim: str = "data") -> None:
    """Run a pod that mounts a claim."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]},
        }
    )
    api.bind(("default", name))


def end_pod(api: FakeApi, name: str = "web-0") -> None:
    """Delete a pod and end its grace period."""
    api.delete(POD, ("default", name))
    api.finish_termination(POD, ("default", name))


def condition(api: FakeApi, condition_type: str, key: Key = DATA) -> tuple[str, str]:
    found = find_condition(api.get(DEMO_VOLUME, key), condition_type)
    assert found is not None, f"{condition_type} is not shown"
    return found["status"], found["reason"]


def status(api: FakeApi, key: Key = DATA) -> Manifest:
    shown: Manifest = api.get(DEMO_VOLUME, key)["status"]
    return shown


# The life of a volume.


async def test_sample_of_the_predecessor_becomes_a_claim(
    api: FakeApi, harness: OperatorHarness
) -> None:
    manifest = build("demovolume-sample", name="data", size=5)
    del manifest["spec"]["storageClassName"]
    api.create(manifest)
    await harness.settled()

    claim = api.get(PVC, DATA)
    assert claim["spec"]["resources"]["requests"] == {"storage": "5Gi"}
    assert status(api, Key("default", "demovolume-sample"))["name"] == "data"


async def test_volume_is_ready_once_its_claim_is_bound_and_then_silent(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.settled()
    assert condition(api, "Ready") == ("False", Reason.PROVISIONING)

    bind(api)
    await harness.settled()
    assert condition(api, "Ready") == ("True", Reason.BOUND)
    assert status(api)["pvcRef"]["uid"] == api.get(PVC, DATA)["metadata"]["uid"]

    mark = api.mark()
    await harness.restart()
    await harness.settled()
    assert api.writes(mark) == []


async def test_first_consumer_is_waited_for_without_complaint(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build(storageClassName="lazy"))
    await harness.settled()

    assert condition(api, "Ready") == ("True", Reason.WAITING_FOR_FIRST_CONSUMER)
    assert condition(api, "Bound") == ("False", Reason.WAITING_FOR_FIRST_CONSUMER)


async def test_claim_deleted_by_hand_comes_back_with_a_warning(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.settled()
    before = api.get(PVC, DATA)["metadata"]["uid"]

    api.delete(PVC, DATA)
    await harness.settled()

    assert api.get(PVC, DATA)["metadata"]["uid"] != before
    await harness.eventually(
        lambda: any(event["reason"] == Reason.REPLACED for event in api.objects(EVENT))
    )
    assert harness.metric("volumes_actions_total", reason=Reason.CREATED) == 1
    assert harness.metric("volumes_actions_total", reason=Reason.REPLACED) == 1


async def test_growth_is_followed_until_the_capacity_shows_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.settled()
    bind(api)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": 20}})
    await harness.settled()
    assert api.get(PVC, DATA)["spec"]["resources"]["requests"] == {"storage": "20Gi"}
    assert condition(api, "Resized") == ("False", Reason.RESIZING)
    pending = {"storage": "NodeResizePending"}
    api.patch_status(PVC, DATA, {"allocatedResourceStatuses": pending})
    await harness.settled()
    assert condition(api, "Resized") == ("False", Reason.FILE_SYSTEM_PENDING)
    bind(api, "20Gi")
    await harness.settled()

    assert condition(api, "Resized") == ("True", Reason.SIZE_REACHED)
    assert status(api)["capacity"] == "20Gi"


async def test_infeasible_growth_is_reported_and_can_be_reverted(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Kubernetes refuses to ask for just what there is, so a little more is asked for."""
    api.create(build())
    await harness.settled()
    bind(api)
    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": "1000Ti"}})
    await harness.settled()
    infeasible = {"storage": "ControllerResizeInfeasible"}
    api.patch_status(PVC, DATA, {"allocatedResourceStatuses": infeasible})
    await harness.settled()
    assert condition(api, "Resized") == ("False", Reason.INFEASIBLE)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": 10}})
    await harness.settled()

    assert api.get(PVC, DATA)["spec"]["resources"]["requests"] == {"storage": "10241Mi"}
    assert condition(api, "Ready") == ("True", Reason.BOUND)


async def test_class_that_starts_to_allow_growth_lets_it_begin(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_class("rigid", expandable=False))
    api.create(build(storageClassName="rigid"))
    await harness.settled()
    bind(api)
    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": 20}})
    await harness.settled()
    assert condition(api, "Resized") == ("False", Reason.CLASS_FORBIDS)

    api.patch(STORAGE_CLASS, ("", "rigid"), {"allowVolumeExpansion": True})
    await harness.settled()

    assert condition(api, "Resized") == ("False", Reason.RESIZING)


async def test_pods_that_use_the_volume_are_shown(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    run_pod(api, "web-1")
    run_pod(api, "web-0")
    run_pod(api, "other", claim="elsewhere")
    await harness.settled()
    assert (status(api)["usedByCount"], status(api)["usedBy"]) == (2, ["web-0", "web-1"])

    end_pod(api, "web-0")
    await harness.settled()

    assert status(api)["usedBy"] == ["web-1"]


async def test_labels_are_put_back(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    await harness.settled()
    wanted = api.get(PVC, DATA)["metadata"]["labels"]

    api.patch(PVC, DATA, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "x", "my": "1"}}})
    await harness.settled()

    assert api.get(PVC, DATA)["metadata"]["labels"] == {**wanted, "my": "1"}


async def test_refused_creation_is_shown_and_tried_again(
    api: FakeApi, harness: OperatorHarness
) -> None:
    fault = api.fail("create", PVC, status=403, times=None, message="exceeded quota: storage")
    api.create(build())
    await harness.eventually(lambda: condition(api, "Ready") == ("False", Reason.CREATE_FAILED))

    fault.release()

    await harness.eventually(lambda: api.find(PVC, DATA))


# Other people's claims.


async def test_foreign_claim_is_left_alone_and_the_name_taken_once_it_is_free(
    api: FakeApi, harness: OperatorHarness
) -> None:
    before = take_name(api, owned=True)
    api.create(build(adopt="IfMatching"))
    await harness.settled()
    assert condition(api, "Conflict") == ("True", Reason.FOREIGN_CLAIM)
    assert api.get(PVC, DATA) == before

    api.delete(PVC, DATA)
    await harness.settled()

    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)
    assert api.get(PVC, DATA)["metadata"]["uid"] != before["metadata"]["uid"]


async def test_deletion_of_a_volume_in_conflict_leaves_the_claim(
    api: FakeApi, harness: OperatorHarness
) -> None:
    take_name(api)
    api.create(build())
    await harness.settled()

    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(PVC, DATA) is not None


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_matching_claim_is_adopted_when_asked_for(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    uid = take_name(api)["metadata"]["uid"]
    api.create(build(reclaimPolicy=policy))
    await harness.settled()
    assert condition(api, "Conflict") == ("True", Reason.UNOWNED_CLAIM)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"adopt": "IfMatching", "size": 20}})
    await harness.settled()

    claim = api.get(PVC, DATA)
    assert claim["metadata"]["uid"] == uid
    assert claim["spec"]["resources"]["requests"] == {"storage": "20Gi"}
    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)


async def test_second_volume_of_a_name_waits_for_the_first(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build("a", name="data"))
    await harness.settled()
    api.create(build("b", name="data"))
    await harness.settled()
    first, second = Key("default", "a"), Key("default", "b")
    assert condition(api, "Conflict", first) == ("False", Reason.NO_CONFLICT)
    assert condition(api, "Conflict", second) == ("True", Reason.FOREIGN_CLAIM)

    api.delete(DEMO_VOLUME, first)
    await harness.settled()

    assert condition(api, "Conflict", second) == ("False", Reason.NO_CONFLICT)
    assert status(api, second)["pvcRef"]["uid"] == api.get(PVC, DATA)["metadata"]["uid"]


# The end of a volume.


async def test_policy_delete_deletes_the_claim(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    await harness.settled()
    bind(api)

    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()

    assert api.find(PVC, DATA) is None
    assert api.find(DEMO_VOLUME, DATA) is None


async def test_deletion_names_the_pods_that_it_waits_for(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.settled()
    bind(api)
    run_pod(api)
    protect(api)

    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()
    assert condition(api, "Terminating") == ("True", Reason.IN_USE)
    held = find_condition(api.get(DEMO_VOLUME, DATA), "Terminating")
    assert held is not None
    assert "pod web-0" in held["message"]

    end_pod(api)
    unprotect(api)
    await harness.settled()

    assert api.find(PVC, DATA) is None
    assert api.find(DEMO_VOLUME, DATA) is None


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_policy_retain_keeps_the_claim_however_the_volume_is_deleted(
    api: FakeApi, harness: OperatorHarness, propagation: str
) -> None:
    """Foreground deletion is what some GitOps tools do, and it does not wait for finalizers."""
    api.create(build(reclaimPolicy="Retain"))
    await harness.settled()
    bind(api)
    uid = api.get(PVC, DATA)["metadata"]["uid"]

    api.delete(DEMO_VOLUME, DATA, propagation=propagation)
    await harness.eventually(lambda: api.find(DEMO_VOLUME, DATA) is None)
    await harness.settled()

    metadata = api.get(PVC, DATA)["metadata"]
    assert metadata["uid"] == uid
    assert "deletionTimestamp" not in metadata
    assert not metadata.get("ownerReferences")


async def test_policy_retain_keeps_the_claim_when_the_operator_is_gone(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """An uninstall takes the finalizers off; what is kept must not need the operator."""
    api.create(build(reclaimPolicy="Retain"))
    await harness.settled()
    await harness.stop()

    api.patch(DEMO_VOLUME, DATA, {"metadata": {"finalizers": None}})
    api.delete(DEMO_VOLUME, DATA, propagation="Foreground")
    api.collector.run()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(PVC, DATA) is not None


async def test_orphaning_deletion_keeps_the_claim(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    await harness.settled()
    bind(api)

    api.delete(DEMO_VOLUME, DATA, propagation="Orphan")
    await harness.eventually(lambda: api.find(DEMO_VOLUME, DATA) is None)

    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]


async def test_orphaning_deletion_keeps_the_claim_though_its_watch_is_behind(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """That the finalizer `orphan` is gone may be heard before what the collector did under it."""
    api.create(build())
    await harness.settled()
    bind(api)
    await harness.settled()
    api.watches.pause(PVC)
    api.watches.pause(DEMO_VOLUME)

    api.delete(DEMO_VOLUME, DATA, propagation="Orphan")
    await harness.eventually(
        lambda: api.get(DEMO_VOLUME, DATA)["metadata"]["finalizers"] == [FINALIZER]
    )
    api.watches.resume(DEMO_VOLUME)

    await harness.eventually(lambda: api.find(DEMO_VOLUME, DATA) is None)
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]


async def test_policy_may_be_changed_at_any_time(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    await harness.settled()
    bind(api)
    assert api.get(PVC, DATA)["metadata"]["ownerReferences"]

    uid = api.get(DEMO_VOLUME, DATA)["metadata"]["uid"]
    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Retain"}})
    await harness.settled()
    assert not api.get(PVC, DATA)["metadata"].get("ownerReferences")
    assert is_kept_for(api.get(PVC, DATA), uid)
    assert condition(api, "Ready") == ("True", Reason.BOUND)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Delete"}})
    await harness.settled()

    assert api.get(PVC, DATA)["metadata"]["ownerReferences"][0]["uid"] == uid
    assert not is_kept_for(api.get(PVC, DATA), uid)


async def test_retained_claim_can_be_taken_up_again(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build(reclaimPolicy="Retain"))
    await harness.settled()
    bind(api)
    uid = api.get(PVC, DATA)["metadata"]["uid"]
    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()

    api.create(build(reclaimPolicy="Retain", adopt="IfMatching"))
    await harness.settled()

    assert status(api)["pvcRef"]["uid"] == uid
    assert condition(api, "Ready") == ("True", Reason.BOUND)


async def test_spec_that_cannot_be_read_keeps_the_data(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Without a policy that can be read, neither keeping nor deleting would be right."""
    api.create(build())
    await harness.settled()
    bind(api)
    loose = build_crd(DemoVolume)
    loose["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    api.patch(CRD, ("", loose["metadata"]["name"]), {"spec": loose["spec"]})
    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Whatever"}})
    await harness.settled()
    assert condition(api, "Ready") == ("False", Reason.INVALID_SPEC)

    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()
    assert api.find(DEMO_VOLUME, DATA) is not None
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]
    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Retain"}})
    await harness.settled()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]


# Snapshots.


async def test_last_snapshot_is_ready_before_the_claim_goes(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.register(VOLUME_SNAPSHOT)
    await harness.restart()
    api.create(build(reclaimPolicy="Snapshot"))
    await harness.settled()
    bind(api)
    await harness.settled()
    assert condition(api, "SnapshotsAvailable") == ("True", Reason.SNAPSHOT_API_FOUND)

    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()
    (snapshot,) = api.objects(VOLUME_SNAPSHOT)
    assert snapshot["spec"]["source"] == {"persistentVolumeClaimName": "data"}
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOTTING)
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]
    name = Key("default", snapshot["metadata"]["name"])
    api.patch_status(VOLUME_SNAPSHOT, name, {"readyToUse": True})
    await harness.settled()

    assert api.find(PVC, DATA) is None
    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(VOLUME_SNAPSHOT, name) is not None


async def test_last_snapshot_is_taken_once_somebody_gives_its_name_free(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.register(VOLUME_SNAPSHOT)
    await harness.restart()
    api.create(build(reclaimPolicy="Snapshot"))
    await harness.settled()
    bind(api)
    await harness.settled()
    name = snapshot_name("data", api.get(PVC, DATA)["metadata"]["uid"])
    metadata = {"name": name, "namespace": "default"}
    api.create(
        {"apiVersion": VOLUME_SNAPSHOT.api_version, "kind": VOLUME_SNAPSHOT.kind}
        | {"metadata": metadata, "spec": {}}
    )
    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOT_CONFLICT)

    api.delete(VOLUME_SNAPSHOT, Key("default", name))
    await harness.settled()

    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOTTING)


async def test_cluster_without_snapshots_is_no_reason_to_lose_data(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build(reclaimPolicy="Snapshot"))
    await harness.settled()
    bind(api)
    await harness.settled()
    assert condition(api, "SnapshotsAvailable") == ("False", Reason.SNAPSHOT_API_MISSING)
    assert condition(api, "Ready") == ("True", Reason.BOUND)
    api.delete(DEMO_VOLUME, DATA)
    await harness.settled()
    assert condition(api, "Terminating") == ("True", Reason.SNAPSHOT_API_MISSING)
    assert api.find(PVC, DATA) is not None

    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Retain"}})
    await harness.settled()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(PVC, DATA) is not None


async def test_source_is_waited_for_and_then_used(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build("clone", source={"volume": "data"}))
    await harness.settled()
    clone = Key("default", "clone")
    assert condition(api, "Ready", clone) == ("False", Reason.SOURCE_MISSING)
    api.create(build())
    await harness.settled()
    assert condition(api, "Ready", clone) == ("False", Reason.SOURCE_NOT_READY)
    assert api.find(PVC, clone) is None

    bind(api)
    await harness.settled()

    source = api.get(PVC, clone)["spec"]["dataSource"]
    assert (source["kind"], source["name"]) == ("PersistentVolumeClaim", "data")


# Crashes.


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_lost_answer_of_the_creation_makes_no_conflict(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    api.fail("create", PVC, lost_answer=True)
    api.create(build(reclaimPolicy=policy))

    await harness.eventually(lambda: "pvcRef" in api.get(DEMO_VOLUME, DATA).get("status", {}))

    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)
    assert len(api.objects(PVC)) == 1


async def test_finalizer_is_there_before_the_claim(api: FakeApi, harness: OperatorHarness) -> None:
    fault = api.hang("create", PVC)
    api.create(build())

    await harness.eventually(lambda: fault.hits)

    assert api.get(DEMO_VOLUME, DATA)["metadata"]["finalizers"] == [FINALIZER]
    fault.release()
