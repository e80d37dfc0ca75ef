"""Time Instances and their Operations in the simulator of KubeVirt.

Compute and ipam are separate processes with a real kube-apiserver; the simulator runs in this
process and acts without delay, so that only the time of the operators is measured.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import structlog
from rich.console import Console

from lab.bench.counters import count_writes, subtract
from lab.bench.pages import describe_load, describe_machine, save_report, write_page
from lab.bench.pods import make_namespace
from lab.bench.processes import OperatorProcess, percentile, read_cpu
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.client import Client
from libs.common.kinds import ENDPOINT_SLICE, Key, Kind, Manifest, key_of
from libs.common.reading import maps_at, text_at
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from libs.contracts.compute import FINAL_PHASES, INSTANCE, OPERATION
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from operators.compute.api import RESOURCES as COMPUTE_RESOURCES
from operators.compute.samples import build_instance, build_operation, build_size
from operators.ipam.api import RESOURCES as IPAM_RESOURCES
from operators.ipam.samples import build_pool
from tools.cluster.command_line import Parser

_PATIENCE: Final = 600.0
_POLL: Final = 0.05
_AT_ONCE: Final = 32
_TYPES: Final = ("Reboot", "Rebuild", "Migrate")


@dataclass(slots=True)
class Report:
    """The measurements of a run.

    Attributes:
        load: Processes that wanted a core in the minute before.
        instances: How many were made together.
        seconds: Until all of them ran.
        cpu: CPU seconds of each process until then.
        writes: Number of writes of each verb and resource until then, also those of the simulator.
        operations: Seconds of each Operation, by type.
        handovers: Seconds from the move of a guest until the endpoints of its address followed.
    """

    load: float
    instances: int
    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    writes: dict[str, float] = field(default_factory=dict)
    operations: dict[str, list[float]] = field(default_factory=dict)
    handovers: list[float] = field(default_factory=list)


async def start_instances(client: Client, namespace: str, count: int) -> float:
    """Make Instances together; returns the seconds until all run."""
    names = iter([f"vm-{number}" for number in range(count)])

    async def make() -> None:
        for name in names:
            ports = [{"name": "ssh", "port": 22}]
            public = {"mode": "Auto", "poolName": "public", "ports": ports}
            await client.create(INSTANCE, build_instance(name, namespace, publicIP=public))

    started = time.monotonic()
    await asyncio.gather(*(make() for _ in range(_AT_ONCE)))
    await wait_for(client, INSTANCE, namespace, is_running, count)
    return time.monotonic() - started


async def wait_for(
    client: Client, kind: Kind, namespace: str, test: Callable[[Manifest], bool], count: int
) -> None:
    """Wait until so many objects pass a test.

    Raises:
        TimeoutError: They never did.
    """
    async with asyncio.timeout(_PATIENCE):
        while True:
            items = (await client.list(kind, namespace)).items
            if sum(map(test, items)) >= count:
                return
            # To list many takes time that the operators would have.
            await asyncio.sleep(_POLL * (1 + len(items) / 12))


def is_running(instance: Manifest) -> bool:
    """Return whether an Instance runs and its address is routed to it."""
    conditions = (instance.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def has_ended(operation: Manifest) -> bool:
    """Return whether an Operation has ended."""
    return text_at(operation, "status", "phase") in FINAL_PHASES


async def operate(client: Client, key: Key, type_: str, number: int) -> float:
    """Do one Operation to the end; returns its seconds.

    Raises:
        RuntimeError: It did not succeed.
    """
    name = f"{key.name}-{type_}-{number}".lower()
    started = time.monotonic()
    await client.create(OPERATION, build_operation(type_, name, key.name, key.namespace))
    while True:
        held = await client.get(OPERATION, Key(key.namespace, name))
        if has_ended(held):
            break
        await asyncio.sleep(0.01)
    if text_at(held, "status", "phase") != "Succeeded":
        raise RuntimeError(f"{type_} of {key}: {held['status'].get('message')}")
    return time.monotonic() - started


class Follower:
    """A watch of guests that move and of the endpoints of their addresses.

    Attributes:
        handovers: Seconds between the two.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        """Begin with nothing seen."""
        self.handovers: list[float] = []
        self._client = client
        self._namespace = namespace
        self._places: dict[str, tuple[str, str]] = {}
        self._moved: dict[str, tuple[str, float]] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        await asyncio.gather(self._follow(VIRTUAL_MACHINE_INSTANCE), self._follow(ENDPOINT_SLICE))

    async def _follow(self, kind: Kind) -> None:
        listing = await self._client.list(kind, self._namespace)
        for item in listing.items:
            self._note(kind, item)
        async for event in self._client.watch(
            kind, self._namespace, resource_version=listing.resource_version
        ):
            if event.type != "BOOKMARK":
                self._note(kind, event.object)

    def _note(self, kind: Kind, manifest: Manifest) -> None:
        name, now = key_of(manifest).name, time.monotonic()
        if kind == ENDPOINT_SLICE:
            self._note_endpoints(name.removesuffix("-public-ip-v4"), manifest, now)
            return
        interfaces = maps_at(manifest, "status", "interfaces")
        address = next((text_at(each, "ipAddress") for each in interfaces), "")
        node, (before, old) = text_at(manifest, "status", "nodeName"), self._places.get(
            name, ("", "")
        )
        if before and node and node != before:
            self._moved[name] = (old, now)
        self._places[name] = (node, address)

    def _note_endpoints(self, name: str, manifest: Manifest, now: float) -> None:
        """Note that traffic goes to another pod than before the move."""
        if name not in self._moved:
            return
        old, since = self._moved[name]
        addresses = {
            address
            for each in maps_at(manifest, "endpoints")
            for address in each.get("addresses") or ()
        }
        if addresses and old not in addresses:
            self.handovers.append(now - since)
            del self._moved[name]


