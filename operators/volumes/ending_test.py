"""The end of a DemoVolume and what becomes of its data, over HTTP."""

from __future__ import annotations

import pytest

from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import CRD, NAMESPACE, POD, PVC, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.snapshots import VOLUME_SNAPSHOT
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume, Reason
from operators.volumes.fake_storage import (
    DATA,
    bind,
    build,
    condition,
    end_pod,
    protect,
    run_pod,
    status,
    unprotect,
    warnings,
)
from operators.volumes.naming import FINALIZER
from operators.volumes.samples import (
    is_kept_for,
)

WEB = Key("default", "web-0")


async def test_policy_delete_deletes_the_claim(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build())
    await harness.converged()
    bind(api)

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    assert api.find(PVC, DATA) is None
    assert api.find(DEMO_VOLUME, DATA) is None


async def test_deletion_names_the_pods_that_it_waits_for(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build())
    await harness.converged()
    bind(api)
    run_pod(api)
    protect(api)

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()
    assert condition(api, "Terminating") == ("True", Reason.IN_USE)
    held = find_condition(api.get(DEMO_VOLUME, DATA), "Terminating")
    assert held is not None
    assert "pod web-0" in held["message"]
    await harness.eventually(lambda: warnings(api) == [(Reason.IN_USE, "In use")])

    end_pod(api)
    unprotect(api)
    await harness.converged()

    assert api.find(PVC, DATA) is None
    assert api.find(DEMO_VOLUME, DATA) is None


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_policy_retain_keeps_the_claim_however_the_volume_is_deleted(
    api: FakeApi, harness: OperatorHarness, propagation: str
) -> None:
    """Foreground deletion is what some GitOps tools do, and it does not wait for finalizers."""
    api.create(build(reclaimPolicy="Retain"))
    await harness.converged()
    bind(api)
    uid = api.get(PVC, DATA)["metadata"]["uid"]

    api.delete(DEMO_VOLUME, DATA, propagation=propagation)
    await harness.eventually(lambda: api.find(DEMO_VOLUME, DATA) is None)
    await harness.converged()

    metadata = api.get(PVC, DATA)["metadata"]
    assert metadata["uid"] == uid
    assert "deletionTimestamp" not in metadata
    assert not metadata.get("ownerReferences")


async def test_policy_retain_keeps_the_claim_when_the_operator_is_gone(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """An uninstall takes the finalizers off; what is kept must not need the operator."""
    api.create(build(reclaimPolicy="Retain"))
    await harness.converged()
    await harness.stop()

    api.patch(DEMO_VOLUME, DATA, {"metadata": {"finalizers": None}})
    api.delete(DEMO_VOLUME, DATA, propagation="Foreground")
    api.collector.run()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert api.find(PVC, DATA) is not None


@pytest.mark.parametrize("policy", ["Delete", "Retain", "Snapshot"])
@pytest.mark.parametrize("served", [True, False], ids=["snapshots", "no snapshots"])
async def test_namespace_that_is_deleted_is_not_held_up(
    api: FakeApi, harness: OperatorHarness, policy: str, served: bool
) -> None:
    """Anyone who deletes a namespace has decided about its data, whatever the policy."""
    if served:
        api.register(VOLUME_SNAPSHOT)
        await harness.restart()
    api.create(build(reclaimPolicy=policy))
    await harness.converged()
    bind(api)
    run_pod(api)
    await harness.converged()

    api.delete(NAMESPACE, ("", "default"))
    await harness.eventually(lambda: "deletionTimestamp" in api.get(POD, WEB)["metadata"])
    api.finish_termination(POD, WEB)

    await harness.eventually(lambda: api.find(NAMESPACE, ("", "default")) is None)
    assert not api.objects(PVC)


@pytest.mark.parametrize("policy", ["Delete", "Retain", "Snapshot"])
async def test_orphaning_deletion_keeps_the_claim(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    api.create(build(reclaimPolicy=policy))
    await harness.converged()
    bind(api)

    api.delete(DEMO_VOLUME, DATA, propagation="Orphan")
    await harness.eventually(lambda: api.find(DEMO_VOLUME, DATA) is None)

    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]


@pytest.mark.parametrize("policy", ["Delete", "Snapshot"])
async def test_orphaning_deletion_keeps_the_claim_though_its_watch_is_behind(
    api: FakeApi, harness: OperatorHarness, policy: str
) -> None:
    """That the finalizer `orphan` is gone may be heard before what the collector did under it."""
    api.create(build(reclaimPolicy=policy))
    await harness.converged()
    bind(api)
    await harness.converged()
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
    await harness.converged()
    bind(api)
    assert api.get(PVC, DATA)["metadata"]["ownerReferences"]

    uid = api.get(DEMO_VOLUME, DATA)["metadata"]["uid"]
    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Retain"}})
    await harness.converged()
    assert not api.get(PVC, DATA)["metadata"].get("ownerReferences")
    assert is_kept_for(api.get(PVC, DATA), uid)
    assert condition(api, "Ready") == ("True", Reason.BOUND)

    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Delete"}})
    await harness.converged()

    assert api.get(PVC, DATA)["metadata"]["ownerReferences"][0]["uid"] == uid
    assert not is_kept_for(api.get(PVC, DATA), uid)


async def test_retained_claim_can_be_taken_up_again(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build(reclaimPolicy="Retain"))
    await harness.converged()
    bind(api)
    uid = api.get(PVC, DATA)["metadata"]["uid"]
    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()

    api.create(build(reclaimPolicy="Retain", adopt="IfMatching"))
    await harness.converged()

    assert status(api)["pvcRef"]["uid"] == uid
    assert condition(api, "Ready") == ("True", Reason.BOUND)


async def test_spec_that_cannot_be_read_keeps_the_data(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Without a policy that can be read, neither keeping nor deleting would be right."""
    api.create(build())
    await harness.converged()
    bind(api)
    loose = build_crd(DemoVolume)
    loose["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    api.patch(CRD, ("", loose["metadata"]["name"]), {"spec": loose["spec"]})
    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Whatever"}})
    await harness.converged()
    assert condition(api, "Ready") == ("False", Reason.INVALID_SPEC)

    api.delete(DEMO_VOLUME, DATA)
    await harness.converged()
    assert api.find(DEMO_VOLUME, DATA) is not None
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]
    api.patch(DEMO_VOLUME, DATA, {"spec": {"reclaimPolicy": "Retain"}})
    await harness.converged()

    assert api.find(DEMO_VOLUME, DATA) is None
    assert "deletionTimestamp" not in api.get(PVC, DATA)["metadata"]
