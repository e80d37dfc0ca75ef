"""The volumes operator against an API server over HTTP, as a user would try it."""

from __future__ import annotations

import pytest

from libs.common.kinds import EVENT, PVC, STORAGE_CLASS, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, Reason
from operators.volumes.fake_storage import (
    DATA,
    bind,
    build,
    condition,
    end_pod,
    run_pod,
    status,
    warnings,
)
from operators.volumes.naming import FINALIZER
from operators.volumes.samples import (
    build_class,
)


async def test_sample_of_the_predecessor_becomes_a_claim(
    api: FakeApi, harness: OperatorHarness
) -> None:
    manifest = build("demovolume-sample", name="data", size=5)
    del manifest["spec"]["storageClassName"]
    api.create(manifest)
    await harness.converged()

    claim = api.get(PVC, DATA)
    assert claim["spec"]["resources"]["requests"] == {"storage": "5Gi"}
    assert status(api, Key("default", "demovolume-sample"))["name"] == "data"


async def test_volume_is_ready_once_its_claim_is_bound_and_then_silent(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.converged()
    assert condition(api, "Ready") == ("False", Reason.PROVISIONING)

    bind(api)
    await harness.converged()
    assert condition(api, "Ready") == ("True", Reason.BOUND)
    assert status(api)["pvcRef"]["uid"] == api.get(PVC, DATA)["metadata"]["uid"]

    mark = api.mark()
    await harness.restart()
    await harness.converged()
    assert api.writes(mark) == []


async def test_first_consumer_is_waited_for_without_complaint(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build(storageClassName="lazy"))
    await harness.converged()

    assert condition(api, "Ready") == ("True", Reason.WAITING_FOR_FIRST_CONSUMER)
    assert condition(api, "Bound") == ("False", Reason.WAITING_FOR_FIRST_CONSUMER)


@pytest.mark.parametrize(
    ("policy", "size"), [("Delete", 20), ("Delete", 5), ("Retain", 20), ("Snapshot", 5)]
)
async def test_claim_without_a_volume_is_replaced_if_the_size_changes(
    api: FakeApi, harness: OperatorHarness, policy: str, size: int
) -> None:
    api.create(build(storageClassName="lazy", reclaimPolicy=policy))
    await harness.converged()
    first = api.get(PVC, DATA)["metadata"]["uid"]
    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": size}})
    await harness.converged()

    claim = api.get(PVC, DATA)
    assert claim["metadata"]["uid"] != first
    assert claim["spec"]["resources"]["requests"] == {"storage": f"{size}Gi"}
    assert condition(api, "Ready") == ("True", Reason.WAITING_FOR_FIRST_CONSUMER)
    assert status(api)["pvcRef"]["uid"] == claim["metadata"]["uid"]
    mark = api.mark()
    await harness.restart()
    await harness.converged()
    assert api.writes(mark) == []


async def test_claim_that_an_autoresizer_grows_ten_times_keeps_its_size(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.converged()
    bind(api)
    await harness.converged()
    for size in range(11, 21):
        request = {"spec": {"resources": {"requests": {"storage": f"{size}Gi"}}}}
        mark = api.mark()
        api.patch(PVC, DATA, request)
        await harness.converged()
        bind(api, f"{size}Gi")
        await harness.converged()
        assert [each for each in api.writes(mark) if each.kind == PVC] == []
        assert condition(api, "Ready") == ("True", Reason.BOUND)
        assert condition(api, "Drifted") == ("True", Reason.LARGER_THAN_SPEC)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": 30}})
    await harness.converged()
    assert api.get(PVC, DATA)["spec"]["resources"]["requests"] == {"storage": "30Gi"}


async def test_claim_deleted_by_hand_comes_back_with_a_warning(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.converged()
    before = api.get(PVC, DATA)["metadata"]["uid"]

    api.delete(PVC, DATA)
    await harness.converged()

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
    await harness.converged()
    bind(api)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": 20}})
    await harness.converged()
    assert api.get(PVC, DATA)["spec"]["resources"]["requests"] == {"storage": "20Gi"}
    assert condition(api, "Resized") == ("False", Reason.RESIZING)
    pending = {"storage": "NodeResizePending"}
    api.patch_status(PVC, DATA, {"allocatedResourceStatuses": pending})
    await harness.converged()
    assert condition(api, "Resized") == ("False", Reason.FILE_SYSTEM_PENDING)
    bind(api, "20Gi")
    await harness.converged()

    assert condition(api, "Resized") == ("True", Reason.SIZE_REACHED)
    assert status(api)["capacity"] == "20Gi"


async def test_infeasible_growth_is_reported_and_can_be_reverted(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Kubernetes refuses a request for exactly the present size, so the request is larger."""
    api.create(build())
    await harness.converged()
    bind(api)
    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": "1000Ti"}})
    await harness.converged()
    infeasible = {"storage": "ControllerResizeInfeasible"}
    api.patch_status(PVC, DATA, {"allocatedResourceStatuses": infeasible})
    await harness.converged()
    assert condition(api, "Resized") == ("False", Reason.INFEASIBLE)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": 10}})
    await harness.converged()

    assert api.get(PVC, DATA)["spec"]["resources"]["requests"] == {"storage": "10241Mi"}
    assert condition(api, "Ready") == ("True", Reason.BOUND)


async def test_class_that_starts_to_allow_growth_lets_it_begin(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_class("rigid", expandable=False))
    api.create(build(storageClassName="rigid"))
    await harness.converged()
    bind(api)
    api.patch(DEMO_VOLUME, DATA, {"spec": {"size": 20}})
    await harness.converged()
    assert condition(api, "Resized") == ("False", Reason.CLASS_FORBIDS)

    api.patch(STORAGE_CLASS, ("", "rigid"), {"allowVolumeExpansion": True})
    await harness.converged()

    assert condition(api, "Resized") == ("False", Reason.RESIZING)


async def test_pods_that_use_the_volume_are_shown(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    run_pod(api, "web-1")
    run_pod(api, "web-0")
    run_pod(api, "other", claim="elsewhere")
    await harness.converged()
    assert (status(api)["usedByCount"], status(api)["usedBy"]) == (2, ["web-0", "web-1"])

    end_pod(api, "web-0")
    await harness.converged()

    assert status(api)["usedBy"] == ["web-1"]


async def test_labels_are_put_back(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    await harness.converged()
    wanted = api.get(PVC, DATA)["metadata"]["labels"]

    others = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "prod"}
    api.patch(PVC, DATA, {"metadata": {"labels": {**dict.fromkeys(wanted, "x"), **others}}})
    await harness.converged()

    assert api.get(PVC, DATA)["metadata"]["labels"] == {**wanted, **others}


async def test_refused_creation_is_shown_and_tried_again(
    api: FakeApi, harness: OperatorHarness
) -> None:
    fault = api.fail("create", PVC, status=403, times=None, message="exceeded quota: storage")
    api.create(build())
    await harness.eventually(lambda: condition(api, "Ready") == ("False", Reason.CREATE_FAILED))
    await harness.eventually(lambda: fault.hits > 2)
    await harness.eventually(lambda: warnings(api) == [(Reason.CREATE_FAILED, "exceeded quota:")])

    fault.release()

    await harness.eventually(lambda: api.find(PVC, DATA))


# Crashes.


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_lost_response_of_the_creation_makes_no_conflict(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    api.fail("create", PVC, lost_response=True)
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
