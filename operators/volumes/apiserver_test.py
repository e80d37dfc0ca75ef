"""The volumes operator on a real API server: its rules for claims are not ours to imagine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.errors import AlreadyExists, Invalid, NotFound
from libs.common.kinds import PVC, STORAGE_CLASS, Key, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume, Reason
from operators.volumes.controller import OPERATOR
from operators.volumes.samples import build_class

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def harness(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> AsyncIterator[OperatorHarness]:
    """Run the operator for a namespace of its own."""
    await serve(kube_client, DemoVolume)
    with contextlib.suppress(AlreadyExists):
        await kube_client.create(STORAGE_CLASS, build_class())
    async with OperatorHarness(
        OPERATOR, kube_apiserver.config, watch_namespaces=(kube_namespace,)
    ) as harness:
        yield harness


@pytest.fixture
def key(kube_namespace: str) -> Key:
    """Name the one DemoVolume, and its claim, of a test."""
    return Key(kube_namespace, "data")


async def apply(harness: OperatorHarness, key: Key, **spec: Any) -> None:
    """Apply a DemoVolume as kubectl does, once its kind is served."""
    manifest = build_object(
        DEMO_VOLUME, key.name, key.namespace, spec={"storageClassName": "standard", **spec}
    )
    await harness.client.apply(DEMO_VOLUME, manifest, field_manager="kubectl")
    await harness.converged()


async def bind(harness: OperatorHarness, key: Key, capacity: str, **status: Any) -> None:
    """Give a claim its volume as the volume controllers do."""
    claim = await harness.client.get(PVC, key)
    if not claim["spec"].get("volumeName"):
        claim["spec"]["volumeName"] = f"pv-{key.namespace}"
        claim = await harness.client.replace(PVC, claim)
    claim["status"] = {"phase": "Bound", "capacity": {"storage": capacity}, **status}
    await harness.client.replace(PVC, claim, subresource="status")
    await harness.converged()


async def requested(harness: OperatorHarness, key: Key) -> str:
    """Return the size that the claim asks for."""
    claim = await harness.client.get(PVC, key)
    return str(claim["spec"]["resources"]["requests"]["storage"])


async def condition(harness: OperatorHarness, key: Key, name: str) -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = find_condition(await harness.client.get(DEMO_VOLUME, key), name)
    assert found is not None
    return found["status"], found["reason"]


async def test_volume_lives_from_claim_to_growth(harness: OperatorHarness, key: Key) -> None:
    await apply(harness, key, size=1)
    assert await requested(harness, key) == "1Gi"
    await apply(harness, key, size=2)
    # A pending claim cannot be changed, so it is replaced.
    claim = await harness.client.get(PVC, key)
    assert claim["metadata"]["deletionTimestamp"]
    await harness.client.patch(PVC, key, {"metadata": {"finalizers": None}})
    await harness.converged()
    assert await requested(harness, key) == "2Gi"

    await bind(harness, key, "2Gi")
    await apply(harness, key, size=3)
    assert await requested(harness, key) == "3Gi"
    assert await condition(harness, key, "Resized") == ("False", Reason.RESIZING)
    await bind(harness, key, "3Gi")

    assert await condition(harness, key, "Ready") == ("True", Reason.BOUND)


async def test_infeasible_growth_is_reverted_in_a_way_that_kubernetes_takes(
    harness: OperatorHarness, key: Key
) -> None:
    """Going back to exactly the present size, which a reverted commit requests, is refused."""
    await apply(harness, key, size=10)
    await bind(harness, key, "10Gi")
    await apply(harness, key, size="1000Ti")
    infeasible = {"storage": "ControllerResizeInfeasible"}
    allocated = {"storage": "1000Ti"}
    await bind(
        harness,
        key,
        "10Gi",
        allocatedResources=allocated,
        allocatedResourceStatuses=infeasible,
    )
    assert await condition(harness, key, "Resized") == ("False", Reason.INFEASIBLE)
    exact = [{"op": "replace", "path": "/spec/resources/requests/storage", "value": "10Gi"}]
    with pytest.raises(Invalid, match=r"less than status\.capacity"):
        await harness.client.patch(PVC, key, exact)

    await apply(harness, key, size=10)

    assert await requested(harness, key) == "10241Mi"
    assert await condition(harness, key, "Ready") == ("True", Reason.BOUND)
    assert await condition(harness, key, "Drifted") == ("True", Reason.LARGER_THAN_SPEC)


@pytest.mark.parametrize(
    ("size", "claimed"),
    [("3.3333Gi", "3579103622"), ("0.1Gi", "107374183"), ("1.5Gi", "1536Mi"), ("1e9", "1e9")],
)
async def test_claim_has_the_size_in_any_spelling(
    harness: OperatorHarness, key: Key, size: str, claimed: str
) -> None:
    """The API server keeps thousandths of a byte: a finer value would drift permanently."""
    await apply(harness, key, size=size)
    assert await requested(harness, key) == claimed
    await bind(harness, key, claimed)

    assert await condition(harness, key, "Drifted") == ("False", Reason.IN_SYNC)


async def test_growth_to_a_fraction_of_a_byte_is_asked_for_once(
    harness: OperatorHarness, key: Key
) -> None:
    await apply(harness, key, size=1)
    await bind(harness, key, "1Gi")
    await apply(harness, key, size="3.3333Gi")
    before = (await harness.client.get(PVC, key))["metadata"]["resourceVersion"]
    await harness.restart()
    await harness.converged()

    after = await harness.client.get(PVC, key)
    assert after["spec"]["resources"]["requests"]["storage"] == "3579103622"
    assert after["metadata"]["resourceVersion"] == before
    assert harness.metric("volumes_actions_total", reason=Reason.RESIZING) == 0


async def test_policy_moves_the_mark_of_the_owner(harness: OperatorHarness, key: Key) -> None:
    await apply(harness, key, size=1)
    for policy, owners in (("Retain", 0), ("Snapshot", 0), ("Delete", 1), ("Retain", 0)):
        await apply(harness, key, size=1, reclaimPolicy=policy)

        claim = await harness.client.get(PVC, key)
        assert len(claim["metadata"].get("ownerReferences") or []) == owners, policy


async def test_retained_claim_is_adopted_and_deleted(harness: OperatorHarness, key: Key) -> None:
    await apply(harness, key, size=1, reclaimPolicy="Retain")
    await bind(harness, key, "1Gi")
    uid = (await harness.client.get(PVC, key))["metadata"]["uid"]
    volume = await harness.client.get(DEMO_VOLUME, key)
    own = volume["metadata"]["uid"]
    await harness.client.delete(DEMO_VOLUME, key, uid=own, propagation="Foreground")
    # Nobody collects garbage here, so the finalizer of the foreground deletion stays.
    await harness.eventually(lambda: lets_go(harness, key))
    await remove_finalizers(harness, DEMO_VOLUME, key)
    await harness.converged()

    await apply(harness, key, size=1, adopt="IfMatching", reclaimPolicy="Delete")
    assert (await harness.client.get(PVC, key))["metadata"]["uid"] == uid
    volume = await harness.client.get(DEMO_VOLUME, key)
    await harness.client.delete(DEMO_VOLUME, key, uid=volume["metadata"]["uid"])
    await remove_finalizers(harness, PVC, key)

    await harness.eventually(lambda: is_gone(harness, DEMO_VOLUME, key))


async def lets_go(harness: OperatorHarness, key: Key) -> bool:
    """Return whether the operator took its finalizer off."""
    live = await harness.client.get(DEMO_VOLUME, key)
    return bool(live["metadata"]["finalizers"] == ["foregroundDeletion"])


async def remove_finalizers(harness: OperatorHarness, kind: Any, key: Key) -> None:
    """Do what the controllers of a whole cluster would do."""
    async with asyncio.timeout(120):
        while not (live := await find(harness, kind, key) or {"metadata": {}})["metadata"].get(
            "deletionTimestamp"
        ):
            await asyncio.sleep(0.02)
    operations = [{"op": "add", "path": "/metadata/finalizers", "value": []}]
    assert live["metadata"]["finalizers"]
    await harness.client.patch(kind, key, operations)


async def is_gone(harness: OperatorHarness, kind: Any, key: Key) -> bool:
    """Return whether an object is gone."""
    return await find(harness, kind, key) is None


async def find(harness: OperatorHarness, kind: Any, key: Key) -> Manifest | None:
    """Return an object of the API server, or None."""
    try:
        return await harness.client.get(kind, key)
    except NotFound:
        return None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"claimMetadata": {"labels": {"storage.slipway.dev/demovolume": "x"}}}, "keys under"),
        (
            {"claimMetadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}},
            "keys under",
        ),
        ({"dataSourceRef": {"kind": "Image", "name": "linux"}}, "apiGroup is required"),
        (
            {
                "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "other"},
                "source": {"volume": "other"},
            },
            "source and dataSourceRef cannot both be set",
        ),
    ],
    ids=str,
)
async def test_field_for_the_claim_that_makes_no_sense_is_refused(
    harness: OperatorHarness, key: Key, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await apply(harness, key, size=1, **spec)


async def test_fields_of_the_claim_reach_it_and_change_as_kubernetes_lets_them(
    harness: OperatorHarness, key: Key
) -> None:
    chosen = {
        "selector": {"matchLabels": {"disk": "fast"}},
        "claimMetadata": {"labels": {"backup": "daily"}, "annotations": {"example.com/a": "b"}},
    }
    await apply(harness, key, size=1, volumeAttributesClassName="silver", **chosen)
    claim = await harness.client.get(PVC, key)
    assert claim["spec"]["selector"] == {"matchLabels": {"disk": "fast"}}
    assert claim["spec"]["volumeAttributesClassName"] == "silver"
    await bind(harness, key, "1Gi")

    await apply(harness, key, size=1, volumeAttributesClassName="gold", **chosen)
    assert (await harness.client.get(PVC, key))["spec"]["volumeAttributesClassName"] == "gold"
    assert await condition(harness, key, "Modified") == ("False", Reason.MODIFYING)
    await bind(harness, key, "1Gi", currentVolumeAttributesClassName="gold")
    assert await condition(harness, key, "Modified") == ("True", Reason.ATTRIBUTES_APPLIED)

    for change, message in (
        ({"volumeAttributesClassName": None}, "can be changed but not removed"),
        ({"selector": {"matchLabels": {"disk": "slow"}}}, "selector is immutable"),
        ({"volumeName": "pv-1"}, "volumeName cannot be set or removed"),
    ):
        with pytest.raises(Invalid, match=message):
            await harness.client.patch(DEMO_VOLUME, key, {"spec": change})
    await harness.client.patch(DEMO_VOLUME, key, {"spec": {"claimMetadata": None}})
    await harness.converged()
    metadata = (await harness.client.get(PVC, key))["metadata"]
    assert "backup" not in metadata["labels"]
    assert "example.com/a" not in metadata.get("annotations", {})


@pytest.mark.parametrize("size", ["1e999999999", "1e-999999999", "1E9999"])
async def test_size_with_a_huge_exponent_is_refused_without_computing_it(
    harness: OperatorHarness, key: Key, size: str
) -> None:
    """The API server would compute it for half a minute, and then report a time-out."""
    await apply(harness, key, size="1e10")
    for name in (key.name, "new"):
        manifest = build_object(
            DEMO_VOLUME, name, key.namespace, spec={"storageClassName": "standard", "size": size}
        )
        with pytest.raises(Invalid, match="should match"):
            await harness.client.apply(DEMO_VOLUME, manifest, field_manager="kubectl")
