"""The process that runs the demo: `python -m tools.demo.embedded.host --help`.

It runs the API server and the nodes itself and the operators as processes, and ends when it gets
SIGTERM, when an operator exits, or when whoever started it is gone: then its standard input ends. A
line `detach` on it means that the demo should go on alone. A guard ends what is left of the process
group if this process is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import AlreadyExists
from libs.common.kinds import CRD, DEPLOYMENT, NAMESPACE, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.nodes import Nodes
from libs.common.testing.ports import find_free_port
from libs.common.testing.serving import kinds_of
from tools.cluster.demo_state import CONTEXT, State
from tools.dev.operators import ROOT, environment_prefix, list_operators

NAMESPACE_OF_OPERATORS: Final = "slipway-system"
PORT: Final = 18001
_HISTORY: Final = 2_000
"""Changes and requests that the API server remembers."""
_SPEED: Final = 10.0
"""Speed of simulated machines."""
_STOP_SECONDS: Final = 15.0
_SERVED_SECONDS: Final = 60.0
_GUARD: Final = """
trap '' INT HUP
read -r _
kill -TERM -"$1" 2>/dev/null || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 -"$1" 2>/dev/null || exit 0; done
kill -KILL -"$1" 2>/dev/null
"""
"""Ends a process group when its standard input ends: the one end of it that the host holds."""


async def run(options: argparse.Namespace, state: State) -> int:
    """Run the demo until it should end; returns the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    leash = asyncio.create_task(_wait_for_end_of_input())
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(_serve(options, state))
        settings: dict[str, str] = {}
        if options.cloud:
            settings = await stack.enter_async_context(_simulate_machines(config))
        async with Client(config.connection, user_agent=CONTEXT) as client:
            for operator in options.operators:
                await _announce(client, operator)
        processes = stack.enter_context(_run_operators(options.operators, state, settings))
        state.ready.write_text(config.name)
        while not stop.is_set() and not leash.done():
            for operator, process in processes.items():
                if process.poll() is not None:
                    log = state.log(operator)
                    print(f"{operator} exited with {process.returncode}; log: {log}", flush=True)
                    return 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await stop.wait()
    return 0


class _Server:
    """An API server.

    Attributes:
        connection: Connection with all rights.
        name: What it is, for the user.
        fake: The built-in one; None for a real one.
    """

    def __init__(self, connection: ConnectionConfig, name: str, fake: FakeApi | None) -> None:
        self.connection, self.name, self.fake = connection, name, fake


@asynccontextmanager
async def _serve(options: argparse.Namespace, state: State) -> AsyncIterator[_Server]:
    """Run the API server with all CRDs and simulated nodes."""
    backend = _serve_real if options.assets else _serve_fake
    async with backend(options, state) as server:
        async with Client(server.connection, user_agent=CONTEXT) as client:
            await _apply_crds(client)
        async with Nodes(server.connection, controllers=server.fake is not None):
            yield server


@asynccontextmanager
async def _serve_fake(options: argparse.Namespace, state: State) -> AsyncIterator[_Server]:
    api = FakeApi(
        token=secrets.token_urlsafe(24),
        secure=True,
        port=_pick_port(options.port),
        history=_HISTORY,
        remember=_HISTORY,
        require_namespaces=True,
    )
    async with api:
        await api.kubeconfig(state.kubeconfig, CONTEXT)
        yield _Server(api.config, f"built-in API server at {api.url}", api)


@asynccontextmanager
async def _serve_real(options: argparse.Namespace, state: State) -> AsyncIterator[_Server]:
    plane = await asyncio.to_thread(ControlPlane, Path(options.assets))
    try:
        await asyncio.to_thread(plane.start)
        plane.start_controller_manager("--controllers=*,-nodeipam,-nodelifecycle")
        plane.write_kubeconfig(state.kubeconfig)
        yield _Server(plane.config, f"kube-apiserver at {plane.url}", None)
    finally:
        await asyncio.to_thread(plane.stop)


def _pick_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return find_free_port()
    return wanted


async def _apply_crds(client: Client) -> None:
    crds: list[Manifest] = []
    for operator in list_operators():
        for path in sorted((ROOT / "helm" / operator / "files" / "crds").glob("*.yaml")):
            crds.extend(each for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each)
    for crd in crds:
        await client.create(CRD, crd)
    async with asyncio.timeout(_SERVED_SECONDS):
        for kind in (kind for crd in crds for kind in kinds_of(crd)):
            while not await client.serves(kind):
                await asyncio.sleep(0.1)


