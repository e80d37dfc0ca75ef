"""A stand-in for the nodes of a cluster: it runs the pods of a Deployment as processes.

Each process is the real app, with the environment that the operator rendered.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from libs.common.kinds import DEPLOYMENT, Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from operators.pulsarconsumer.app.harness import AppProcess
from operators.pulsarconsumer.app.settings import PREFIX

ORDERS = Key("default", "orders")
"""The Deployment whose pods run."""


class Nodes:
    """Run the pods of the Deployment as processes."""

    def __init__(self, api: FakeApi, folder: Path) -> None:
        """Begin without processes."""
        self._api = api
        self._folder = folder
        self.running: list[AppProcess] = []
        self.ended: list[AppProcess] = []
        self._environs: dict[AppProcess, dict[str, str]] = {}

    async def run(self) -> None:
        """Keep as many processes as the Deployment should have pods."""
        while True:
            deployment = self._api.find(DEPLOYMENT, ORDERS)
            if deployment is not None:
                await self._keep(deployment)
            await asyncio.sleep(0.1)

    async def _keep(self, deployment: Manifest) -> None:
        wanted = deployment["spec"]["replicas"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        environ = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        for process in [each for each in self.running if self._environs[each] != environ]:
            await self._end(process)
        while len(self.running) < wanted:
            # The volume /tmp of each pod is its own.
            journal = self._folder / f"pod-{len(self.running) + len(self.ended)}"
            own = {**environ, f"{PREFIX}JOURNAL_FOLDER": str(journal)}
            process = AppProcess(own, self._folder)
            self._environs[process] = environ
            self.running.append(process)
        while len(self.running) > wanted:
            await self._end(self.running[-1])
        ready = [await asyncio.to_thread(process.get, "/readyz") for process in self.running]
        shown = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(self.running),
            "updatedReplicas": len(self.running),
            "readyReplicas": sum(code == 200 for code, _ in ready),
        }
        if deployment.get("status") != shown:
            self._api.patch_status(DEPLOYMENT, ORDERS, shown)

    async def _end(self, process: AppProcess) -> None:
        self.running.remove(process)
        self.ended.append(process)
        # One that is ended before it has begun to consume has nothing to drain.
        status = await asyncio.to_thread(process.terminate)
        assert status in (0, -signal.SIGTERM), f"exit status {status}: {process.errors}"

    @property
    def payloads(self) -> list[str]:
        """Payloads of all messages that were logged."""
        return [each for process in (*self.running, *self.ended) for each in process.payloads]

    def end(self) -> None:
        """Kill what still runs."""
        for process in (*self.running, *self.ended):
            if process.process.poll() is None:
                process.kill()


@asynccontextmanager
async def playing(api: FakeApi, folder: Path) -> AsyncIterator[Nodes]:
    """Play the kubelet for the length of a block."""
    nodes = Nodes(api, folder)
    task = asyncio.create_task(nodes.run())
    try:
        yield nodes
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        nodes.end()
