"""Claims of other people, and of another DemoVolume, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import CONFIG_MAP, PVC, Key, build_object, uid_of
from libs.common.plan import Patch
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, Reason
from operators.volumes.fake_storage import DATA, bind, build, condition, status, take_name
from operators.volumes.naming import KEPT_FOR, REQUESTED, VOLUME_LABEL
from operators.volumes.reconcile import plan_volume
from operators.volumes.samples import (
    UID,
    build_bound_claim,
    build_foreign_claim,
    is_kept_for,
    observe,
    parse_volume,
)

THIEF = Key("default", "thief")


@pytest.mark.parametrize("controller", [True, False])
async def test_foreign_claim_is_unchanged_and_its_name_is_used_after_its_deletion(
    api: FakeApi, harness: OperatorHarness, controller: bool
) -> None:
    """An owner that is not the controller is an owner: the claim would be deleted with ours."""
    before = take_name(api, owned=True, controller=controller)
    api.create(build(adopt="IfMatching"))
    await harness.converged()
    assert condition(api, "Conflict") == ("True", Reason.FOREIGN_CLAIM)
    assert api.get(PVC, DATA) == before

    api.delete(PVC, DATA)
    await harness.converged()

    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)
    assert api.get(PVC, DATA)["metadata"]["uid"] != before["metadata"]["uid"]


async def test_deletion_of_a_volume_in_conflict_leaves_the_claim(
    api: FakeApi, harness: OperatorHarness
) -> None:
    take_name(api)
    api.create(build())
    await harness.converged()

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(PVC, DATA) is not None


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_claim_that_gets_another_owner_outlives_its_volume(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    api.create(build(reclaimPolicy=policy))
    await harness.converged()
    api.create(build_object(CONFIG_MAP, "backup", "default"))
    uid = api.get(CONFIG_MAP, Key("default", "backup"))["metadata"]["uid"]
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "backup", "uid": uid}
    held = api.get(PVC, DATA)["metadata"].get("ownerReferences", [])
    api.patch(PVC, DATA, {"metadata": {"ownerReferences": [*held, other]}})
    await harness.converged()
    assert condition(api, "Conflict") == ("True", Reason.FOREIGN_CLAIM)

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.get(PVC, DATA)["metadata"]["ownerReferences"] == [other]


async def test_adopted_claim_is_kept_unless_the_user_wrote_delete(
    api: FakeApi, harness: OperatorHarness
) -> None:
    before = take_name(api)
    labels = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "prod-db"}
    api.patch(PVC, DATA, {"metadata": {"labels": labels}})
    api.create(build(adopt="IfMatching"))
    await harness.converged()
    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)
    assert status(api)["reclaimPolicy"] == "Retain"
    adopted = api.get(PVC, DATA)["metadata"]
    assert adopted["labels"] == {**labels, "storage.slipway.dev/demovolume": "data"}
    assert adopted["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false"

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    assert api.find(DEMO_VOLUME, DATA) is None
    kept = api.get(PVC, DATA)["metadata"]
    assert kept["uid"] == before["metadata"]["uid"]
    assert kept["labels"] == labels, "ours are removed, those of others stay"
    assert set(kept["annotations"]) == {"argocd.argoproj.io/sync-options"}


@pytest.mark.parametrize("policy", ["Retain", "Snapshot"])
async def test_lost_claim_whose_data_was_to_be_kept_is_not_replaced_by_an_empty_one(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    api.create(build(reclaimPolicy=policy))
    await harness.converged()
    before = status(api)["pvcRef"]

    api.delete(PVC, DATA)
    await harness.converged()
    await harness.restart()
    await harness.converged()

    assert api.find(PVC, DATA) is None
    assert condition(api, "Ready") == ("False", Reason.CLAIM_LOST)
    assert status(api)["pvcRef"] == before
    api.patch(DEMO_VOLUME, DATA, {"spec": {"onLoss": "Recreate"}})
    await harness.converged()
    assert api.get(PVC, DATA)["metadata"]["uid"] != before["uid"]


@pytest.mark.parametrize("policy", [None, "Retain", "Snapshot"])
async def test_claim_that_was_restored_without_owner_and_uid_is_adopted(
    api: FakeApi, harness: OperatorHarness, policy: str | None
) -> None:
    # Velero drops the owner references, the status and the UIDs of what it restores.
    spec = {} if policy is None else {"reclaimPolicy": policy}
    api.create(build(**spec))
    await harness.converged()
    bind(api)
    await harness.converged()
    held, claim = api.get(DEMO_VOLUME, DATA), api.get(PVC, DATA)
    api.patch(PVC, DATA, {"spec": {"resources": {"requests": {"storage": "15Gi"}}}})
    restored = build(**spec)
    claim["metadata"] = {
        name: claim["metadata"][name] for name in ("name", "namespace", "labels", "annotations")
    }
    claim["spec"]["resources"] = {"requests": {"storage": "15Gi"}}
    api.patch(DEMO_VOLUME, DATA, {"metadata": {"finalizers": None}})
    api.delete(DEMO_VOLUME, DATA)
    if api.find(PVC, DATA) is not None:
        api.delete(PVC, DATA)
    await harness.converged()
    api.create(claim)
    bind(api, "15Gi")
    created = api.create(restored)
    await harness.converged()

    assert created["metadata"]["uid"] != held["metadata"]["uid"]
    assert condition(api, "Ready") == ("True", Reason.BOUND)
    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)
    assert status(api)["reclaimPolicy"] == (policy or "Delete")
    assert api.get(PVC, DATA)["spec"]["resources"]["requests"] == {"storage": "15Gi"}
    mark = api.mark()
    await harness.restart()
    await harness.converged()
    assert api.writes(mark) == []


@pytest.mark.parametrize("policy", ["Delete", "Retain", "Snapshot"])
def test_claim_that_was_restored_with_its_former_owner_is_adopted(policy: str) -> None:
    """Until then the garbage collector may delete it: its owner does not exist."""
    volume = parse_volume(reclaimPolicy=policy)
    claim = build_bound_claim(volume)
    reference = {"apiVersion": f"{DEMO_VOLUME.group}/v1alpha1", "kind": "DemoVolume"}
    claim["metadata"]["ownerReferences"] = [{**reference, "name": "data", "uid": "former"}]
    claim["metadata"]["annotations"][KEPT_FOR] = "former"

    plan = plan_volume(volume, observe(claim))

    assert plan.takes_over
    (action,) = plan.actions
    assert isinstance(action.step, Patch)
    held = [each["value"] for each in action.step.operations if "ownerRef" in each["path"]]
    owners = [[owner["uid"] for owner in value] for value in held]
    assert owners == [[UID] if policy == "Delete" else []]


VELERO_SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "v-1"}


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ({"dataSource": VELERO_SNAPSHOT, "dataSourceRef": VELERO_SNAPSHOT}, None),
        ({"dataSource": VELERO_SNAPSHOT, "dataSourceRef": VELERO_SNAPSHOT}, {"snapshot": "first"}),
        ({"selector": {"matchLabels": {"velero.io/dynamic-pv-restore": "default.data"}}}, None),
    ],
)
@pytest.mark.parametrize("size", [5, 20])
async def test_restored_claim_that_waits_for_its_data_is_not_replaced_by_an_empty_one(
    api: FakeApi,
    harness: OperatorHarness,
    origin: dict[str, Any],
    source: dict[str, str] | None,
    size: int,
) -> None:
    """The spec comes from git, where the size is another one than in the backup."""
    spec = {"size": size} if source is None else {"size": size, "source": source}
    metadata = {"labels": {VOLUME_LABEL: "data"}, "annotations": {REQUESTED: "10Gi"}}
    resources = {"requests": {"storage": "10Gi"}}
    claim = build_foreign_claim()["spec"] | {"resources": resources, **origin}
    del claim["volumeName"]
    api.create(build_object(PVC, *reversed(DATA), metadata=metadata, spec=claim))
    api.patch_status(PVC, DATA, {"phase": "Pending"})
    uid = api.get(PVC, DATA)["metadata"]["uid"]

    api.create(build(**spec))
    await harness.converged()

    assert api.get(PVC, DATA)["metadata"]["uid"] == uid
    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)
    drifted = find_condition(api.get(DEMO_VOLUME, DATA), "Drifted")
    assert drifted is not None and "replaced" not in drifted.get("message", "")
    assert (drifted["status"] == "True") == (size == 5)


async def test_claim_that_a_deleted_volume_kept_is_not_taken_for_a_restored_one(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build(reclaimPolicy="Retain"))
    await harness.converged()
    bind(api)
    api.delete(DEMO_VOLUME, DATA)
    await harness.eventually(lambda: api.find(DEMO_VOLUME, DATA) is None)
    api.create(build(reclaimPolicy="Delete"))
    await harness.converged()

    assert condition(api, "Ready") == ("False", Reason.UNOWNED_CLAIM)


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_matching_claim_is_adopted_when_asked_for(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    uid = take_name(api)["metadata"]["uid"]
    api.create(build(reclaimPolicy=policy))
    await harness.converged()
    assert condition(api, "Conflict") == ("True", Reason.UNOWNED_CLAIM)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"adopt": "IfMatching", "size": 20}})
    await harness.converged()

    claim = api.get(PVC, DATA)
    assert claim["metadata"]["uid"] == uid
    assert claim["spec"]["resources"]["requests"] == {"storage": "20Gi"}
    assert condition(api, "Conflict") == ("False", Reason.NO_CONFLICT)


async def test_second_volume_of_a_name_waits_for_the_first(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build("a", name="data"))
    await harness.converged()
    api.create(build("b", name="data"))
    await harness.converged()
    first, second = Key("default", "a"), Key("default", "b")
    assert condition(api, "Conflict", first) == ("False", Reason.NO_CONFLICT)
    assert condition(api, "Conflict", second) == ("True", Reason.FOREIGN_CLAIM)

    api.delete(DEMO_VOLUME, first)
    await harness.converged()

    assert condition(api, "Conflict", second) == ("False", Reason.NO_CONFLICT)
    assert status(api, second)["pvcRef"]["uid"] == api.get(PVC, DATA)["metadata"]["uid"]


async def test_claim_of_a_volume_that_the_cache_does_not_know_is_not_taken_over(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """A leader before this one made the claim; of its volume nothing was heard yet."""
    take_name(api)
    api.create(build("thief", name="data"))
    await harness.converged()
    api.watches.drop_next(DEMO_VOLUME)
    owner = api.create(build("owner", name="data", reclaimPolicy="Retain"))
    api.patch(PVC, DATA, {"metadata": {"annotations": {KEPT_FOR: uid_of(owner)}}})
    mark = api.mark()
    api.patch(DEMO_VOLUME, THIEF, {"spec": {"adopt": "IfMatching"}})
    await harness.eventually(lambda: _asks(api, mark), "it is asked whose the claim is")

    assert is_kept_for(api.get(PVC, DATA), uid_of(owner))


def _asks(api: FakeApi, mark: int) -> bool:
    """Return whether the API server was asked for all DemoVolumes since a mark."""
    asked = list(api.requests)[mark:]
    return any(each.verb == "list" and each.kind == DEMO_VOLUME for each in asked)
