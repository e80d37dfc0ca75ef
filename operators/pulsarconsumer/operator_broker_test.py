"""Operator, consumer app and a real broker together; only the cluster is played."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar
import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import CONFIG_MAP, DEPLOYMENT, SECRET, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.app.harness import Peer
from operators.pulsarconsumer.fake_nodes import run_fake_nodes
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.testing.broker import Broker

ORDERS = Key("default", "orders")
SHOP = "system:serviceaccount:default:shop"
"""What Kubernetes names as the subject of the tokens of the ServiceAccount shop."""
HANDLER = """
import os

def handle(message):
    with open(os.environ["NOTES"], "a") as file:
        file.write(message.data.decode() + "\\n")
"""
_SECONDS = 60.0
"""A process of the app needs some seconds to start where the machine is busy."""


def build(broker: Broker, topic: str, **spec: Any) -> Manifest:
    address = {"serverAddress": broker.service_url, "adminAddress": broker.admin_url}
    return build_manifest(**address, topic=topic, subscriptionName="orders", **spec)


def new_topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def condition(api: FakeApi, name: str) -> tuple[str, str]:
    found = find_condition(api.get(PULSAR_CONSUMER, ORDERS), name) or {}
    return str(found.get("status")), str(found.get("reason"))


async def test_backlog_scales_from_zero_and_back_and_nothing_is_lost(
    api: FakeApi, harness: OperatorHarness, pulsar_broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic()
    scaling = {
        "maxReplicas": 2,
        "pollSeconds": 1,
        "cooldownSeconds": 2,
        "targets": {"backlogPerReplica": 500},
        "behavior": {"scaleDown": {"stabilizationSeconds": 0}},
        # On a busy machine the broker may not respond in time.
        "fallback": {"replicas": 0},
    }
    api.create(build(pulsar_broker, topic, replicas=None, autoscaling=scaling))
    await harness.eventually(
        lambda: condition(api, "SubscriptionReady") == ("True", Reason.EXISTS), timeout=_SECONDS
    )
    assert api.get(DEPLOYMENT, ORDERS)["spec"]["replicas"] == 0
    peer = Peer(pulsar_broker.service_url)
    sent = [f"message-{number}" for number in range(1200)]
    await asyncio.to_thread(peer.send, topic, [text.encode() for text in sent])
    await harness.eventually(
        lambda: api.get(DEPLOYMENT, ORDERS)["spec"]["replicas"] == 2, timeout=_SECONDS
    )
    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(lambda: set(nodes.payloads) == set(sent), timeout=_SECONDS)
        await harness.eventually(
            lambda: api.get(DEPLOYMENT, ORDERS)["spec"]["replicas"] == 0, timeout=_SECONDS
        )
        await harness.eventually(lambda: not nodes.running, timeout=_SECONDS)

        assert sorted(nodes.payloads) == sorted(sent), "none was handled twice: all ended in order"
    await asyncio.to_thread(peer.close)


@pytest.mark.parametrize("kind", ["retry", "delayed"])
async def test_message_that_becomes_due_later_is_not_stranded_at_zero(
    api: FakeApi, harness: OperatorHarness, pulsar_broker: Broker, tmp_path: Path, kind: str
) -> None:
    """The broker does not report that a message becomes due while no consumer is connected."""
    topic = new_topic()
    scaling = {"maxReplicas": 2, "pollSeconds": 1, "cooldownSeconds": 1}
    retry = {"strategy": "RetryTopic", "initialDelaySeconds": 8, "maxDelaySeconds": 8}
    handler = "operators.pulsarconsumer.app.harness:fail_first_attempt"
    shown = {"handler": handler, "messageLog": {"samplePercent": 100}}
    spec = {"retry": retry, **shown} if kind == "retry" else {}
    quick = {"behavior": {"scaleDown": {"stabilizationSeconds": 0}}}
    api.create(build(pulsar_broker, topic, replicas=None, autoscaling={**scaling, **quick}, **spec))
    await harness.eventually(
        lambda: condition(api, "SubscriptionReady") == ("True", Reason.EXISTS), timeout=_SECONDS
    )
    peer = Peer(pulsar_broker.service_url)
    delay = {"deliver_after": timedelta(seconds=8)} if kind == "delayed" else {}
    await asyncio.to_thread(peer.send, topic, [b"later"], **delay)
    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(lambda: bool(nodes.running), timeout=_SECONDS)
        attempts = 2 if kind == "retry" else 1
        await harness.eventually(lambda: nodes.payloads == ["later"] * attempts, timeout=_SECONDS)
        await harness.eventually(
            lambda: api.get(DEPLOYMENT, ORDERS)["spec"]["replicas"] == 0, timeout=_SECONDS
        )
        await harness.eventually(lambda: not nodes.running, timeout=_SECONDS)
    status = api.get(PULSAR_CONSUMER, ORDERS)["status"]
    assert status["backlog"]["entries"] == 0
    assert status.get("retry", {}).get("backlog", 0) == 0
    await asyncio.to_thread(peer.close)


async def test_kept_manifest_is_ready_and_logs_messages(
    api: FakeApi, harness: OperatorHarness, pulsar_broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic()
    api.create(build(pulsar_broker, topic, replicas=1))
    peer = Peer(pulsar_broker.service_url)
    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(
            lambda: condition(api, "Ready") == ("True", Reason.ALL_READY), timeout=_SECONDS
        )
        await asyncio.to_thread(peer.send, topic, [b"hello"])

        await harness.eventually(lambda: nodes.payloads == ["hello"], timeout=_SECONDS)
        status = api.get(PULSAR_CONSUMER, ORDERS)["status"]
        assert (status["topic"], status["subscription"]) == (topic, "orders")
        await harness.eventually(
            lambda: api.get(PULSAR_CONSUMER, ORDERS)["status"]["connectedConsumers"] == 1,
            timeout=_SECONDS,
        )
    await asyncio.to_thread(peer.close)


async def test_handler_from_a_config_map_handles_messages(
    api: FakeApi, harness: OperatorHarness, pulsar_broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic()
    code = {"orders.py": HANDLER}
    api.create(build_object(CONFIG_MAP, "handler", "default", data=code))
    # As in the documentation; /tmp is a volume of every consumer.
    environ = {"PYTHONPATH": "/handlers", "NOTES": "/tmp/notes"}
    env = [{"name": name, "value": value} for name, value in environ.items()]
    mount = {"name": "handler", "mountPath": "/handlers", "readOnly": True}
    pod = {
        "containers": [{"name": "consumer", "env": env, "volumeMounts": [mount]}],
        "volumes": [{"name": "handler", "configMap": {"name": "handler"}}],
    }
    api.create(
        build(
            pulsar_broker,
            topic,
            replicas=1,
            handler="orders:handle",
            template={"spec": pod},
            subscription={"create": "Operator"},
        )
    )
    peer = Peer(pulsar_broker.service_url)
    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(
            lambda: condition(api, "Ready") == ("True", Reason.ALL_READY), timeout=_SECONDS
        )
        await asyncio.to_thread(peer.send, topic, [b"hello"])
        await harness.eventually(lambda: read_notes(tmp_path) == ["hello"], timeout=_SECONDS)
        assert nodes.payloads == []
    await asyncio.to_thread(peer.close)


async def test_token_is_rotated_and_the_broker_restarted(
    api: FakeApi, harness: OperatorHarness, strict_broker: Broker
) -> None:
    login = by_token("login")
    subscription = {"create": "Operator", "deletionPolicy": "Delete"}
    api.create(build_secret(strict_broker.token(seconds=-60)))
    topic = new_topic()
    api.create(build(strict_broker, topic, authentication=login, subscription=subscription))
    await harness.eventually(
        lambda: condition(api, "AuthenticationValid") == ("False", Reason.AUTHENTICATION_FAILED),
        timeout=_SECONDS,
    )
    assert api.find(DEPLOYMENT, ORDERS) is None

    fresh = build_secret(strict_broker.token())["data"]
    api.patch(SECRET, Key("default", "login"), {"data": fresh})
    await harness.eventually(lambda: api.find(DEPLOYMENT, ORDERS) is not None, timeout=_SECONDS)

    await asyncio.to_thread(strict_broker.kill)
    await harness.eventually(
        lambda: condition(api, "BrokerReachable") == ("False", Reason.UNREACHABLE),
        timeout=_SECONDS,
    )
    assert api.get(DEPLOYMENT, ORDERS)["spec"]["replicas"] == 2
    await asyncio.to_thread(strict_broker.start)
    await harness.eventually(
        lambda: condition(api, "BrokerReachable") == ("True", Reason.ANSWERED), timeout=_SECONDS
    )

    api.delete(PULSAR_CONSUMER, ORDERS)
    await harness.eventually(lambda: api.find(PULSAR_CONSUMER, ORDERS) is None, timeout=_SECONDS)
    assert strict_broker.subscription(topic, "orders") == {}


async def test_operator_and_consumers_have_credentials_of_their_own(
    api: FakeApi, harness: OperatorHarness, strict_broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic()
    strict_broker.request("PUT", f"persistent/public/default/{topic}")
    grant(strict_broker, topic, "shop")
    api.create(build_secret(strict_broker.token("shop"), "shop"))
    api.create(build_secret(strict_broker.token("watcher"), "watcher"))
    logins = {"authentication": by_token("shop"), "adminAuthentication": by_token("watcher")}
    api.create(build(strict_broker, topic, replicas=1, **logins))
    peer = Peer(
        strict_broker.service_url, authentication=pulsar.AuthenticationToken(strict_broker.token())
    )
    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(
            lambda: condition(api, "Ready") == ("True", Reason.ALL_READY), timeout=_SECONDS
        )
        await asyncio.to_thread(peer.send, topic, [b"hello"])
        await harness.eventually(lambda: nodes.payloads == ["hello"], timeout=_SECONDS)
        # Nobody gave the role watcher any right yet: the operator does not fall back to shop.
        await harness.eventually(
            lambda: (
                condition(api, "AuthenticationValid") == ("False", Reason.AUTHORIZATION_FAILED)
            ),
            timeout=_SECONDS,
        )

        await asyncio.to_thread(grant, strict_broker, topic, "watcher")

        await harness.eventually(
            lambda: condition(api, "SubscriptionReady") == ("True", Reason.EXISTS),
            timeout=_SECONDS,
        )
        assert condition(api, "AuthenticationValid")[0] == "True"
        mounted = [path for path in tmp_path.rglob("token") if path.is_file()]
        assert {read_role(path.read_text()) for path in mounted} == {"shop"}
    await asyncio.to_thread(peer.close)


async def test_consumers_use_the_service_account_token_and_read_the_renewed_one(
    api: FakeApi, harness: OperatorHarness, strict_broker: Broker, tmp_path: Path
) -> None:
    """The broker trusts tokens that its own key signed, instead of tokens of a cluster."""
    topic = new_topic()
    strict_broker.request("PUT", f"persistent/public/default/{topic}")
    grant(strict_broker, topic, SHOP)
    login = {"type": "ServiceAccountToken", "serviceAccountToken": {"audience": "pulsar"}}
    pod = {"serviceAccountName": "shop"}
    api.create(
        build(strict_broker, topic, replicas=1, authentication=login, template={"spec": pod})
    )
    peer = Peer(
        strict_broker.service_url, authentication=pulsar.AuthenticationToken(strict_broker.token())
    )
    async with run_fake_nodes(api, tmp_path) as nodes:
        # The broker refuses this one immediately, so that the app must read the next one.
        nodes.service_account_token = strict_broker.token("system:serviceaccount:default:other")
        await harness.eventually(lambda: bool(nodes.running), timeout=_SECONDS)
        await harness.eventually(
            lambda: condition(api, "AuthenticationValid") == ("Unknown", Reason.NOT_ASKED),
            timeout=_SECONDS,
        )
        (process,) = nodes.running
        await harness.eventually(
            lambda: "not subscribed: " in process.get("/readyz")[1], timeout=_SECONDS
        )
        nodes.service_account_token = strict_broker.token(SHOP)

        await harness.eventually(
            lambda: condition(api, "Ready") == ("True", Reason.ALL_READY), timeout=_SECONDS
        )
        await asyncio.to_thread(peer.send, topic, [b"hello"])
        await harness.eventually(lambda: nodes.payloads == ["hello"], timeout=_SECONDS)
        assert nodes.running == [process]
    await asyncio.to_thread(peer.close)


def read_notes(folder: Path) -> list[str]:
    """Return the lines that handlers of played pods wrote."""
    return [line for path in folder.rglob("notes") for line in path.read_text().splitlines()]


def grant(broker: Broker, topic: str, role: str) -> None:
    """Let a role consume a topic."""
    broker.request("POST", f"persistent/public/default/{topic}/permissions/{role}", ["consume"])


def admin_login(broker: Broker) -> pulsar.Authentication:
    """Return a login with all rights."""
    return pulsar.AuthenticationToken(broker.token())


def read_role(token: str) -> str:
    """Return the role that a token is for."""
    claims = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])


def by_token(secret: str) -> Manifest:
    """Build a login with the token in a Secret."""
    return {"type": "Token", "token": {"secretKeyRef": {"name": secret, "key": "token"}}}


def build_secret(token: str, name: str = "login") -> Manifest:
    """Build the Secret of a login."""
    data = {"token": base64.b64encode(token.encode()).decode()}
    return build_object(SECRET, name, "default", data=data)
