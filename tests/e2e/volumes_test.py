"""The volumes operator on a real cluster, with real storage."""

from __future__ import annotations

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import POD, PVC, Key, Manifest, build_object
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.e2e.cluster import Cluster, Serve, build_busybox, eventually


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve) -> None:
    """Install the operator for all tests here."""
    serve("volumes")


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Make a namespace for one test."""
    return await cluster.make_namespace("volumes")


def build_volume(namespace: str, name: str = "data", **spec: object) -> Manifest:
    return build_object(DEMO_VOLUME, name, namespace, spec={"name": name, "size": 1, **spec})


async def use(cluster: Cluster, namespace: str, claim: str) -> None:
    """Run a pod on a claim, which is what binds it here."""
    spec = build_busybox("sleep", "3600", mounts={claim: "/data"})
    await cluster.client.create(POD, build_object(POD, "user", namespace, spec=spec))


async def test_kept_manifest_becomes_a_claim_of_that_name_and_size(
    cluster: Cluster, namespace: str
) -> None:
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace))

    async def made() -> bool:
        claim = await cluster.client.get(PVC, Key(namespace, "data"))
        return bool(claim["spec"]["resources"]["requests"]["storage"] == "1Gi")

    await eventually(made, "the claim exists")

    async def reported() -> bool:
        volume = await cluster.client.get(DEMO_VOLUME, Key(namespace, "data"))
        return bool((volume.get("status") or {}).get("name") == "data")

    await eventually(reported, "status.name is the name of the spec")


async def test_volume_is_bound_once_a_pod_uses_it(cluster: Cluster, namespace: str) -> None:
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace))
    await eventually(lambda: cluster.client.get(PVC, Key(namespace, "data")), "the claim exists")
    await use(cluster, namespace, "data")

    volume = await cluster.wait_ready(DEMO_VOLUME, Key(namespace, "data"), "Bound")

    assert volume["status"]["capacity"]
    assert volume["status"]["volumeName"]

    async def reported() -> bool:
        held = await cluster.client.get(DEMO_VOLUME, Key(namespace, "data"))
        return "user" in str(held["status"].get("usedBy"))

    await eventually(reported, "status.usedBy names the pod")


async def test_deleted_claim_is_made_again(cluster: Cluster, namespace: str) -> None:
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace))
    key = Key(namespace, "data")
    await eventually(lambda: cluster.client.get(PVC, key), "the claim exists")
    before = (await cluster.client.get(PVC, key))["metadata"]["uid"]

    await cluster.delete(PVC, key)

    async def again() -> bool:
        return bool((await cluster.client.get(PVC, key))["metadata"]["uid"] != before)

    await eventually(again, "another claim of that name exists")


async def test_foreign_claim_is_never_adopted(cluster: Cluster, namespace: str) -> None:
    claim: Manifest = build_object(
        PVC,
        "data",
        namespace,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    foreign = await cluster.client.create(PVC, claim)
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace))

    await cluster.wait_ready(DEMO_VOLUME, Key(namespace, "data"), "Conflict")
    held = await cluster.client.get(PVC, Key(namespace, "data"))
    assert held["metadata"]["uid"] == foreign["metadata"]["uid"]
    assert not held["metadata"].get("ownerReferences")


async def test_shrinking_is_refused_at_admission(cluster: Cluster, namespace: str) -> None:
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace, size=2))
    await eventually(lambda: cluster.client.get(PVC, Key(namespace, "data")), "the claim exists")
    await use(cluster, namespace, "data")
    await cluster.wait_ready(DEMO_VOLUME, Key(namespace, "data"), "Bound")

    with pytest.raises(AssertionError, match="size"):
        await cluster.kubectl_run(
            namespace, "patch", "dvol", "data", "--type", "merge", "-p", '{"spec":{"size":1}}'
        )


async def test_retained_claim_outlives_its_volume(cluster: Cluster, namespace: str) -> None:
    volume = build_volume(namespace, reclaimPolicy="Retain")
    await cluster.client.create(DEMO_VOLUME, volume)
    key = Key(namespace, "data")
    await eventually(lambda: cluster.client.get(PVC, key), "the claim exists")
    uid = (await cluster.client.get(PVC, key))["metadata"]["uid"]

    await cluster.delete(DEMO_VOLUME, key)
    await cluster.wait_gone(DEMO_VOLUME, key)

    held = await cluster.client.get(PVC, key)
    assert held["metadata"]["uid"] == uid
    assert not held["metadata"].get("deletionTimestamp")


async def test_claim_goes_with_its_volume_by_default(cluster: Cluster, namespace: str) -> None:
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace))
    key = Key(namespace, "data")
    await eventually(lambda: cluster.client.get(PVC, key), "the claim exists")

    await cluster.delete(DEMO_VOLUME, key)

    await cluster.wait_gone(DEMO_VOLUME, key)
    await cluster.wait_gone(PVC, key)


async def test_waiting_for_a_consumer_is_not_an_error(cluster: Cluster, namespace: str) -> None:
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace))

    async def waiting() -> bool:
        volume = await cluster.client.get(DEMO_VOLUME, Key(namespace, "data"))
        bound = find_condition(volume, "Bound") or {}
        return bound.get("reason") == "WaitingForFirstConsumer"

    await eventually(waiting, "Bound says WaitingForFirstConsumer")
