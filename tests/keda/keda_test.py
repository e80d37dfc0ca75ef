"""KEDA scales consumers of a real broker, and ScalingActive says whether it does.

KEDA runs if `python -m tools.cluster.binaries keda-operator keda-adapter` has built it; otherwise
the tests are skipped. Consumers are processes.
"""

from __future__ import annotations

import asyncio
import base64
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pulsar
import pytest

from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.errors import NotFound
from libs.common.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    SECRET,
    Key,
    Kind,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.app.harness import Peer
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.fake_nodes import ORDERS, run_fake_nodes
from operators.pulsarconsumer.resources.scalers import (
    HORIZONTAL_POD_AUTOSCALER,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.testing.broker import Broker, PulsarMissing
from tests.keda.peer import Keda, create_keda_certificates, find_keda, run_plane

HANDLER = """
import os
import time

def handle(message):
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
    with open(os.environ["NOTES"], "a") as file:
        file.write(message.data.decode() + "\\n")
"""
AUTOSCALER = Key(ORDERS.namespace, f"keda-hpa-{ORDERS.name}")
"""The HorizontalPodAutoscaler that KEDA creates."""
_POLL = 0.2
_SECONDS = 120.0
"""KEDA notices nothing immediately, and the machine may be busy."""


@dataclass(frozen=True)
class Lab:
    """What runs for all tests of this file."""

    plane: ControlPlane
    keda: Keda
    broker: Broker


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run a control plane, KEDA, and a broker that asks for a token."""
    find_keda()
    try:
        broker = Broker(tokens=True)
    except PulsarMissing as err:
        pytest.skip(str(err))
    certificates = create_keda_certificates(tmp_path_factory.mktemp("certificates"))
    with broker, run_plane(certificates) as plane:
        keda = Keda(plane, certificates, tmp_path_factory.mktemp("keda"))
        asyncio.run(install(plane, keda))
        with keda:
            yield Lab(plane, keda, broker)


async def install(plane: ControlPlane, keda: Keda) -> None:
    """Serve all kinds."""
    async with Client(plane.config) as client:
        await serve(client, PulsarConsumer)
        await keda.install(client)


class Shop:
    """The operator, one PulsarConsumer and its topic."""

    def __init__(self, lab: Lab, client: Client) -> None:
        """Choose a topic."""
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.plane = lab.plane
        self._lab, self._client = lab, client

    async def create(self, scaling: Manifest, token: str = "", **spec: Any) -> None:
        """Create the Secret with the token, the handler, and the PulsarConsumer."""
        await self._client.create(SECRET, build_secret(token or self._lab.broker.token()))
        code = {"orders.py": HANDLER}
        await self._client.create(
            CONFIG_MAP, build_object(CONFIG_MAP, "handler", "default", data=code)
        )
        steps = {"scaleDown": {"stabilizationSeconds": 0}}
        login = {"type": "Token", "token": {"secretKeyRef": {"name": "login", "key": "token"}}}
        manifest = build_manifest(
            **{
                "serverAddress": self._lab.broker.service_url,
                "adminAddress": self._lab.broker.admin_url,
                "topic": self.topic,
                "subscriptionName": "orders",
                "subscription": {"create": "Operator"},
                "replicas": 0,
                "authentication": login,
                "autoscaling": {
                    "engine": "KEDA",
                    "pollSeconds": 1,
                    "cooldownSeconds": 2,
                    "behavior": steps,
                    **scaling,
                },
                **spec,
            }
        )
        await self._client.create(PULSAR_CONSUMER, manifest)

    async def patch(self, kind: Kind, name: str, change: Manifest) -> None:
        """Change an object."""
        await self._client.patch(kind, Key(ORDERS.namespace, name), change)

    async def find(self, kind: Kind, key: Key = ORDERS) -> Manifest:
        """Return an object; empty if there is none."""
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return {}

    async def wanted(self) -> int | None:
        """Return the number of pods that the Deployment should have."""
        found = await self.find(DEPLOYMENT)
        return int(found["spec"]["replicas"]) if found else None

    async def condition(self, name: str = "ScalingActive") -> tuple[str, str]:
        """Return status and reason of a condition."""
        found = find_condition(await self.find(PULSAR_CONSUMER), name) or {}
        return str(found.get("status")), str(found.get("reason"))

    async def message(self) -> str:
        """Return the message of ScalingActive."""
        found = find_condition(await self.find(PULSAR_CONSUMER), "ScalingActive") or {}
        return str(found.get("message"))

    async def wait(self, what: str, probe: Callable[[], Awaitable[object]]) -> None:
        """Wait until a probe returns something true."""
        try:
            async with asyncio.timeout(_SECONDS):
                while not await probe():
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            shown = [await self.find(kind) for kind in (PULSAR_CONSUMER, SCALED_OBJECT)]
            shown.append(await self.find(HORIZONTAL_POD_AUTOSCALER, AUTOSCALER))
            states = [each.get("status") for each in shown]
            logs = [self._lab.keda.log(name)[-2000:] for name in ("operator", "adapter")]
            raise AssertionError(f"Gave up waiting until {what}: {states}\n{logs}") from None

    async def wait_condition(self, status: str, reason: Reason) -> None:
        """Wait for status and reason of ScalingActive."""

        async def holds() -> bool:
            return await self.condition() == (status, reason)

        await self.wait(f"ScalingActive is {status}, {reason}", holds)

    async def wait_wanted(self, replicas: int) -> None:
        """Wait for the number of pods that the Deployment should have."""

        async def holds() -> bool:
            return await self.wanted() == replicas

        await self.wait(f"{replicas} pods are wanted", holds)

    async def send(self, *payloads: str) -> None:
        """Send messages."""
        token = pulsar.AuthenticationToken(self._lab.broker.token())
        peer = Peer(self._lab.broker.service_url, authentication=token)
        await asyncio.to_thread(peer.send, self.topic, [text.encode() for text in payloads])
        await asyncio.to_thread(peer.close)

    async def clear(self) -> None:
        """Delete the PulsarConsumer, and wait until everything of it is gone."""
        if found := await self.find(PULSAR_CONSUMER):
            await self._client.delete(PULSAR_CONSUMER, ORDERS, uid=uid_of(found))
        for kind, name in ((SECRET, "login"), (CONFIG_MAP, "handler")):
            key = Key(ORDERS.namespace, name)
            if found := await self.find(kind, key):
                await self._client.delete(kind, key, uid=uid_of(found))

        async def is_gone() -> bool:
            kinds = (PULSAR_CONSUMER, SCALED_OBJECT, TRIGGER_AUTHENTICATION, DEPLOYMENT)
            left = [await self.find(kind) for kind in kinds]
            return not any(left) and not await self.find(HORIZONTAL_POD_AUTOSCALER, AUTOSCALER)

        await self.wait("the objects are gone", is_gone)


@pytest.fixture
async def shop(lab: Lab) -> AsyncIterator[Shop]:
    """Run the operator, and clean up after it."""
    async with (
        Client(lab.plane.config) as client,
        OperatorHarness(
            OPERATOR,
            lab.plane.config,
            allow_loopback_brokers=True,
            poll_seconds=1,
            backoff_max_seconds=1,
        ),
    ):
        shop = Shop(lab, client)
        yield shop
        await shop.clear()


async def test_backlog_scales_from_zero_to_the_maximum_and_back(shop: Shop, tmp_path: Path) -> None:
    environ = {"PYTHONPATH": "/handlers", "NOTES": "/tmp/notes", "GO": "/handlers/go"}
    env = [{"name": name, "value": value} for name, value in environ.items()]
    mount = {"name": "handler", "mountPath": "/handlers", "readOnly": True}
    pod = {
        "containers": [{"name": "consumer", "env": env, "volumeMounts": [mount]}],
        "volumes": [{"name": "handler", "configMap": {"name": "handler"}}],
    }
    await shop.create(
        {"maxReplicas": 3, "targets": {"backlogPerReplica": 100}},
        handler="orders:handle",
        template={"spec": pod},
        consumption={"receiverQueueSize": 10},
    )
    await shop.wait_condition("True", Reason.DELEGATED)
    async with run_fake_nodes(shop.plane, tmp_path) as nodes:
        await shop.wait_wanted(0)
        assert not nodes.running
        sent = [f"message-{number}" for number in range(400)]
        await shop.send(*sent)

        await shop.wait_wanted(3)

        async def all_ready() -> bool:
            return await shop.condition("Ready") == ("True", Reason.ALL_READY)

        await shop.wait("three pods are ready", all_ready)
        await shop.wait_condition("True", Reason.DELEGATED)
        await shop.patch(CONFIG_MAP, "handler", {"data": {"go": ""}})
        await shop.wait_wanted(0)

        async def all_ended() -> bool:
            return not nodes.running

        await shop.wait("all pods have ended", all_ended)

        async def is_idle() -> bool:
            return await shop.condition("Ready") == ("True", Reason.IDLE)

        await shop.wait("the status shows that no consumer runs", is_idle)
    notes = [path.read_text().splitlines() for path in tmp_path.rglob("notes")]
    assert sorted(text for lines in notes for text in lines) == sorted(sent), "each exactly once"
    assert len(notes) > 1, "several pods took part"
    await shop.wait_condition("True", Reason.DELEGATED)


async def test_message_in_the_retry_topic_is_not_stranded_at_zero(
    shop: Shop, tmp_path: Path
) -> None:
    await shop.create(
        {"maxReplicas": 2, "cooldownSeconds": 1},
        handler="operators.pulsarconsumer.app.harness:fail_first_attempt",
        messageLog={"samplePercent": 100},
        retry={"strategy": "RetryTopic", "initialDelaySeconds": 8, "maxDelaySeconds": 8},
    )

    async def has_triggers() -> bool:
        found = await shop.find(SCALED_OBJECT)
        return bool(found) and len(found["spec"]["triggers"]) == 2

    await shop.wait("both topics have a trigger", has_triggers)
    await shop.wait_condition("True", Reason.DELEGATED)
    await shop.wait_wanted(0)
    await shop.send("later")
    async with run_fake_nodes(shop.plane, tmp_path) as nodes:

        async def is_handled() -> bool:
            return nodes.payloads == ["later", "later"]

        await shop.wait("the message is handled in its second attempt", is_handled)
        await shop.wait_wanted(0)


async def test_scaling_is_not_active_while_keda_is_stopped(lab: Lab, shop: Shop) -> None:
    await shop.create({"maxReplicas": 2})
    await shop.wait_condition("True", Reason.DELEGATED)
    await shop.wait_wanted(0)
    lab.keda.stop_operator()
    try:
        await shop.send("one", "two")
        await shop.wait_condition("Unknown", Reason.ENGINE_SILENT)
        assert await shop.wanted() == 0
    finally:
        lab.keda.start_operator()

    await shop.wait_wanted(1)
    await shop.wait_condition("True", Reason.DELEGATED)


async def test_scaling_is_not_active_while_the_metrics_server_is_stopped(
    lab: Lab, shop: Shop
) -> None:
    await shop.create({"maxReplicas": 2, "targets": {"backlogPerReplica": 1}})
    await shop.wait_condition("True", Reason.DELEGATED)
    await shop.send("one", "two", "three")
    await shop.wait_wanted(2)
    lab.keda.stop_adapter()
    try:
        await shop.wait_condition("False", Reason.ENGINE_FAILING)
        assert (await shop.message()).startswith("ScaledObject HPAActive: ")
    finally:
        lab.keda.start_adapter()

    await shop.wait_condition("True", Reason.DELEGATED)


class BrokenBroker:
    """An admin API that refuses all requests."""

    def __init__(self) -> None:
        """Listen on a free port."""
        self.polls = 0
        """Requests of KEDA."""
        broken = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                # KEDA names itself as the Go library does.
                broken.polls += self.headers.get("User-Agent", "").startswith("Go-http-client")
                self.send_error(503)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"


@pytest.mark.parametrize(
    ("fallback", "reason"),
    [({"replicas": 1}, Reason.FALLBACK), ({"replicas": 0}, Reason.ENGINE_FAILING)],
)
async def test_consumers_are_kept_while_keda_cannot_read_the_backlog(
    lab: Lab, shop: Shop, fallback: Manifest, reason: Reason
) -> None:
    scaling = {
        "maxReplicas": 2,
        # Not 0: KEDA may take a change of the ScaledObject for a poll without messages.
        "cooldownSeconds": 5,
        "targets": {"backlogPerReplica": 1},
        "fallback": {**fallback, "failureThreshold": 2},
    }
    await shop.create(scaling)
    await shop.wait_condition("True", Reason.DELEGATED)
    await shop.send("one", "two", "three")
    await shop.wait_wanted(2)

    with BrokenBroker() as broken:
        await shop.patch(PULSAR_CONSUMER, ORDERS.name, {"spec": {"adminAddress": broken.url}})

        async def has_failed() -> bool:
            return broken.polls >= 20

        await shop.wait("KEDA has failed for longer than the cooldown", has_failed)
        await shop.wait_condition("False", reason)
        assert await shop.wanted() == 2
        right = lab.broker.admin_url
        await shop.patch(PULSAR_CONSUMER, ORDERS.name, {"spec": {"adminAddress": right}})

    await shop.wait_condition("True", Reason.DELEGATED)
    assert await shop.wanted() == 2


async def test_scaling_is_not_active_with_wrong_credentials(lab: Lab, shop: Shop) -> None:
    fallback = {"replicas": 1, "failureThreshold": 1}
    await shop.create({"maxReplicas": 2, "fallback": fallback}, token=lab.broker.token(seconds=-60))
    await shop.wait_condition("False", Reason.FALLBACK)
    assert (await shop.condition("AuthenticationValid"))[0] == "False"

    data = build_secret(lab.broker.token())["data"]
    await shop.patch(SECRET, "login", {"data": data})

    await shop.wait_condition("True", Reason.DELEGATED)
    await shop.wait_wanted(0)


async def test_keda_and_the_operator_do_not_undo_each_other(shop: Shop) -> None:
    """KEDA adds a label, a finalizer and fields to the objects of the operator."""
    await shop.create({"maxReplicas": 2})
    await shop.wait_condition("True", Reason.DELEGATED)
    await shop.wait_wanted(0)
    kinds = (PULSAR_CONSUMER, SCALED_OBJECT, TRIGGER_AUTHENTICATION, DEPLOYMENT)

    async def read() -> list[str]:
        found = [await shop.find(kind) for kind in kinds]
        found.append(await shop.find(HORIZONTAL_POD_AUTOSCALER, AUTOSCALER))
        return [each["metadata"]["resourceVersion"] for each in found if each]

    async def is_quiet() -> bool:
        before = await read()
        await asyncio.sleep(5)  # Five polls of each.
        return len(before) == len(kinds) + 1 and await read() == before

    await shop.wait("nobody writes for five polls", is_quiet)


def build_secret(token: str) -> Manifest:
    """Build the Secret of the login."""
    data = {"token": base64.b64encode(token.encode()).decode()}
    return build_object(SECRET, "login", ORDERS.namespace, data=data)
