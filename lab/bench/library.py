"""Measure the library by itself.

* pods: podset's cache of pods as large as those on a node: cold start and a second list.
* peer: the same pods in a program with controller-runtime, only on request: its build is slow.
* primaries: the caches of an operator whose primaries are 4 KB each, from both event sources.
* rest: memory of a podset process with nothing to do, and of its parts.
* queue: the cost of raising the priority of a key while others wait.

Each measurement of memory runs in its own process, as does the API server.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Final

import orjson
from aiohttp import web

from lab.bench.library_peer import build_peer, measure_peer
from lab.bench.library_pods import build_pod
from lab.bench.library_rest import measure_parts, measure_rest
from lab.bench.pages import describe_load, describe_machine, save_report, write_page
from libs.common.kinds import Key
from libs.common.runtime.queue import PRIORITY_LIVE, PRIORITY_RESYNC, WorkQueue
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.widget import CONDITIONS, WIDGET, build_widget
from operators.podset.controller import PODSET
from tools.cluster.command_line import Parser

_FIGURES: Final = ("pods", "primaries", "rest", "queue")
_FURTHER: Final = ("peer",)
_PAGE: Final = 500
_PARTS: Final = 45
"""Parts of a Widget that make it 4 KB."""
_GOALS: Final = {
    "100,000 pods": "30 s, 400 MiB resident, peak 1.3 of that, lag p99 100 ms",
    "5,000 primaries, reflector": "5 s, lag 200 ms",
    "5,000 primaries, kopf": "5 s, lag 200 ms",
    "podset at rest": "50 MiB",
}


@dataclass(slots=True)
class Report:
    """Hold what a run measured.

    Attributes:
        load: Processes that wanted a core in the minute before.
        rows: Figures by name of the measurement.
        parts: Memory that the imports of a process at rest take, in MiB and in their order.
    """

    load: float
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)


def raise_keys(waiting: int) -> dict[str, float]:
    """Raise the priority of keys while others wait."""
    queue = WorkQueue()
    keys = [Key("default", f"object-{number}") for number in range(waiting)]
    for key in keys:
        queue.add(key, priority=PRIORITY_RESYNC)
    chosen = random.Random(0).sample(keys, min(2000, waiting))
    started = time.perf_counter()
    for key in chosen:
        queue.add(key, priority=PRIORITY_LIVE)
    return {"microseconds": (time.perf_counter() - started) / len(chosen) * 1e6}


def serve_pods(count: int, pipe: Connection) -> None:
    """Serve lists of pods, which are built as they are sent."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            return await stream_pods(request, count)
        start = int(request.query.get("continue") or 0)
        end = min(count, start + int(request.query.get("limit") or count))
        metadata = {"resourceVersion": "9999999"}
        if end < count:
            metadata["continue"] = str(end)
        items = [build_pod(number) for number in range(start, end)]
        body = orjson.dumps({"kind": "PodList", "metadata": metadata, "items": items})
        return web.Response(body=body, content_type="application/json")

    async def serve() -> None:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    asyncio.run(serve())


async def stream_pods(request: web.BaseRequest, count: int) -> web.StreamResponse:
    """Respond to a watch with all pods if the client asks for them, and then with nothing."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    kind = {"apiVersion": "v1", "kind": "Pod"}
    if request.query.get("sendInitialEvents") == "true":
        for start in range(0, count, _PAGE):
            pods = (build_pod(number) for number in range(start, min(count, start + _PAGE)))
            events = ({"type": "ADDED", "object": {**kind, **pod}} for pod in pods)
            await response.write(b"".join(orjson.dumps(each) + b"\n" for each in events))
        annotations = {"k8s.io/initial-events-end": "true"}
        metadata = {"resourceVersion": "9999999", "annotations": annotations}
        bookmark = {"type": "BOOKMARK", "object": {**kind, "metadata": metadata}}
        await response.write(orjson.dumps(bookmark) + b"\n")
    await asyncio.Event().wait()
    return response


def serve_widgets(count: int, pipe: Connection) -> None:
    """Serve the API of Widgets and of podset, with many Widgets."""
    parts = [{"name": f"part-{number}", "value": "x" * 40} for number in range(_PARTS)]

    async def serve() -> None:
        async with FakeApi() as api:
            api.register(WIDGET, CONDITIONS)
            api.register(PODSET)
            api.load(build_widget(f"w{number}", count=0, parts=parts) for number in range(count))
            pipe.send(api.url)
            await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def run_server(serve: Callable[[int, Connection], None], count: int) -> Iterator[str]:
    """Run a server as a process, and yield its URL.

    Args:
        serve: Runs the server and sends its URL.
        count: Number of its objects.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(count, theirs), daemon=True)
    server.start()
    theirs.close()  # Otherwise, nobody notices that the server has exited.
    try:
        yield ours.recv()
    finally:
        server.terminate()
        server.join()


