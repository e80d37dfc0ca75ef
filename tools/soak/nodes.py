"""Nodes: kill parts of the kind cluster while an operator works, and wait until all is well."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from libs.common.client import Client
from libs.common.conditions import is_true
from libs.common.config import load_config
from libs.common.errors import SlipwayError
from libs.common.kinds import POD, Key
from tools.cluster.kind_cluster import KindCluster, up
from tools.fuzz.subject import FuzzSubject

_WAIT: Final = 240.0
_POLL: Final = 1.0


def _exec(node: str, *command: str) -> None:
    subprocess.run(["docker", "exec", node, *command], check=False, capture_output=True)


def kill_kubelet(node: str) -> None:
    """Kill the kubelet; systemd starts it again."""
    _exec(node, "systemctl", "kill", "--signal=KILL", "kubelet")


def kill_apiserver(node: str) -> None:
    """Kill the API server; the kubelet starts it again."""
    _exec(node, "pkill", "-9", "-x", "kube-apiserver")


def restart_node(node: str) -> None:
    """Restart the container that is the node."""
    subprocess.run(["docker", "restart", "--time", "0", node], check=False, capture_output=True)


DEATHS: Final[dict[str, Callable[[str], None]]] = {
    "kubelet": kill_kubelet,
    "apiserver": kill_apiserver,
    "node": restart_node,
}
"""What dies, beside the pod of the operator."""


async def run_deaths(subject: FuzzSubject, namespace: str) -> list[str]:
    """Kill each part once while objects change; the operator must be installed in the namespace.

    Returns:
        What did not come right within its time, in words.
    """
    cluster = up()
    problems = []
    for number, death in enumerate(("pod", *DEATHS)):
        name = f"death-{number}"
        started = time.monotonic()
        await _write(cluster.kubeconfig, subject, Key(namespace, name))
        await _kill(cluster, subject.operator, namespace, death)
        if await _wait_ready(cluster.kubeconfig, subject, Key(namespace, name)):
            print(f"{death}: all well after {time.monotonic() - started:.0f} s", flush=True)
        else:
            problems.append(f"{death}: {name} is not ready after {_WAIT:.0f} s")
    return problems


async def _kill(cluster: KindCluster, operator: str, namespace: str, death: str) -> None:
    if death in DEATHS:
        await asyncio.to_thread(DEATHS[death], f"{cluster.name}-control-plane")
        return
    async with Client(await load_config(str(cluster.kubeconfig))) as client:
        selector = f"app.kubernetes.io/name={operator}"
        for pod in (await client.list(POD, namespace, label_selector=selector)).items:
            key = Key(namespace, pod["metadata"]["name"])
            await client.delete(POD, key, uid=pod["metadata"]["uid"], grace_seconds=0)


async def _write(kubeconfig: Path, subject: FuzzSubject, key: Key) -> None:
    async with Client(await load_config(str(kubeconfig))) as client:
        manifest = subject.build(key.name)
        manifest["metadata"] = {"name": key.name, "namespace": key.namespace}
        await client.create(subject.kind, manifest)


async def _wait_ready(kubeconfig: Path, subject: FuzzSubject, key: Key) -> bool:
    deadline = time.monotonic() + _WAIT
    while time.monotonic() < deadline:
        try:
            async with Client(await load_config(str(kubeconfig))) as client:
                if is_true(await client.get(subject.kind, key)):
                    return True
        except (SlipwayError, OSError):
            pass  # The API server is what was killed.
        await asyncio.sleep(_POLL)
    return False
