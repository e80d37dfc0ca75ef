"""Compare PodSet with the ReplicaSet controller."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from lab.bench.pods import (
    Candidate,
    PodCounter,
    ReplacementBenchmark,
    build_podset,
    build_replica_set,
    make_namespace,
    scale,
)
from lab.bench.processes import OperatorProcess, read_usage
from lab.bench.report import DEFAULT, OURS, UNLIMITED, Report, summarize
from libs.common.client import Client
from libs.common.kinds import POD, REPLICA_SET, Key, key_of
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from operators.podset.api.v1 import PodSet
from operators.podset.controller import PODSET
from tools.cluster.command_line import Parser

_MEMORY_PODS: Final = 10_000
_REST_SECONDS: Final = 10.0
_START_SECONDS: Final = 3.0
"""Time that a controller has from its start until it is measured."""


@dataclass(frozen=True, slots=True)
class BenchContext:
    """The objects that all candidates share.

    Attributes:
        client: The user.
        pods: Counts the pods.
        others: Process ids of those who share the machine: API server, etcd, this process.
        report: Gets the times.
        names: Numbers the namespaces.
    """

    client: Client
    pods: PodCounter
    others: tuple[int, ...]
    report: Report
    names: Iterator[int] = field(default_factory=itertools.count)

    async def make_namespace(self) -> str:
        """Make a namespace and return its name."""
        return await make_namespace(self.client, f"b{next(self.names)}")

    @asynccontextmanager
    async def timing(
        self, scenario: str, name: str, pid: int, namespace: str, pods: int
    ) -> AsyncIterator[None]:
        """Time a scenario, from the order that the block gives until there are so many pods."""
        row = self.report.row(scenario, name)
        before, before_others = _cpu(pid), _cpu(*self.others)
        started = time.monotonic()
        yield
        row.seconds.append(await self.pods.wait(namespace, pods) - started)
        row.cpu_seconds.append(_cpu(pid) - before)
        row.other_cpu_seconds.append(_cpu(*self.others) - before_others)


async def bench_scale(context: BenchContext, candidate: Candidate, replicas: int) -> None:
    """Time 0 to `replicas` pods and back to 0."""
    namespace = await context.make_namespace()
    key = Key(namespace, "web")
    await context.client.create(candidate.kind, candidate.build(namespace, "web", 0))
    await asyncio.sleep(0.5)
    for scenario, target in ((f"0 to {replicas}", replicas), (f"{replicas} to 0", 0)):
        async with context.timing(scenario, candidate.name, candidate.pid(), namespace, target):
            await scale(context.client, candidate, key, target)
        await asyncio.sleep(1.0)


def _cpu(*pids: int) -> float:
    return sum(read_usage(pid).cpu_seconds for pid in pids)


async def bench_replacements(
    context: BenchContext, candidates: Sequence[Candidate], count: int
) -> None:
    """Time how long dead pods take to be replaced in sets of 50, one death of each in turns."""
    sets: list[tuple[Candidate, str]] = []
    for candidate in candidates:
        namespace = await context.make_namespace()
        await context.client.create(candidate.kind, candidate.build(namespace, "web", 50))
        await context.pods.wait(namespace, 50)
        sets.append((candidate, namespace))
    await asyncio.sleep(1.0)
    async with AsyncExitStack() as stack:
        turns = [
            (
                candidate.name,
                await stack.enter_async_context(ReplacementBenchmark(context.client, namespace)),
            )
            for candidate, namespace in sets
        ]
        for _ in range(count):
            for name, victims in turns:
                wait = await victims.time_one()
                context.report.replacements.setdefault(name, []).append(wait)
                # A pause between deaths, so that each meets controllers at rest.
                await asyncio.sleep(0.02)
    for candidate, namespace in sets:
        await scale(context.client, candidate, Key(namespace, "web"), 0)
        await context.pods.wait(namespace, 0)


async def bench_rest(context: BenchContext, candidate: Candidate, pods: int) -> None:
    """Make many pods, measure the memory of who keeps them, and count the writes at rest."""
    client, report, namespace = context.client, context.report, await context.make_namespace()
    share = pods // 10
    for number in range(10):
        await client.create(candidate.kind, candidate.build(namespace, f"web-{number}", share))
    await context.pods.wait(namespace, pods)
    await asyncio.sleep(5.0)
    before = await _versions(client, candidate, namespace)
    await asyncio.sleep(_REST_SECONDS)
    after = await _versions(client, candidate, namespace)
    report.writes_at_rest[candidate.name] = len(set(after.items()) - set(before.items()))
    report.memory_mib[candidate.name] = read_usage(candidate.pid()).memory_mib
    for number in range(10):
        await scale(client, candidate, Key(namespace, f"web-{number}"), 0)
    await context.pods.wait(namespace, 0)


async def _versions(client: Client, candidate: Candidate, namespace: str) -> dict[str, str]:
    return {
        f"{kind} {key_of(item)}": item["metadata"]["resourceVersion"]
        for kind in (candidate.kind, POD)
        for item in (await client.list(kind, namespace, metadata_only=True)).items
    }


async def run(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> Report:
    """Run every measurement, the candidates taking turns."""
    others = (plane.pid("kube-apiserver"), plane.pid("etcd"), os.getpid())
    async with Client(plane.config, user_agent="bench") as client, aiohttp.ClientSession() as http:
        context = BenchContext(client, PodCounter(plane.etcd_url, http), others, Report())
        await serve(client, PodSet)
        for number in range(options.rounds):
            await _run_round(context, plane, folder, options, number)
        if not options.quick:
            for candidate, start in _candidates(plane, folder):
                if candidate.name == DEFAULT:
                    continue
                with start:
                    print(f"at rest: {candidate.name}: {_MEMORY_PODS} pods", flush=True)
                    await asyncio.sleep(_START_SECONDS)
                    await bench_rest(context, candidate, _MEMORY_PODS)
    return context.report


async def _run_round(
    context: BenchContext,
    plane: ControlPlane,
    folder: Path,
    options: argparse.Namespace,
    number: int,
) -> None:
    def tell(name: str, what: str) -> None:
        print(f"round {number + 1}: {name}: {what}", flush=True)

    for candidate, start in _candidates(plane, folder):
        if candidate.name == DEFAULT and number:
            continue  # Its limit is a constant, and one round of it takes minutes.
        with start:
            await asyncio.sleep(_START_SECONDS)
            for size in options.sizes:
                tell(candidate.name, f"{size} pods")
                await bench_scale(context, candidate, size)
            if candidate.name == DEFAULT:
                tell(candidate.name, "replacements")
                await bench_replacements(context, [candidate], options.replacements)
    rivals = [pair for pair in _candidates(plane, folder) if pair[0].name != DEFAULT]
    with ExitStack() as started:
        for _, start in rivals:
            started.enter_context(start)
        await asyncio.sleep(_START_SECONDS)
        tell(" and ".join(candidate.name for candidate, _ in rivals), "replacements in turns")
        await bench_replacements(
            context, [candidate for candidate, _ in rivals], options.replacements
        )


type Start = AbstractContextManager[object]


def _candidates(plane: ControlPlane, folder: Path) -> list[tuple[Candidate, Start]]:
    """Return who is measured, each started by entering its context and alone while it runs."""
    kubeconfig = plane.write_kubeconfig(folder / "podset.kubeconfig")
    ours = OperatorProcess("podset", kubeconfig, {"WATCH_NAMESPACES": "*"}, folder / "podset.log")
    candidates: list[tuple[Candidate, Start]] = [
        (Candidate(OURS, PODSET, build_podset, lambda: ours.pid), ours)
    ]
    unlimited = ("--kube-api-qps=2000", "--kube-api-burst=2000")
    for name, args in ((DEFAULT, ()), (UNLIMITED, unlimited)):
        peer = Candidate(
            name, REPLICA_SET, build_replica_set, lambda: plane.pid("kube-controller-manager")
        )
        candidates.append((peer, _controller_manager(plane, args)))
    return candidates


@contextmanager
def _controller_manager(plane: ControlPlane, args: Sequence[str]) -> Iterator[None]:
    plane.start_controller_manager("--controllers=replicaset-controller", *args)
    try:
        yield
    finally:
        plane.kill("kube-controller-manager")


def main() -> int:
    """Measure and print."""
    parser = Parser(prog="./dev bench podset", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[500, 2000], help="numbers of pods in a set"
    )
    parser.add_argument(
        "--replacements", type=int, default=100, help="pods deleted one by one in each round"
    )
    parser.add_argument(
        "--quick", action="store_true", help="skip the measurement with 10,000 pods"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ControlPlane() as plane:
        report = asyncio.run(run(plane, Path(folder), options))
        log = Path(folder) / "podset.log"
        print(log.read_text()[-2000:] if log.exists() else "", file=sys.stderr)
    print(summarize(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
