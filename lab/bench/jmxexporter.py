"""Compare what the guard costs a JVM with the agent of the jmx_exporter project.

Each is put into a JVM of its own: the pause of the application, memory, threads, and scrapes.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.bench.processes import read_usage
from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.messages import Agent, State
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import Jvm
from tools.cluster.command_line import Parser
from tools.jvm import ensure_kit

_SERVER: Final = "jdk.httpserver"
_WARM_ORDERS: Final = 500
_SCRAPES: Final = 200
_QUIET_SECONDS: Final = 1.0
_CONFIG: Final = "rules:\n- pattern: .*\n"
_USED: Final = re.compile(r"total \d+K, used (\d+)K")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run on one JVM.

    Attributes:
        attach_seconds: From the start of the injector's work to the first good scrape.
        quiet_ms: Worst answer of the application in a second before.
        worst_ms: Worst answer of the application while the exporter was put in.
        heap_kib: Live heap that was added.
        memory_kib: Resident memory that was added, with that heap.
        threads: Threads that were added.
        scrape_ms: Median time of a scrape.
        scrape_cpu_ms: CPU time of the JVM for a scrape.
        kib: Size of a scrape.
    """

    attach_seconds: float
    quiet_ms: float
    worst_ms: float
    heap_kib: float
    memory_kib: float
    threads: float
    scrape_ms: float
    scrape_cpu_ms: float
    kib: float


def measure_cost(kit: Path, java: Path, agent: Agent, folder: Path) -> Cost:
    """Put an exporter into a JVM of its own, use it and say what it cost."""
    jvm = Jvm(kit, java, ["-XX:+UseSerialGC", "-Xmx128m"], folder)
    try:
        jvm.await_serving()
        for _ in range(_WARM_ORDERS):
            jvm.order()
        port = find_free_port()
        heap, memory, threads = read_heap(jvm), _read_resident(jvm), count_threads(jvm)
        with ping(jvm) as quiet:
            time.sleep(_QUIET_SECONDS)
        with ping(jvm) as answers:
            began = time.monotonic()
            report = jvm.inject_one(config=_CONFIG, port=port, agent=agent)
            seconds = time.monotonic() - began
        assert report.state is State.SERVING, report
        scrapes, cpu, size = _scrape(jvm, port)
        return Cost(
            seconds,
            max(quiet) * 1000,
            max(answers) * 1000,
            read_heap(jvm) - heap,
            _read_resident(jvm) - memory,
            count_threads(jvm) - threads,
            statistics.median(scrapes) * 1000,
            cpu * 1000,
            size / 1024,
        )
    finally:
        jvm.close()


def summarize_costs(costs: list[Cost]) -> dict[str, float]:
    """Return the median of each figure; of pauses the worst."""
    names = Cost.__slots__
    found = {name: statistics.median(getattr(cost, name) for cost in costs) for name in names}
    found["worst_ms"] = max(cost.worst_ms for cost in costs)
    found["quiet_ms"] = max(cost.quiet_ms for cost in costs)
    return found


@contextmanager
def ping(jvm: Jvm) -> Iterator[list[float]]:
    """Use the application all the time, and give the seconds of each response."""
    answers: list[float] = []
    ended = threading.Event()

    def use() -> None:
        while not ended.is_set():
            began = time.monotonic()
            jvm.order()
            answers.append(time.monotonic() - began)
            time.sleep(0.001)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        ended.set()
        thread.join()


def read_heap(jvm: Jvm) -> float:
    """Return the KiB of the heap that are in use after a collection."""
    attachment = Attachment(Process(jvm.process.pid), 20)
    for _ in range(2):
        attachment.command("jcmd", "GC.run")
    text = attachment.command("jcmd", "GC.heap_info").text
    return sum(float(kib) for kib in _USED.findall(text))


def _read_resident(jvm: Jvm) -> float:
    return read_usage(jvm.process.pid).memory_mib * 1024


def count_threads(jvm: Jvm) -> int:
    """Return the number of threads of the process."""
    return len(list(Path(f"/proc/{jvm.process.pid}/task").iterdir()))


def _scrape(jvm: Jvm, port: int) -> tuple[list[float], float, int]:
    url, seconds, size = f"http://127.0.0.1:{port}/metrics", [], 0
    for _ in range(_SCRAPES // 4):
        urllib.request.urlopen(url, timeout=20).read()
    cpu = read_usage(jvm.process.pid).cpu_seconds
    for _ in range(_SCRAPES):
        began = time.monotonic()
        with urllib.request.urlopen(url, timeout=20) as response:
            size = len(response.read())
        seconds.append(time.monotonic() - began)
    spent = (read_usage(jvm.process.pid).cpu_seconds - cpu) / _SCRAPES
    return seconds, spent, size


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = Parser(prog="./dev bench jmxexporter", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as folder:
        bench_costs(Path(folder), options.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
