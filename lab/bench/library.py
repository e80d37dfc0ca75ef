"""Measure the library by itself.

* pods: podset's cache of pods as large as those on a node: cold start and a second list.
* peer: the same pods in a program with controller-runtime, only on request: its build is slow.
* primaries: the caches of an operator whose primaries are 4 KB each, from both event sources.
* rest: memory of a podset process with nothing to do, and of its parts.

Each measurement of memory runs in its own process, as does the API server.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from lab.bench.library_pods import build_pod
from lab.bench.library_rest import measure_parts, measure_rest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.widget import CONDITIONS, WIDGET, build_widget
from operators.podset.controller import PODSET
from tools.cluster.cache import Cache, digest_of
from tools.cluster.command_line import Parser
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress

_FIGURES: Final = ("pods", "primaries", "rest")
_FURTHER: Final = ("peer",)
_PEER: Final = Path(__file__).with_name("library_peer")
_PAGE: Final = 500
_PARTS: Final = 45
"""Parts of a Widget that make it 4 KB."""

type Row = dict[str, float]


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


def measure_apart(serve: Callable[[int, Connection], None], count: int, *arguments: str) -> Row:
    """Run a server and a measurement as two processes, and return the figures.

    Args:
        serve: Runs the server and sends its URL.
        count: Number of its objects.
        arguments: Name of the measurement, and what follows the URL.
    """
    with run_server(serve, count) as url:
        name, *options = arguments
        process = [sys.executable, "-m", "lab.bench.library_process"]
        return read_figures(*process, "lab.bench.library_work", name, url, *options)


def read_figures(*command: str) -> Row:
    """Run a program that prints its figures."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: Row = json.loads(done.stdout)
    return figures


def build_peer() -> Path:
    """Return the program with controller-runtime, built if the cache lacks it."""
    progress = open_progress("bench")
    go = ensure_go(progress)

    def build(directory: Path) -> None:
        with progress.step("Program with controller-runtime", "about 5 minutes"):
            go.build(_PEER, ".", directory / _PEER.name)

    digest = digest_of(*(_PEER / name for name in ("main.go", "go.mod", "go.sum")))
    return Cache().ensure("library-peer", digest, build) / _PEER.name


def run(figures: Sequence[str], pods: Sequence[int], primaries: int) -> Iterator[tuple[str, Row]]:
    """Measure the chosen figures; yields each with its name."""
    if "pods" in figures:
        for count in pods:
            yield f"{count:,} pods", measure_apart(serve_pods, count, "pods")
    if "peer" in figures:
        program = build_peer()
        for count in pods:
            with run_server(serve_pods, count) as url:
                yield f"{count:,} pods, controller-runtime", read_figures(str(program), url)
    if "primaries" in figures:
        for source in ("reflector", "kopf"):
            row = measure_apart(serve_widgets, primaries, "primaries", source)
            yield f"{primaries:,} primaries, {source}", row
    if "rest" in figures:
        with run_server(serve_widgets, 0) as url:
            yield "podset at rest", measure_rest(url)
        yield "imports of podset at rest", measure_parts()


def main() -> int:
    """Measure and print."""
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
    options = parser.parse_args()
    for name, row in run(options.figure or _FIGURES, options.pods, options.primaries):
        print(f"{name}: " + ", ".join(f"{what} {figure:.1f}" for what, figure in row.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
