"""A fake of the nodes of a cluster: it runs the pods of a Deployment as processes.

Each process is the real app, with the environment that the operator rendered.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import NotFound
from libs.common.kinds import CONFIG_MAP, DEPLOYMENT, SECRET, Key, Kind, Manifest
from operators.pulsarconsumer.app.harness import AppProcess

ORDERS = Key("default", "orders")
"""The Deployment whose pods run."""


class Nodes:
    """Fake nodes that run the pods of the Deployment as processes."""

    def __init__(self, client: Client, folder: Path) -> None:
        """Start without processes."""
        self._client = client
        self._folder = folder
        self.running: list[AppProcess] = []
        self.ended: list[AppProcess] = []
        self.service_account_token = ""
        """Content of the service account tokens in volumes; may be changed, as a kubelet renews
        it."""
        self._environs: dict[AppProcess, dict[str, str]] = {}
        self._roots: dict[AppProcess, Path] = {}

    async def run(self) -> None:
        """Run one process for each pod that the Deployment should have."""
        while True:
            deployment = await self._find(DEPLOYMENT, ORDERS.name)
            if deployment:
                await self._keep(deployment)
            await asyncio.sleep(0.1)

    async def _keep(self, deployment: Manifest) -> None:
        wanted = deployment["spec"]["replicas"]
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        environ = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        for process in [each for each in self.running if self._environs[each] != environ]:
            await self._end(process)
        while len(self.running) < wanted:
            root = self._folder / f"pod-{len(self.running) + len(self.ended)}"
            await self._mount(pod, root)
            paths = [each["mountPath"] for each in container["volumeMounts"]]
            own = {name: _move(value, paths, root) for name, value in environ.items()}
            process = AppProcess(own, self._folder)
            self._environs[process], self._roots[process] = environ, root
            self.running.append(process)
        while len(self.running) > wanted:
            await self._end(self.running[-1])
        for process in self.running:
            await self._mount(pod, self._roots[process])
        ready = [await asyncio.to_thread(process.get, "/readyz") for process in self.running]
        shown = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(self.running),
            "updatedReplicas": len(self.running),
            "readyReplicas": sum(code == 200 for code, _ in ready),
        }
        status = deployment.get("status") or {}
        # A real API server omits zeros.
        if {name: status.get(name, 0) for name in shown} != shown:
            # The Deployment may have been deleted in the meantime.
            with suppress(NotFound):
                await self._client.patch(
                    DEPLOYMENT, ORDERS, {"status": shown}, subresource="status"
                )

    async def _find(self, kind: Kind, name: str) -> Manifest:
        """Read an object of the namespace; empty if there is none."""
        try:
            return await self._client.get(kind, Key(ORDERS.namespace, name))
        except NotFound:
            return {}

    async def _mount(self, pod: Manifest, root: Path) -> None:
        """Write the changed files of the volumes of a pod."""
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in container["volumeMounts"]:
            folder = root / mount["mountPath"].lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            files = await self._read_files(volumes[mount["name"]])
            if files:
                _replace_files(folder, files)

    async def _read_files(self, volume: Manifest) -> dict[str, str]:
        files: dict[str, str] = {}
        if "secret" in volume:
            held = await self._find(SECRET, volume["secret"]["secretName"])
            data = held.get("data") or {}
            for item in volume["secret"]["items"]:
                if item["key"] in data:
                    files[item["path"]] = base64.b64decode(data[item["key"]]).decode()
        if "configMap" in volume:
            mounted = await self._find(CONFIG_MAP, volume["configMap"]["name"])
            files |= mounted.get("data") or {}
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                files[source["serviceAccountToken"]["path"]] = self.service_account_token
        return files

    async def _end(self, process: AppProcess) -> None:
        self.running.remove(process)
        self.ended.append(process)
        # A process that is terminated before it consumes has nothing to drain.
        status = await asyncio.to_thread(process.terminate)
        assert status in (0, -signal.SIGTERM), f"exit status {status}: {process.errors}"

    @property
    def payloads(self) -> list[str]:
        """Payloads of all messages that were logged."""
        return [each for process in (*self.running, *self.ended) for each in process.payloads]

    def end(self) -> None:
        """Kill the processes that still run."""
        for process in (*self.running, *self.ended):
            if process.process.poll() is None:
                process.kill()


def _move(value: str, paths: list[str], root: Path) -> str:
    """Return the path on this machine for a path in a volume; return other values unchanged."""
    if any(f"{value}/".startswith(f"{path}/") for path in paths):
        return f"{root}{value}"
    return value


def _replace_files(folder: Path, files: dict[str, str]) -> None:
    """Replace all files of a volume with one rename, as a kubelet does."""
    current = folder / "..data"
    held = {path.name: path.read_text() for path in current.iterdir()} if current.exists() else {}
    if held == files:
        return
    fresh = Path(tempfile.mkdtemp(dir=folder, prefix="..version-"))
    for name, text in files.items():
        (fresh / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path(current.name) / name)
    link = folder / "..data_tmp"
    link.symlink_to(fresh.name)
    link.replace(current)


class Api(Protocol):
    """An API server, fake or real."""

    @property
    def config(self) -> ConnectionConfig:
        """Connection with all rights."""


@asynccontextmanager
async def run_fake_nodes(api: Api, folder: Path) -> AsyncIterator[Nodes]:
    """Run the fake nodes for the duration of a block."""
    async with Client(api.config, user_agent="fake-nodes") as client:
        nodes = Nodes(client, folder)
        task = asyncio.create_task(nodes.run())
        try:
            yield nodes
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            nodes.end()