async def run(plane: ControlPlane, folder: Path, instances: int, rounds: int) -> Report:
    """Measure everything, one after the other."""
    report, console = Report(os.getloadavg()[0], instances), Console()
    kubeconfig = plane.write_kubeconfig(folder / "kubeconfig")
    everywhere = {"WATCH_NAMESPACES": "*"}
    compute = OperatorProcess("compute", kubeconfig, everywhere, folder / "compute.log")
    ipam = OperatorProcess("ipam", kubeconfig, everywhere, folder / "ipam.log")
    async with (
        Client(plane.config, user_agent="bench") as client,
        KubeVirtSim(plane.config, load_balancer="MetalLB"),
    ):
        await serve(client, *IPAM_RESOURCES, *COMPUTE_RESOURCES)
        namespace = await make_namespace(client, "bench")
        await client.create(_kind_of(build_size()), build_size())
        pool = build_pool(addresses=["10.0.0.0/20"])
        await client.create(_kind_of(pool), pool)
        with compute, ipam:
            await asyncio.sleep(3.0)
            console.print(f"{instances} Instances")
            pids = {"compute": compute.pid, "ipam": ipam.pid, **plane.pids}
            pids["simulator and client"] = os.getpid()
            before, writes = read_cpu(pids), await count_writes(plane.config)
            report.seconds = await start_instances(client, namespace, instances)
            report.cpu = {name: used - before[name] for name, used in read_cpu(pids).items()}
            report.writes = subtract(await count_writes(plane.config), writes)
            follower = Follower(client, namespace)
            following = asyncio.create_task(follower.run())
            for number in range(rounds):
                for type_ in _TYPES:
                    console.print(f"{type_} {number + 1}")
                    key = Key(namespace, f"vm-{number % instances}")
                    seconds = await operate(client, key, type_, number)
                    report.operations.setdefault(type_, []).append(seconds)
            following.cancel()
            report.handovers = follower.handovers
    return report


def _kind_of(manifest: Manifest) -> Kind:
    group, _, version = manifest["apiVersion"].partition("/")
    plural = {"IPPool": "ippools", "InstanceSize": "instancesizes"}[manifest["kind"]]
    return Kind(group, version, manifest["kind"], plural, namespaced=False)


def render(report: Report) -> list[str]:
    """Render the table of a report."""
    lines = [
        f"{report.instances} Instances with an address each ran after {report.seconds:.1f} s.",
        "",
        "| for each Instance | |",
        "|---|---|",
        *(
            f"| CPU of {name} | {seconds * 1000 / report.instances:.0f} ms |"
            for name, seconds in report.cpu.items()
        ),
        *(
            f"| {name} | {number / report.instances:.1f} |"
            for name, number in sorted(report.writes.items())
            if number >= report.instances / 10
        ),
        "",
        "| what | times | p50 ms | p99 ms |",
        "|---|---|---|---|",
    ]
    rows = {**report.operations, "address follows a migrated guest": report.handovers}
    for name, times in rows.items():
        if times:
            p50, p99 = (percentile(times, share) * 1000 for share in (0.5, 0.99))
            lines.append(f"| {name} | {len(times)} | {p50:.0f} | {p99:.0f} |")
    return lines


def render_page(report: Report) -> list[str]:
    """Render the page of the benchmark."""
    return [
        "# Benchmark of compute",
        "",
        f"Measured by `./dev bench compute --instances {report.instances} --write`",
        f"on {describe_machine()}.",
        "KubeVirt is simulated without delays. The operators, the API server and the controllers",
        "of the simulator share the cores and cause all of the measured times.",
        "Writes include the writes of the simulator.",
        "",
        *describe_load(report.load),
        *render(report),
        "",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page when asked to."""
    parser = Parser(prog="./dev bench compute", description=__doc__)
    parser.add_argument(
        "--instances", type=int, default=500, help="number of Instances that exist at the same time"
    )
    parser.add_argument("--rounds", type=int, default=10, help="number of Operations of each type")
    parser.add_argument("--write", action="store_true", help="write the page of the benchmark")
    options = parser.parse_args(argv)
    # Each step of the simulator has a line, and lines cost time.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as name, ControlPlane() as plane:
        report = asyncio.run(run(plane, Path(name), options.instances, options.rounds))
    print("\n".join(render(report)))
    save_report("compute", asdict(report))
    if options.write:
        write_page("compute", render_page(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
