"""Measure what jmxexporter costs.

* The guard compared with the agent of the jmx_exporter project, each in its own JVM.
* The operator with 2,000 pods of which 5 match, on an API server without kubelets.
* With --fleet, on the kind cluster: the time from a pod's Ready to its first scrape.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.bench.jvm_costs import Cost, measure_cost, summarize_costs
from lab.bench.jvm_fleet import MIN_READY_SECONDS, open_fleet
from lab.bench.processes import OperatorProcess, percentile, read_usage
from libs.common.client import Client
from libs.common.kinds import CONFIG_MAP, POD, Key
from libs.common.testing.apiserver import ASSETS_VARIABLE, ControlPlane
from libs.common.testing.serving import serve
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.injector.messages import Agent
from operators.jmxexporter.samples import (
    build_config_map,
    build_exporter,
    build_pod,
    build_pod_status,
)
from tools.cluster.binaries import ensure_assets
from tools.cluster.command_line import Parser
from tools.cluster.progress import open_progress
from tools.jvm import ensure_kit

_SERVER: Final = "jdk.httpserver"
_PODS: Final = 2000
_MATCHING: Final = 5
_CHANGES: Final = 2000
_CONCURRENT: Final = 32
_NEW_PODS: Final = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = Parser(prog="./dev bench jmxexporter", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement")
    parser.add_argument(
        "--fleet", type=int, nargs="*", default=[], help="numbers of pods to start at the same time"
    )
    parser.add_argument("--only-fleet", action="store_true", help="measure only the fleet")
    options = parser.parse_args(argv)
    if not options.only_fleet:
        with tempfile.TemporaryDirectory(prefix="slipway-bench-") as folder:
            bench_costs(Path(folder), options.rounds)
            asyncio.run(bench_operator(Path(folder)))
    if options.fleet:
        asyncio.run(bench_fleet(options.fleet))
    return 0


def bench_costs(folder: Path, rounds: int) -> None:
    """Print what guard and upstream's agent cost a JVM."""
    kit = ensure_kit()
    costs: dict[tuple[str, Agent], list[Cost]] = {}
    # A runtime without the HTTP server is refused, and measured by nobody.
    whole = [path for path in (kit / "java").iterdir() if _SERVER in (path / "release").read_text()]
    runtimes = sorted(whole, key=lambda path: int(path.name))
    for number in range(rounds):
        for java in runtimes:
            for agent in Agent:
                place = folder / f"{java.name}-{agent}-{number}"
                cost = measure_cost(kit, java, agent, place)
                costs.setdefault((java.name, agent), []).append(cost)
    for (release, agent), found in costs.items():
        figures = "  ".join(f"{name} {value:.1f}" for name, value in summarize_costs(found).items())
        print(f"Java {release} {agent:8} {figures}")


async def bench_operator(folder: Path) -> None:
    """Print what the operator needs for many pods, few of which match."""
    os.environ.setdefault(ASSETS_VARIABLE, str(ensure_assets()))
    with ControlPlane() as plane:
        async with Client(plane.config, user_agent="bench") as client:
            await _fill(client)
            kubeconfig = plane.write_kubeconfig(folder / "kubeconfig")
            settings = {"WATCH_NAMESPACES": "default"}
            log = folder / "operator.log"
            with OperatorProcess("jmxexporter", kubeconfig, settings, log) as process:
                await _await_injectors(client)
                started = read_usage(process.pid)
                await _change_others(client)
                ended = read_usage(process.pid)
    cpu = (ended.cpu_seconds - started.cpu_seconds) / _CHANGES * 1e6
    print(
        f"operator: {_PODS} pods, {_MATCHING} match: {started.cpu_seconds:.1f} s CPU to the first"
        f" injectors, {ended.peak_mib:.0f} MiB; {cpu:.0f} us CPU for a change of another pod"
    )


async def bench_fleet(sizes: Sequence[int]) -> None:
    """Print how long pods on the kind cluster take to their first scrape."""
    async with open_fleet(open_progress("bench")) as fleet:
        waits = []
        for _ in range(_NEW_PODS):
            waits.append(await fleet.time_new_pod())
            await fleet.clear()
        print(
            f"a new pod: {min(waits):.1f} to {max(waits):.1f} s from Ready to the first scrape, of "
            f"which {MIN_READY_SECONDS} s are spec.minReadySeconds"
        )
        for size in sizes:
            waits = await fleet.time_running_pods(size)
            print(
                f"{size} running pods in one go: p50 {percentile(waits, 0.5):.1f} s, "
                f"p99 {percentile(waits, 0.99):.1f} s from the exporter to the first scrape"
            )
            await fleet.clear()


async def _fill(client: Client) -> None:
    await serve(client, PrometheusJmxExporter)
    await client.create(CONFIG_MAP, build_config_map())
    turns = asyncio.Semaphore(_CONCURRENT)

    async def add(number: int) -> None:
        labels = {"app": "shop" if number < _MATCHING else "other"}
        name = f"pod-{number}"
        async with turns:
            pod = build_pod(name, labels=labels)
            await client.create(POD, pod)
            status = {"status": build_pod_status(name, "app")}
            await client.patch(POD, Key("default", name), status, subresource="status")

    async with asyncio.TaskGroup() as group:
        for number in range(_PODS):
            group.create_task(add(number))
    async with asyncio.timeout(30):
        while True:
            found = await client.raw("GET", "/apis/banzaicloud.com")
            if found.get("versions"):
                break
    await client.create(PROMETHEUS_JMX_EXPORTER, build_exporter())


async def _await_injectors(client: Client) -> None:
    async with asyncio.timeout(120):
        while True:
            pods = await client.list(POD, "default", label_selector="app=shop")
            if all(pod["spec"].get("ephemeralContainers") for pod in pods.items):
                return
            await asyncio.sleep(0.2)


async def _change_others(client: Client) -> None:
    """Change pods that do not match, as kubelets do all the time, and let the operator see it."""
    for number in range(_CHANGES):
        name = f"pod-{_MATCHING + number % (_PODS - _MATCHING)}"
        labels = {"metadata": {"labels": {"turn": str(number)}}}
        await client.patch(POD, Key("default", name), labels)
    await asyncio.sleep(2.0)


if __name__ == "__main__":
    raise SystemExit(main())
