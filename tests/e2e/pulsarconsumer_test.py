"""The pulsarconsumer operator on a real cluster, with a real broker in it."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator

import pytest

from libs.common.kinds import DEPLOYMENT, Key, Manifest, build_object
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.naming import OPERATOR_ID
from tests.e2e.cluster import Cluster, Serve, eventually
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.pulsar.cluster import deploy_to_kind, send

APP = "slipway/pulsarconsumer-app:dev"
NAMESPACE = f"e2e-pulsar-{secrets.token_hex(2)}"


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve) -> None:
    """Install the operator for all tests here."""
    serve(OPERATOR_ID)


@pytest.fixture(scope="module", autouse=True)
def broker(kind_cluster: KindCluster) -> Iterator[None]:
    """Run a broker for all tests here, in the namespace in which they consume."""
    kubectl = kind_cluster.kubectl()
    kubectl.read("create", "namespace", NAMESPACE)
    try:
        deploy_to_kind(kind_cluster, NAMESPACE, open_progress("e2e"))
        yield
    finally:
        kubectl.read("delete", "namespace", NAMESPACE, "--wait=false")


def build_consumer(name: str, **spec: object) -> Manifest:
    return build_object(
        PULSAR_CONSUMER,
        name,
        NAMESPACE,
        spec={
            "serverAddress": "pulsar://pulsar:6650",
            "topic": name,
            "subscriptionName": "sub",
            **spec,
        },
    )


def selector_of(name: str) -> str:
    return f"app.kubernetes.io/managed-by={OPERATOR_ID},app.kubernetes.io/instance={name}"


async def produce(kind_cluster: KindCluster, topic: str, count: int) -> None:
    """Send messages by the sample producer."""
    said = await asyncio.to_thread(
        send, kind_cluster.kubectl(), NAMESPACE, topic, "hello", count, APP
    )
    assert f"Sent {count} of {count} messages" in said


async def read_payloads(cluster: Cluster, name: str) -> list[str]:
    """Return what the consumers have logged."""
    text = await cluster.kubectl_run(
        NAMESPACE, "logs", "--selector", selector_of(name), "--tail", "-1"
    )
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return [found["payload"] for line in lines if "payload" in (found := json.loads(line))]


async def test_kept_manifest_consumes_what_the_sample_producer_sends(
    cluster: Cluster, kind_cluster: KindCluster
) -> None:
    (consumer,) = await cluster.apply_example(OPERATOR_ID, "pulsarconsumer-sample", NAMESPACE)
    name, topic = consumer["metadata"]["name"], consumer["spec"]["topic"]
    held = await cluster.wait_ready(PULSAR_CONSUMER, Key(NAMESPACE, name))
    status = held["status"]
    assert (status["server"], status["topic"], status["subscription"], status["replicas"]) == (
        "pulsar://pulsar:6650",
        "my-topic",
        "my-subscription",
        2,
    )

    await produce(kind_cluster, topic, 2000)

    async def consumed() -> bool:
        return len(await read_payloads(cluster, name)) >= 2000

    await eventually(consumed, "all messages are in the logs")
    payloads = await read_payloads(cluster, name)
    assert sorted(payloads) == sorted(f"hello {number}" for number in range(2000))
    await cluster.delete(PULSAR_CONSUMER, Key(NAMESPACE, name))
    await cluster.wait_gone(DEPLOYMENT, Key(NAMESPACE, name))


async def test_backlog_brings_consumers_from_none_and_back_to_none(
    cluster: Cluster, kind_cluster: KindCluster
) -> None:
    name = "scaled"
    scaling = {
        "minReplicas": 0,
        "maxReplicas": 3,
        "targets": {"backlogPerReplica": 100},
        "pollSeconds": 1,
        "cooldownSeconds": 5,
        "behavior": {"scaleDown": {"stabilizationSeconds": 1}},
    }
    manifest = build_consumer(
        name,
        autoscaling=scaling,
        subscription={"initialPosition": "Earliest"},
        # Slow enough for the backlog to be seen.
        consumption={"rateLimitPerSecond": 30},
    )
    await cluster.client.create(PULSAR_CONSUMER, manifest)
    key = Key(NAMESPACE, name)

    async def replicas() -> int:
        deployment = await cluster.client.get(DEPLOYMENT, key)
        return int(deployment["spec"]["replicas"])

    async def none() -> bool:
        return await replicas() == 0

    async def several() -> bool:
        return await replicas() >= 2

    await eventually(none, "nothing waits, and nobody consumes")
    await produce(kind_cluster, name, 600)
    await eventually(several, "several consume")
    await eventually(none, "all is consumed, and nobody consumes")
