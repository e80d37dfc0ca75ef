"""All operators with a CPU quota of 0.05 core each, next to a controller in Go with the same quota.

They start within the startup probe of their charts, keep their Lease, reconcile, and end in order.
The controller in Go is kube-controller-manager with only its ReplicaSet controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

import pytest
import structlog

from libs.common.client import Client
from libs.common.errors import AlreadyExists, NotFound
from libs.common.kinds import LEASE, POD, REPLICA_SET, Key, Kind, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane, find_assets
from libs.common.testing.ports import find_free_port
from operators.podset.controller import PODSET
from tests.namespaces.plane import create_namespace, install_crds, install_rights, run_plane
from tests.overload.kubelet import Kubelet, read_probes
from tests.overload.quota import limit_cpu, start_in
from tools.generate.sources import ROOT, find_operators

log = structlog.get_logger(__name__)

CORES = 0.05
OPERATORS = tuple(find_operators(ROOT))
PEER = "kube-controller-manager"
OBJECTS = 20
LEAD_SECONDS = 180.0
"""Time for a process to acquire its Lease; with a whole core, it takes about two seconds."""
WATCHED_SECONDS = 45.0
"""Time for which the processes are watched after they lead: three times the duration of a Lease."""
GRACE_SECONDS = 60.0
"""`terminationGracePeriodSeconds` of the charts."""


@dataclass(slots=True)
class Running:
    """A process with a CPU quota, and the kubelet that probes it.

    Attributes:
        name: Name of the process and of its Lease.
        namespace: Namespace of the Lease.
        process: The process.
        log: File with its output.
        kubelet: The kubelet.
        leads: Seconds until it held the Lease.
        reconciled: Seconds in which it reconciled all new objects; None if it got none.
    """

    name: str
    namespace: str
    process: Popen[bytes]
    log: Path
    kubelet: Kubelet
    leads: float = 0.0
    reconciled: float | None = None

    def read_log(self) -> str:
        """Return what it logged."""
        return self.log.read_text(errors="replace")


@dataclass(slots=True)
class Stage:
    """A control plane, and the processes that run on it."""

    plane: ControlPlane
    admin: Client
    folder: Path
    groups: contextlib.ExitStack
    running: list[Running] = field(default_factory=list)

    async def start_operator(self, name: str) -> Running:
        """Install the permissions of an operator, and start it."""
        with contextlib.suppress(AlreadyExists):  # Another test used it.
            await create_namespace(self.admin, name)
        config = await install_rights(
            self.plane, self.admin, name, {"watch": {"clusterWide": True}}, name
        )
        account = self.folder / name
        account.mkdir()
        token = (await config.authorization()).removeprefix("Bearer ")
        for file, text in (
            ("token", token),
            ("ca.crt", Path(config.ca_file).read_text()),
            ("namespace", name),
        ):
            (account / file).write_text(text)
        port = find_free_port()
        flags = {
            "watch-namespaces": "*",
            "health-probe-bind-address": f"127.0.0.1:{port}",
            "metrics-bind-address": "0",
        }
        module = f"operators.{name}.controller"
        host, _, api_port = config.server.removeprefix("https://").partition(":")
        return self._start(
            name,
            name,
            [sys.executable, "-m", "tests.overload.process", str(account), module]
            + [f"--{flag}={value}" for flag, value in flags.items()],
            Kubelet(read_probes(name), f"http://127.0.0.1:{port}"),
            KUBERNETES_SERVICE_HOST=host,
            KUBERNETES_SERVICE_PORT=api_port,
        )

    def start_peer(self) -> Running:
        """Start the controller in Go, with the timing of its Lease that operators have."""
        port = find_free_port()
        probes = read_probes(OPERATORS[0])
        return self._start(
            PEER,
            "kube-system",
            [
                str(find_assets() / PEER),
                f"--kubeconfig={self.plane.write_kubeconfig(self.folder / 'peer')}",
                "--controllers=replicaset-controller",
                "--leader-elect=true",
                f"--secure-port={port}",
                f"--cert-dir={self.folder / 'peer-certificates'}",
            ],
            Kubelet(probes, f"https://127.0.0.1:{port}", {"readinessProbe": "/healthz"}),
        )

    def _start(
        self,
        name: str,
        namespace: str,
        command: Sequence[str],
        kubelet: Kubelet,
        **environment: str,
    ) -> Running:
        group = self.groups.enter_context(limit_cpu(CORES))
        log = self.folder / f"{name}.log"
        running = Running(
            name, namespace, start_in(group, command, log, **environment), log, kubelet
        )
        self.running.append(running)
        return running

    async def read_lease(self, running: Running) -> Manifest:
        """Return the spec of the Lease of a process; empty if it does not exist."""
        with contextlib.suppress(NotFound):
            found = await self.admin.get(LEASE, Key(running.namespace, running.name))
            return dict(found["spec"])
        return {}

    def end(self) -> None:
        """End all processes, and remove their control groups."""
        for each in self.running:
            each.process.kill()
            each.process.wait()
        self.groups.close()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with run_plane() as running:
        yield running


@pytest.fixture
async def stage(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Stage]:
    async with Client(plane.config, max_in_flight=64) as admin:
        await install_crds(admin, OPERATORS)
        made = Stage(plane, admin, tmp_path, contextlib.ExitStack())
        try:
            yield made
        finally:
            made.end()


async def wait_until(running: Running, is_true: Callable[[], bool], seconds: float) -> float:
    """Wait until something is true while a process runs, and return how long that took."""
    begun = time.monotonic()
    while not is_true():
        assert running.process.poll() is None, running.read_log()[-3000:]
        assert time.monotonic() - begun < seconds, running.read_log()[-3000:]
        await asyncio.sleep(0.1)
    return time.monotonic() - begun


async def wait_leading(stage: Stage, running: Running) -> None:
    """Wait until a process holds its Lease."""
    while not (await stage.read_lease(running)).get("holderIdentity"):
        assert running.process.poll() is None, running.read_log()[-3000:]
        assert running.kubelet.elapsed < LEAD_SECONDS, running.read_log()[-3000:]
        await asyncio.sleep(0.2)
    running.leads = running.kubelet.elapsed


async def measure_reconciles(stage: Stage, running: Running, kind: Kind) -> None:
    """Create objects of one pod each, and wait for their pods."""
    namespace = f"work-{kind.kind.lower()}"
    await create_namespace(stage.admin, namespace)
    labels = {"app": "work"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.com/work:1"}]},
    }
    spec: Manifest = {"replicas": 1, "template": template}
    if kind == REPLICA_SET:
        spec["selector"] = {"matchLabels": labels}
    begun = time.monotonic()
    for number in range(OBJECTS):
        await stage.admin.create(kind, build_object(kind, f"work-{number}", namespace, spec=spec))

    count = 0
    while count < OBJECTS:
        assert time.monotonic() - begun < LEAD_SECONDS, running.read_log()[-3000:]
        await asyncio.sleep(0.1)
        count = len((await stage.admin.list(POD, namespace, metadata_only=True)).items)
    running.reconciled = time.monotonic() - begun


async def test_all_operators_stay_up_with_a_twentieth_of_a_core(stage: Stage) -> None:
    for name in OPERATORS:
        await stage.start_operator(name)
    peer = stage.start_peer()
    kubelets = [asyncio.create_task(each.kubelet.run()) for each in stage.running]
    await asyncio.gather(*(wait_leading(stage, each) for each in stage.running))
    begun = time.monotonic()
    podset = next(each for each in stage.running if each.name == "podset")
    await asyncio.gather(
        measure_reconciles(stage, podset, PODSET), measure_reconciles(stage, peer, REPLICA_SET)
    )
    await asyncio.sleep(max(0.0, WATCHED_SECONDS - (time.monotonic() - begun)))

    for each in stage.running:
        kubelet = each.kubelet
        figures = {
            "started": kubelet.started,
            "leads": each.leads,
            "ready": kubelet.ready,
            "slowest_probe": kubelet.slowest,
            "reconciled": each.reconciled,
        }
        shown = {name: round(value, 2) for name, value in figures.items() if value is not None}
        log.info("Measured", process=each.name, kills=kubelet.kills, **shown)
    for each in stage.running:
        if each is peer:
            continue
        assert each.process.poll() is None, each.read_log()[-3000:]
        assert not each.kubelet.kills, (each.name, each.kubelet.kills, each.read_log()[-3000:])
        assert each.kubelet.ready is not None, each.name
        lease = await stage.read_lease(each)
        assert lease["leaseTransitions"] == 0, (each.name, lease)

    for task in kubelets:
        task.cancel()
    await asyncio.gather(*kubelets, return_exceptions=True)
    for each in stage.running:
        each.process.send_signal(signal.SIGTERM)
    for each in stage.running:
        if each is not peer:
            status = await asyncio.to_thread(each.process.wait, GRACE_SECONDS)
            assert (status, "Stopped operator" in each.read_log()) == (0, True), each.read_log()


async def test_signal_during_the_slow_start_is_honoured(stage: Stage) -> None:
    running = await stage.start_operator("podset")
    mask = 1 << (signal.SIGTERM - 1)
    status = Path(f"/proc/{running.process.pid}/status")

    def handles_signals() -> bool:
        line = next(line for line in status.read_text().splitlines() if "SigCgt" in line)
        return bool(int(line.split()[1], 16) & mask) and b"process" in read_command()

    def read_command() -> bytes:
        return Path(f"/proc/{running.process.pid}/cmdline").read_bytes()

    await wait_until(running, handles_signals, LEAD_SECONDS)
    running.process.send_signal(signal.SIGTERM)

    assert await asyncio.to_thread(running.process.wait, GRACE_SECONDS) == 0
    assert json.loads(running.read_log())["event"] == "Stopped before start-up was complete"
    assert not (await stage.read_lease(running)).get("holderIdentity")
