"""The podset operator on a real cluster, as a user meets it."""

from __future__ import annotations

import pytest

from libs.common.kinds import POD, Key
from operators.podset.controller import PODSET
from tests.e2e.cluster import Cluster, Serve, eventually, names_of

SAMPLE = Key("", "podset-sample")
SELECTOR = "app=podset-sample"


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve) -> None:
    """Install the operator for all tests here."""
    serve("podset")


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Make a namespace for one test."""
    return await cluster.make_namespace("podset")


async def apply_sample(cluster: Cluster, namespace: str) -> Key:
    await cluster.apply_example("podset", "podset-sample", namespace)
    key = Key(namespace, SAMPLE.name)
    await cluster.wait_ready(PODSET, key)
    return key


async def test_kept_manifest_becomes_running_pods(cluster: Cluster, namespace: str) -> None:
    key = await apply_sample(cluster, namespace)

    podset = await cluster.client.get(PODSET, key)
    pods = await cluster.running_pods(namespace, f"{SELECTOR},version=v0.1")
    assert names_of(pods) == [f"podset-sample-pod-{slot}" for slot in range(3)]
    assert podset["status"]["podNames"] == names_of(pods)
    assert podset["status"]["readyReplicas"] == 3
    table = await cluster.kubectl_run(namespace, "get", "podsets")
    assert "podset-sample" in table
    for pod in pods:
        container = pod["spec"]["containers"][0]
        assert (container["image"], container["command"]) == ("busybox", ["sleep", "3600"])


async def test_deleted_pod_is_replaced(cluster: Cluster, namespace: str) -> None:
    await apply_sample(cluster, namespace)
    victim = (await cluster.running_pods(namespace, SELECTOR))[0]

    await cluster.kubectl_run(
        namespace, "delete", "pod", victim["metadata"]["name"], "--grace-period", "0", "--force"
    )

    async def replaced() -> bool:
        pods = await cluster.running_pods(namespace, SELECTOR)
        uids = {pod["metadata"]["uid"] for pod in pods}
        return len(pods) == 3 and victim["metadata"]["uid"] not in uids

    await eventually(replaced, "three pods run again")


async def test_kubectl_scale_works_in_both_directions(cluster: Cluster, namespace: str) -> None:
    key = await apply_sample(cluster, namespace)
    for replicas in (5, 1):
        await cluster.kubectl_run(
            namespace, "scale", "podset", SAMPLE.name, f"--replicas={replicas}"
        )

        async def scaled(wanted: int = replicas) -> bool:
            podset = await cluster.client.get(PODSET, key)
            listing = await cluster.client.list(POD, namespace, label_selector=SELECTOR)
            return bool(len(listing.items) == wanted == podset["status"]["readyReplicas"])

        await eventually(scaled, f"{replicas} pods")


async def test_bad_manifest_is_refused_with_the_field_named(
    cluster: Cluster, namespace: str
) -> None:
    manifest = """
apiVersion: batch.tutorial.kubebuilder.io/v1
kind: PodSet
metadata: {name: bad}
spec: {replicas: -1}
"""
    with pytest.raises(AssertionError, match=r"spec\.replicas"):
        await cluster.kubectl_run(namespace, "apply", "--filename", "-", stdin=manifest)


async def test_deleting_the_set_deletes_its_pods(cluster: Cluster, namespace: str) -> None:
    key = await apply_sample(cluster, namespace)

    await cluster.kubectl_run(namespace, "delete", "podset", SAMPLE.name, "--wait=false")

    await cluster.wait_gone(PODSET, key)

    async def gone() -> bool:
        return not (await cluster.running_pods(namespace, SELECTOR))

    await eventually(gone, "no pod runs")
