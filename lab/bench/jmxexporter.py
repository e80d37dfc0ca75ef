"""Compare the scrapes of the guard with those of the JMX exporter, in the same JVM.

The JMX exporter is its collector and client library, put together as the exporter does, in
`operators/jmxexporter/guard/reference`.
"""

from __future__ import annotations

import gzip
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.bench.processes import read_usage
from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.messages import State
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import Jvm
from tools.cluster.command_line import Parser
from tools.jvm import ensure_kit

_RULES: Final = {
    "one rule": "rules:\n- pattern: .*\n",
    "three rules": (
        "rules:\n"
        "- pattern: 'java.lang<type=Threading><>(TotalThreadAllocatedBytes)'\n"
        "  name: java_lang_Threading_$1\n"
        "- pattern: 'crowd<type=(\\w+), name=(.+), topic=(.+), partition=(\\d+)><>(\\w+)[0-4]:'\n"
        "  name: crowd_$1_$5\n"
        '  labels: {name: "$2", topic: "$3", partition: "$4"}\n'
        "- pattern: 'crowd<type=(\\w+), name=(.+), topic=(.+), partition=(\\d+)><>(\\w+):'\n"
        "  name: crowd_$1_$5\n"
        '  labels: {name: "$2", topic: "$3", partition: "$4"}\n'
    ),
}
_ALLOCATED: Final = re.compile(r"\njava_lang_Threading_TotalThreadAllocatedBytes (\S+)\n")
"""Bytes that all threads have allocated; Java 21 and later count them."""
_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one scrape.

    Attributes:
        cpu_ms: CPU time of the JVM.
        mib: Memory that its threads allocated.
        ms: Duration.
    """

    cpu_ms: float
    mib: float
    ms: float


def measure_scrapes(
    kit: Path, release: int, folder: Path, beans: int, rules: str, rounds: int
) -> dict[str, list[Cost]]:
    """Return the costs of scrapes of both exporters, which take turns in the same JVM."""
    options = ["-XX:TieredStopAtLevel=4", "-Xmx4g", f"-Dshop.beans={beans}"]
    jvm = Jvm(kit, kit / "java" / str(release), options, folder)
    try:
        jvm.await_serving()
        ports = {"guard": find_free_port(), "upstream": find_free_port()}
        report = jvm.inject_one(config=rules, port=ports["guard"], timeout_seconds=_SECONDS)
        assert report.state is State.SERVING, report
        config = folder / "config.yaml"
        config.write_text(rules)
        reference = f"{config},{ports['upstream']}"
        Attachment(Process(jvm.process.pid), _SECONDS).load(str(kit / "reference.jar"), reference)
        costs: dict[str, list[Cost]] = {name: [] for name in ports}
        for _ in range(rounds + 2):
            for name, port in ports.items():
                costs[name].append(_measure(jvm, port))
        # The first rounds compile the code.
        return {name: found[2:] for name, found in costs.items()}
    finally:
        jvm.close()


def _measure(jvm: Jvm, port: int) -> Cost:
    """Measure the second of two scrapes: from reading a bean to reading it again is a scrape."""
    before = _read_allocated(_scrape(port))
    cpu, began = read_usage(jvm.process.pid).cpu_seconds, time.monotonic()
    body = _scrape(port)
    spent, seconds = read_usage(jvm.process.pid).cpu_seconds - cpu, time.monotonic() - began
    return Cost(spent * 1000, (_read_allocated(body) - before) / 2**20, seconds * 1000)


def _scrape(port: int) -> bytes:
    headers = {
        "Accept": "application/openmetrics-text",
        "Accept-Encoding": "gzip",
        "X-Prometheus-Scrape-Timeout-Seconds": "300",
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=_SECONDS) as response:
        found: bytes = response.read()
    return found


def _read_allocated(body: bytes) -> float:
    found = _ALLOCATED.search(gzip.decompress(body).decode())
    assert found is not None, "use Java 21 or later"
    return float(found[1])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = Parser(prog="./dev bench jmxexporter", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="scrapes of each exporter")
    parser.add_argument("--java", type=int, default=21, help="release of Java")
    parser.add_argument("--beans", type=int, nargs="*", default=[1_000, 10_000, 50_000])
    options = parser.parse_args(argv)
    kit = ensure_kit()
    for beans in options.beans:
        for name, rules in _RULES.items():
            with tempfile.TemporaryDirectory(prefix="slipway-bench-") as folder:
                place = Path(folder) / "jvm"
                costs = measure_scrapes(kit, options.java, place, beans, rules, options.rounds)
            medians = {
                exporter: [
                    statistics.median(getattr(each, part) for each in found)
                    for part in Cost.__slots__
                ]
                for exporter, found in costs.items()
            }
            print(f"{beans} beans, {name}")
            for part, guard, upstream in zip(Cost.__slots__, *medians.values(), strict=True):
                print(f"  {part} {guard:.1f} / {upstream:.1f} ({guard / upstream:.2f})", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