@asynccontextmanager
async def _simulate_machines(server: _Server) -> AsyncIterator[dict[str, str]]:
    """Simulate KubeVirt on the built-in API server; yields the settings that operators need."""
    from lab.kubevirt_sim.attach import attach
    from lab.kubevirt_sim.guests import GuestClusters
    from lab.kubevirt_sim.simulator import KubeVirtSim
    from lab.kubevirt_sim.timing import Timing

    assert server.fake is not None, "demo cloud runs on the built-in API server"
    options: dict[str, Any] = {"speed": _SPEED, "load_balancer": "MetalLB"}
    async with KubeVirtSim(server.connection, timing=Timing(), **options) as sim:
        attach(sim, server.fake)
        async with GuestClusters(sim.client, sim.list_instances, "127.0.0.1", 0) as guests:
            yield {
                "CLUSTERS_API_URL": f"https://127.0.0.1:{guests.port}",
                "CLUSTERS_API_POLL_SECONDS": "3",
            }


async def _announce(client: Client, operator: str) -> None:
    """Create the Deployment by which tools find an operator; its pod is simulated."""
    labels = {
        "app.kubernetes.io/name": operator,
        "app.kubernetes.io/instance": operator,
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": "slipway",
    }
    container = {
        "name": "operator",
        "image": f"slipway/{operator}:process-of-this-machine",
        "env": [
            {"name": f"{environment_prefix(operator)}WATCH_NAMESPACES", "value": "*"},
            {"name": f"{environment_prefix(operator)}LEADER_ELECT", "value": "false"},
        ],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"app.kubernetes.io/name": operator}}
    spec = {"replicas": 1, "selector": selector, "template": template}
    with contextlib.suppress(AlreadyExists):
        await client.create(NAMESPACE, build_object(NAMESPACE, NAMESPACE_OF_OPERATORS))
    manifest = build_object(
        DEPLOYMENT, operator, NAMESPACE_OF_OPERATORS, metadata={"labels": labels}, spec=spec
    )
    await client.create(DEPLOYMENT, manifest)


@contextlib.contextmanager
def _run_operators(operators: Sequence[str], state: State, settings: Mapping[str, str]) -> Any:
    """Run operators as processes of this group; yields them by name."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for operator in operators:
            with state.log(operator).open("ab") as log:
                processes[operator] = subprocess.Popen(
                    [sys.executable, "-m", f"operators.{operator}"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=state.folder,
                    env={**os.environ, **_build_environment(operator, state), **settings},
                )
        yield processes
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _build_environment(operator: str, state: State) -> dict[str, str]:
    settings = {
        "LOG_FORMAT": "console",
        "LEADER_ELECT": "false",
        "WATCH_NAMESPACES": "*",
        "METRICS_BIND_ADDRESS": "0",
        "HEALTH_PROBE_BIND_ADDRESS": "0",
        "KUBECONFIG": str(state.kubeconfig),
    }
    prefix = environment_prefix(operator)
    named = {f"{prefix}{name}": value for name, value in settings.items()}
    return {"PYTHONPATH": str(ROOT), "POD_NAMESPACE": NAMESPACE_OF_OPERATORS, **named}


async def _wait_for_end_of_input() -> None:
    """Return when standard input ends, unless a line came before that says `detach`."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    if (await reader.readline()).strip() == b"detach":
        await loop.create_future()


@contextlib.contextmanager
def _guard() -> Any:
    """Let a shell end this process group if this process dies without doing so itself."""
    command = ["sh", "-c", _GUARD, "guard", str(os.getpgrp())]
    quiet = subprocess.DEVNULL
    guard = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        yield
    finally:
        guard.kill()
        guard.wait()


def main(argv: Sequence[str]) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools.demo.embedded.host", description=__doc__)
    parser.add_argument("folder", type=Path, help="directory for kubeconfig, logs and state")
    parser.add_argument("operators", nargs="+", help="operators to run")
    parser.add_argument("--port", type=int, default=PORT, help="port of the built-in API server")
    parser.add_argument("--assets", default="", help="directory of a real control plane")
    parser.add_argument("--cloud", action="store_true", help="simulate machines")
    options = parser.parse_args(argv)
    state = State(options.folder)
    with state.claim(), _guard():
        try:
            return asyncio.run(run(options, state))
        finally:
            state.kubeconfig.unlink(missing_ok=True)
            state.ready.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