def measure_apart(
    serve: Callable[[int, Connection], None], count: int, *arguments: str
) -> dict[str, float]:
    """Run a server and a measurement as two processes, and return the figures.

    Args:
        serve: Runs the server and sends its URL.
        count: Number of its objects.
        arguments: Name of the measurement, and what follows the URL.
    """
    with run_server(serve, count) as url:
        name, *options = arguments
        process = [sys.executable, "-m", "lab.bench.library_process"]
        command = [*process, "lab.bench.library_work", name, url, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        figures: dict[str, float] = json.loads(done.stdout)
        return figures


def run(figures: Sequence[str], pods: Sequence[int], primaries: int, keys: int) -> Report:
    """Measure the chosen figures."""
    report = Report(os.getloadavg()[0])
    rows = report.rows
    if "pods" in figures:
        for count in pods:
            rows[f"{count:,} pods"] = measure_apart(serve_pods, count, "pods")
    if "peer" in figures:
        program = build_peer()
        for count in pods:
            with run_server(serve_pods, count) as url:
                rows[f"{count:,} pods, controller-runtime"] = measure_peer(program, url)
    if "primaries" in figures:
        for source in ("reflector", "kopf"):
            name = f"{primaries:,} primaries, {source}"
            rows[name] = measure_apart(serve_widgets, primaries, "primaries", source)
    if "rest" in figures:
        with run_server(serve_widgets, 0) as url:
            rows["podset at rest"] = measure_rest(url)
        report.parts = measure_parts()
    if "queue" in figures:
        for waiting in (1000, keys):
            rows[f"raise a key of {waiting:,}"] = raise_keys(waiting)
    return report


def render_table(rows: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Render rows as a table that has a column for each figure of any of them."""
    columns = list(dict.fromkeys(what for row in rows.values() for what in row))
    yield "| " + " | ".join(["", *columns, "goal"]) + " |"
    yield "|---" * (len(columns) + 2) + "|"
    for name, row in rows.items():
        figures = [f"{row[what]:.1f}" if what in row else "-" for what in columns]
        yield "| " + " | ".join([name, *figures, _GOALS.get(name, "-")]) + " |"


def render_page(report: Report) -> list[str]:
    """Render the page of a run."""
    caches = {name: row for name, row in report.rows.items() if "seconds" in row}
    others = {name: row for name, row in report.rows.items() if name not in caches}
    lines = [
        "# Benchmark of the library",
        "",
        f"Measured by `./dev bench library --write` on {describe_machine()}.",
        *describe_load(report.load),
    ]
    if caches:
        lines += [
            "",
            "## Caches",
            "",
            "*seconds* is the time until the cache is synced, *base* the memory of the process",
            "before it lists, *peak* the most memory so far, *lag* how late the event loop runs",
            "its timers. Pods have the managed fields, environment and status of pods on a node,",
            "and the cache keeps what podset reads. The objects of the other rows are 4 KB each,",
            "and the cache keeps all of them. The charts limit the memory to 256 MiB.",
            "",
            *render_table(caches),
        ]
    if any(name.endswith("controller-runtime") for name in caches):
        lines += [
            "",
            "The program with controller-runtime keeps the same fields of the same pods. It",
            "receives them as events of one watch (its default) and decodes JSON, as we do; from",
            "a real API server it would decode Protobuf, which is faster.",
        ]
    if others:
        lines += ["", "## At rest, and the queue", "", *render_table(others)]
    if report.parts:
        lines += [
            "",
            "Most of the memory at rest is taken by imports. The process has probes, metrics and",
            "leader election, and the packages of its image. This is what the imports add, in",
            "their order; what two parts share counts for the first one. Settings of malloc change",
            "nothing, and without docstrings and assertions (`python -OO`) it would be 2 MiB",
            "less. The goal needs another HTTP client or models",
            "without pydantic.",
            "",
            "| part | MiB |",
            "|---|---|",
            *(f"| {part} | {memory:.1f} |" for part, memory in report.parts.items()),
        ]
    return [*lines, ""]


def main() -> int:
    """Measure, print, and write the page when asked to."""
    parser = Parser(prog="./dev bench library", description=__doc__)
    parser.add_argument(
        "--figure",
        action="append",
        choices=(*_FIGURES, *_FURTHER),
        help="measure only this; repeatable. One of",
    )
    parser.add_argument(
        "--pods", type=int, nargs="+", default=[10_000, 100_000], help="numbers of cached pods"
    )
    parser.add_argument("--primaries", type=int, default=5000, help="number of primaries of 4 KB")
    parser.add_argument(
        "--keys", type=int, default=100_000, help="number of keys that wait in the queue"
    )
    parser.add_argument("--write", action="store_true", help="write the page of the benchmark")
    options = parser.parse_args()
    figures = options.figure or _FIGURES
    report = run(figures, options.pods, options.primaries, options.keys)
    print("\n".join(line for line in render_page(report) if line.startswith("|")))
    save_report("library", asdict(report))
    if options.write:
        print(write_page("library", render_page(report)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
