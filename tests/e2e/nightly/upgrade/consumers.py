"""Users of consumers: messages are sent all the time, and none may be lost."""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path
from typing import Final

from libs.common.kinds import DEPLOYMENT, POD, Kind, Manifest, build_object
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.naming import selector_labels
from tests.e2e.cluster import build_busybox, eventually
from tests.e2e.nightly.upgrade.users import FIRST, Place, Users
from tools.cluster.progress import open_progress
from tools.pulsar.cluster import deploy_to_kind

_REPLICAS: Final = 2
_APP: Final = "slipway/pulsarconsumer-app:dev"
_SEND: Final = inspect.cleandoc(f"""
    import itertools, time, pulsar
    producer = pulsar.Client("pulsar://pulsar:6650").create_producer("{FIRST}")
    for number in itertools.count():
        producer.send(str(number).encode())
        print(number, flush=True)
        time.sleep(0.05)
""")
"""Sends 20 numbers per second, and prints what the broker has stored."""


class ConsumerUsers(Users):
    """Two consumers of a topic.

    An upgrade replaces the pods, because the pod template of this release differs.
    """

    own_kinds = (PULSAR_CONSUMER,)
    kinds = (DEPLOYMENT,)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._logs = Logs(place, selector_labels(FIRST))
        self._revision = 0

    def build(self, name: str, replicas: int = 0) -> tuple[Kind, Manifest]:
        spec = {
            "serverAddress": "pulsar://pulsar:6650",
            "topic": name,
            "subscriptionName": "sub",
            "replicas": replicas,
        }
        return PULSAR_CONSUMER, build_object(PULSAR_CONSUMER, name, spec=spec)

    async def create(self) -> None:
        progress = open_progress("e2e-upgrade")
        await asyncio.to_thread(
            deploy_to_kind, self.place.kind_cluster, self.place.namespace, progress
        )
        await self.place.create(*self.build(FIRST, _REPLICAS))
        # The subscription must exist before the first message.
        await self.wait_ready()
        self._logs.start()
        spec = build_busybox("/app/bin/python", "-P", "-c", _SEND)
        spec["containers"][0]["image"] = _APP
        await self.place.create(POD, build_object(POD, "producer", spec=spec))
        await self.place.wait_running("producer")

    async def wait_ready(self) -> None:
        await self.place.cluster.wait_ready(PULSAR_CONSUMER, self.place.key(FIRST))
        await self.place.cluster.wait_deployed(self.place.namespace, FIRST)

    async def check(self) -> None:
        self._revision += 1

        async def is_replaced_once() -> bool:
            return await self._read_revision() == self._revision

        await eventually(is_replaced_once, f"revision {self._revision} of the pods runs")
        await self.place.cluster.wait_deployed(self.place.namespace, FIRST)
        # The client logs as well.
        sent = {int(line) for line in await self.place.read_log("producer") if line.isdecimal()}
        received: list[int] = []

        async def is_received() -> bool:
            received[:] = self._logs.read()
            lost = sent.difference(received)
            assert not lost, f"{len(lost)} of {len(sent)}: {sorted(lost)[:20]}"
            return True

        await eventually(is_received, "all messages are handled")
        self._logs.assert_running()
        assert self._logs.fewest >= _REPLICAS, "consumers are replaced one after another"

    async def _read_revision(self) -> int:
        """Return the revision of the Deployment, which changes with its pod template."""
        held = await self.place.cluster.client.get(DEPLOYMENT, self.place.key(FIRST))
        return int(held["metadata"]["annotations"]["deployment.kubernetes.io/revision"])

    async def close(self) -> None:
        await self._logs.close()
        await super().close()


class Logs:
    """What the consumers have logged, even those whose pods no longer exist."""

    def __init__(self, place: Place, labels: dict[str, str]) -> None:
        self.fewest = _REPLICAS
        """The lowest number of consumers that were ready at a time."""
        self._place = place
        self._selector = ",".join(f"{name}={value}" for name, value in labels.items())
        self._folder = tempfile.TemporaryDirectory()
        self._followers: dict[str, Process] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the logs of the pods."""
        self._task = asyncio.create_task(self._follow_all())

    def assert_running(self) -> None:
        assert self._task is not None and not self._task.done(), "the logs are followed"

    def read(self) -> list[int]:
        """Return the payloads of all messages."""
        found: list[int] = []
        for path in Path(self._folder.name).iterdir():
            for line in path.read_text(errors="replace").splitlines():
                with suppress(ValueError):  # Not JSON, or cut off.
                    record = json.loads(line)
                    if "payload" in record:
                        found.append(int(record["payload"]))
        return found

    async def close(self) -> None:
        """End the processes that follow the logs."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for follower in self._followers.values():
            with suppress(ProcessLookupError):
                follower.kill()
            await follower.wait()
        self._folder.cleanup()

    async def _follow_all(self) -> None:
        client, namespace = self._place.cluster.client, self._place.namespace
        while True:
            pods = (await client.list(POD, namespace, label_selector=self._selector)).items
            ready = 0
            for pod in pods:
                for one in pod.get("status", {}).get("containerStatuses", ()):
                    ready += one["ready"]
                    if "waiting" not in one["state"]:
                        await self._follow(pod["metadata"]["name"])
            self.fewest = min(self.fewest, ready)
            await asyncio.sleep(0.5)

    async def _follow(self, pod: str) -> None:
        if pod in self._followers:
            return
        cluster = self._place.cluster
        command = [f"--kubeconfig={cluster.kubeconfig}", f"--namespace={self._place.namespace}"]
        with Path(self._folder.name, pod).open("wb") as output:
            self._followers[pod] = await asyncio.create_subprocess_exec(
                str(cluster.kubectl), *command, "logs", "--follow", pod, stdout=output
            )
