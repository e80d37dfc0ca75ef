"""A seek with a real broker: messages that were handled before are handled again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from libs.common.kinds import CONFIG_MAP, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.app.harness import Peer, new_topic
from operators.pulsarconsumer.fake_nodes import run_fake_nodes
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.shown import ORDERS, status
from operators.pulsarconsumer.testing.broker import Broker

HANDLER: Final = """
import os

def handle(message):
    with open(os.environ["NOTES"], "a") as file:
        file.write(message.data.decode() + "\\n")
    if message.data == b"bad":
        raise ValueError("bad")
"""
_SECONDS: Final = 60.0


async def test_dead_lettered_message_is_handled_again_after_a_seek(
    api: FakeApi, harness: OperatorHarness, pulsar_broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic()
    api.create(build_object(CONFIG_MAP, "handler", "default", data={"orders.py": HANDLER}))
    environ = {"PYTHONPATH": "/handlers", "NOTES": "/tmp/notes"}
    env = [{"name": name, "value": value} for name, value in environ.items()]
    mount = {"name": "handler", "mountPath": "/handlers", "readOnly": True}
    pod = {
        "containers": [{"name": "consumer", "env": env, "volumeMounts": [mount]}],
        "volumes": [{"name": "handler", "configMap": {"name": "handler"}}],
    }
    api.create(
        build_manifest(
            serverAddress=pulsar_broker.service_url,
            adminAddress=pulsar_broker.admin_url,
            topic=topic,
            subscriptionName="orders",
            replicas=1,
            handler="orders:handle",
            template={"spec": pod},
            retry={"maxAttempts": 1},
            deadLetter={},
            subscription={"create": "Operator"},
        )
    )
    peer = Peer(pulsar_broker.service_url)

    def notes() -> list[str]:
        return [line for path in tmp_path.rglob("notes") for line in path.read_text().splitlines()]

    def is_empty() -> bool:
        return status(api).get("readyReplicas") == 1 and not (
            status(api).get("backlog", {"entries": 1}).get("entries")
        )

    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(lambda: status(api).get("readyReplicas") == 1, timeout=_SECONDS)
        (before,) = nodes.running
        await asyncio.to_thread(peer.send, topic, [b"good", b"bad"])
        await asyncio.to_thread(peer.read, f"{topic}-orders-DLQ", 1)
        await harness.eventually(is_empty, timeout=_SECONDS)
        assert sorted(notes()) == ["bad", "good"]

        seek = {"id": "1", "position": "Earliest"}
        api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"subscription": {"seek": seek}}})

        await harness.eventually(
            lambda: sorted(notes()) == ["bad", "bad", "good", "good"], timeout=_SECONDS
        )
        assert status(api)["lastSeek"]["outcome"] == "Done"
        assert before in nodes.ended
    await asyncio.to_thread(peer.close)
