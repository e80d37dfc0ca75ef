"""The API of PulsarConsumer: what is kept, what is refused, and by whom."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.client import Client
from libs.common.crd import ParseError, lint_crd
from libs.common.errors import Invalid
from libs.common.kinds import Key
from libs.common.testing.serving import serve
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.samples import build_manifest, parse_consumer

AUTOSCALING: dict[str, Any] = {"maxReplicas": 3}
SECRET = {"name": "login", "key": "token"}
KEY_FILE: dict[str, Any] = {
    "type": "OAuth2",
    "oauth2": {"issuerURL": "https://issuer", "credentialsSecretRef": SECRET},
}
SERVICE_ACCOUNT: dict[str, Any] = {
    "type": "ServiceAccountToken",
    "serviceAccountToken": {"audience": "pulsar"},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no topic": ({"topic": None}, "exactly one of topic, topics and topicPattern"),
    "two topics": ({"topics": ["a"]}, "exactly one of topic, topics and topicPattern"),
    "no replicas": ({"replicas": None}, "replicas is required"),
    "no subscription": ({"subscriptionName": None}, "subscriptionName"),
    "no server": ({"serverAddress": None}, "serverAddress"),
    "negative replicas": ({"replicas": -1}, "greater than or equal to 0"),
    "server without scheme": ({"serverAddress": "pulsar:6650"}, "serverAddress"),
    "server with a password": ({"serverAddress": "pulsar://a:b@c:6650"}, "serverAddress"),
    "admin with a query": ({"adminAddress": "http://a:8080/?b=c"}, "adminAddress"),
    "comma in a topic": ({"topic": "a,b"}, "topic"),
    "exclusive twice": ({"subscription": {"type": "Exclusive"}}, "at most 1"),
    "token without token": ({"authentication": {"type": "Token"}}, "token must be set"),
    "token with basic": (
        {
            "authentication": {
                "type": "Token",
                "token": {"secretKeyRef": SECRET},
                "basic": {"secretName": "login"},
            }
        },
        "basic must be set when type is Basic",
    ),
    "output without a handler": ({"output": {"topic": "a"}}, "output needs a handler"),
    "exception with a space": ({"retry": {"rejectOn": ["a b"]}}, "rejectOn"),
    "seek to nowhere": ({"subscription": {"seek": {"id": "1"}}}, "exactly one of position and"),
    "min over max": (
        {"autoscaling": {"minReplicas": 4, "maxReplicas": 3}},
        "minReplicas must not exceed maxReplicas",
    ),
    "hpa from zero": ({"autoscaling": {**AUTOSCALING, "engine": "HPA"}}, "at least 1"),
    "keda with a key file": (
        {
            "autoscaling": {**AUTOSCALING, "engine": "KEDA"},
            "authentication": KEY_FILE,
        },
        "engine KEDA cannot log in",
    ),
    "keda with a key file of its own": (
        {
            "autoscaling": {**AUTOSCALING, "engine": "KEDA"},
            "authentication": {"type": "Token", "token": {"secretKeyRef": SECRET}},
            "adminAuthentication": KEY_FILE,
        },
        "engine KEDA cannot log in",
    ),
    "service account of the operator": (
        {"adminAuthentication": SERVICE_ACCOUNT},
        "only pods of consumers have it",
    ),
    "service account and backlog": (
        {"authentication": SERVICE_ACCOUNT, "autoscaling": AUTOSCALING},
        "adminAuthentication is required with a ServiceAccountToken",
    ),
    "service account and deletion": (
        {"authentication": SERVICE_ACCOUNT, "subscription": {"deletionPolicy": "Delete"}},
        "adminAuthentication is required with a ServiceAccountToken",
    ),
    "service account for anything": (
        {"authentication": {"type": "ServiceAccountToken", "serviceAccountToken": {}}},
        "audience",
    ),
    "keda with a certificate alone": (
        {
            "autoscaling": {**AUTOSCALING, "engine": "KEDA"},
            "serverAddress": "pulsar+ssl://pulsar:6651",
            "tls": {"trustedCASecretRef": SECRET},
        },
        "only with an authentication",
    ),
    "native engine on a topic in memory": (
        {"topic": "non-persistent://public/default/b", "autoscaling": {"maxReplicas": 2}},
        "autoscaling by backlog needs persistent topics",
    ),
    "subscription of a topic in memory": (
        {
            "topic": "non-persistent://public/default/b",
            "subscription": {"create": "Operator"},
        },
        "subscriptions of persistent topics only",
    ),
    "keda on a topic in memory": (
        {
            "autoscaling": {**AUTOSCALING, "engine": "KEDA"},
            "topic": None,
            "topics": ["a", "non-persistent://public/default/b"],
        },
        "autoscaling by backlog needs persistent topics",
    ),
    "pattern and backlog": (
        {"topic": None, "topicPattern": "persistent://a/b/c-.*", "autoscaling": AUTOSCALING},
        "the backlog of a topicPattern is not read",
    ),
    "pattern and creation": (
        {
            "topic": None,
            "topicPattern": "persistent://a/b/c-.*",
            "subscription": {"create": "Operator"},
        },
        "with topicPattern the operator cannot",
    ),
    "compacted and shared": ({"subscription": {"readCompacted": "Enabled"}}, "readCompacted"),
    "batch for nobody": ({"consumption": {"batch": {"delivery": "Whole"}}}, "needs a handler"),
    "short ack timeout": ({"consumption": {"ackTimeoutSeconds": 5}}, "must be 0"),
    "delays crossed": (
        {"retry": {"initialDelaySeconds": 10, "maxDelaySeconds": 5}},
        "must not exceed maxDelaySeconds",
    ),
    "factor below one": ({"retry": {"multiplier": "0.5"}}, "must be a number from 1 to 10"),
    "factor above ten": ({"retry": {"multiplier": 11}}, "must be a number from 1 to 10"),
    "factor that is no number": ({"retry": {"multiplier": "1.5x"}}, "must be a number from 1 to"),
    "retry topic that is not used": (
        {"retry": {"topic": "again"}},
        "only if strategy is RetryTopic",
    ),
    "avro without schema": ({"schema": {"type": "Avro"}}, "configMapKeyRef is required"),
    "definition of bytes": (
        {"schema": {"type": "String", "configMapKeyRef": {"name": "own", "key": "value"}}},
        "only if type is JSON or Avro",
    ),
    "copies in the clear": (
        {"encryption": {"privateKeySecretRef": SECRET}, "deadLetter": {}},
        "publicKeySecretRef is required",
    ),
    "topic of dots": ({"topic": "persistent://a/b/.."}, "spec.topic"),
    "namespace of dots": ({"topic": "a/../b"}, "spec.topic"),
    "subscription of dots": ({"subscriptionName": ".."}, "spec.subscriptionName"),
    "dot as a subscription of dead letters": (
        {"deadLetter": {"subscriptionName": "."}},
        "spec.deadLetter.subscriptionName",
    ),
    "handler that is no function": ({"handler": "rm -rf /"}, "handler"),
    "two budgets": (
        {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}},
        "exactly one of minAvailable and maxUnavailable",
    ),
}


@pytest.fixture
async def client(kube_client: Client) -> Client:
    """Serve the kind on a real API server."""
    await serve(kube_client, PulsarConsumer)
    return kube_client


def test_api_follows_the_rules_of_the_house() -> None:
    assert lint_crd(PulsarConsumer) == []


def test_kept_fields_alone_mean_what_they_meant() -> None:
    consumer = parse_consumer()

    assert consumer.spec.server_address == "pulsar://pulsar:6650"
    assert (consumer.topics, consumer.spec.replicas) == (("my-topic",), 2)
    assert consumer.spec.autoscaling is None
    assert consumer.spec.authentication is None


def test_mistake_is_told_by_the_path_of_its_field() -> None:
    with pytest.raises(ParseError, match=r"PulsarConsumer default/orders: spec\.replicas: "):
        parse_consumer(replicas=-1)


@pytest.mark.apiserver
async def test_server_stores_the_kept_manifest_as_it_was_written(
    client: Client, kube_namespace: str
) -> None:
    await client.create(PULSAR_CONSUMER, build_manifest(namespace=kube_namespace))

    held = await client.get(PULSAR_CONSUMER, Key(kube_namespace, "orders"))
    assert held["spec"] == {
        "serverAddress": "pulsar://pulsar:6650",
        "topic": "my-topic",
        "subscriptionName": "my-subscription",
        "replicas": 2,
    }
    scale = await client.raw("GET", PULSAR_CONSUMER.path(kube_namespace, "orders", "scale"))
    assert scale["spec"]["replicas"] == 2


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "spec",
    [
        {"topic": None, "topicPattern": "t/n/a-.*"},
        {"topic": "non-persistent://t/n/a"},
        {"image": "shop:1", "output": {"topic": "booked"}},
        {"handler": "a:b", "retry": {"rejectOn": ["ValueError", "a.b.C"]}, "listenerName": "in"},
        {"replicas": None, "autoscaling": {"targets": {"drainTimeSeconds": 60}}},
        {"subscription": {"type": "Exclusive"}, "replicas": 1},
        {"consumption": {"batch": {}}},
        {"retry": {"multiplier": 2}},
        {"retry": {"multiplier": "1.5"}},
        {"retry": {"multiplier": "10.0", "strategy": "RetryTopic", "topic": "again"}},
        {"authentication": SERVICE_ACCOUNT, "subscription": {"type": "Failover"}},
        {
            "autoscaling": AUTOSCALING,
            "authentication": SERVICE_ACCOUNT,
            "adminAuthentication": KEY_FILE,
        },
        {
            "autoscaling": {**AUTOSCALING, "engine": "KEDA"},
            "authentication": KEY_FILE,
            "adminAuthentication": {"type": "Token", "token": {"secretKeyRef": SECRET}},
            "tls": {"trustedCASecretRef": SECRET},
        },
    ],
    ids=str,
)
async def test_server_accepts(client: Client, kube_namespace: str, spec: dict[str, Any]) -> None:
    await client.create(PULSAR_CONSUMER, build_manifest(namespace=kube_namespace, **spec))

    held = await client.get(PULSAR_CONSUMER, Key(kube_namespace, "orders"))
    PulsarConsumer.parse(held)


@pytest.mark.apiserver
@pytest.mark.parametrize("name", REFUSED)
async def test_server_refuses(client: Client, kube_namespace: str, name: str) -> None:
    spec, words = REFUSED[name]

    with pytest.raises(Invalid, match=words):
        await client.create(PULSAR_CONSUMER, build_manifest(namespace=kube_namespace, **spec))
