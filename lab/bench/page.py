"""The page of a benchmark: numbers as JSON, and tables with the text around them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from lab.bench.pages import ROOT, describe_machine
from lab.bench.processes import percentile
from lab.bench.report import BARE, OURS, UNLIMITED, Report, Row

PAGE: Final = Path("docs/reference/benchmarks.md")
FIGURES: Final = Path("docs/reference/benchmarks")


def write_page(report: Report, root: Path = ROOT) -> None:
    """Write the numbers and the page below the root of the repository."""
    folder = root / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "podset.json").write_text(json.dumps(asdict(report), indent=1) + "\n")
    (root / PAGE).write_text(render_page(report))


def render_page(report: Report) -> str:
    """Render the page from what was measured."""
    return "\n".join(
        [
            "# Benchmarks",
            "",
            f"Measured by `./dev bench podset --write` on {describe_machine()}.",
            "The machine is shared.",
            "Compare the ratios of candidates that took turns in one run, not the seconds.",
            "",
            "## PodSet compared with the ReplicaSet controller",
            "",
            "Each candidate runs alone on the same kube-apiserver 1.36.3 (etcd without fsync),",
            "with pods that no node runs. kube-controller-manager runs only the ReplicaSet",
            "controller:",
            "once with its default client limits (20 requests per second), and once with",
            "`--kube-api-qps=2000 --kube-api-burst=2000`. The bare client only creates and deletes",
            "such pods, with 32 concurrent requests: it is the lower limit for a client that uses",
            "JSON. Pods are counted in etcd, which causes no load on the API server.",
            f"The table shows medians over {_count_rounds(report)} rounds.",
            "",
            *_scale_table(report),
            "",
            "### Replacement of a deleted pod",
            "",
            "One of 50 pods is deleted. A watch measures the time until its replacement exists.",
            "PodSet and ReplicaSet without limits run at the same time here, each with its own",
            "set, and take turns: one deletion each. ReplicaSet with default limits is measured",
            "alone.",
            "",
            *_replacement_table(report),
            "",
            *_rest_section(report),
            "## Limiting factors",
            "",
            _render_bounds(report),
        ]
    )


_BOUNDS: Final = """\
The goals are: 0 to 500 pods in at most 1.05 times the time of ReplicaSet without client
limits, with at most 1.3 times its CPU time; a replacement p99 of at most 1.5 times the p99
of ReplicaSet, less than 150 MiB with 10,000 pods, and no writes at rest. A ratio in the
tables above its goal means that the goal is not met.

* **0 to N** is limited by the CPU of the machine. Controller, API server and etcd share
  its cores; the sum of the two CPU columns divided by the seconds is the number of busy
  cores. For {scenario} the other processes use {others} s next to {ours} s of PodSet,
  {peer_others} s next to {peer} s of ReplicaSet, and {bare_others} s next to {bare} s of
  the bare client. The bare client only sends the requests; PodSet additionally runs the
  watch, the cache and the decisions.
  * A profile of PodSet for 0 to 500 (cProfile, two runs, an API server without TLS) shows
    67% of its time in the requests, most of it in the HTTP client (aiohttp), 14% in the watch,
    8% in the cache and the handlers of the responses, 6% in building the pods and ordering
    the requests, and 5% in planning and the status. The requests alone cost the bare client
    about as much CPU time as all of ReplicaSet, so a ratio of 1.3 leaves little for the rest.
  * Removed since the first profile: spans if nothing is traced, a time-out object and cookies
    for each request, and the count of a cache after each event. This saved 5.5% of all
    function calls (655,656 instead of 693,889).
  * A new process opens up to 32 connections in the burst. They resume TLS sessions,
    because full handshakes made a burst of the bare client a sixth slower (0.46 s compared
    with 0.39 s, 25 rounds in turns).
  * Requests and responses in Protobuf, and responses that contain only metadata, made no
    difference to the bare client above the noise. 8 requests in flight made it slower
    (0.43 s compared with 0.36 s).
  * In a second and a third burst, with all connections open, ReplicaSet took 0.32 s and
    0.42 s, the bare client 0.41 s both times, PodSet 0.55 s and 0.51 s (5 rounds in turns).
  * libcurl, a client in C on one HTTP/2 connection, took 0.31 s with 32 requests in flight
    and 0.27 s with 100, while the bare client with open connections took 0.30 s (11 rounds
    in turns). No client known to us reaches 0.8 of ReplicaSet on this machine.
  * These comparisons were measured while ReplicaSet and the bare client created lighter
    pods, without a security context. With such pods, PodSet and ReplicaSet both took 0.45 s
    in an hour in which the machine needed 0.7 of the usual time for everything (6 rounds).
* **N to 0** is limited in the same way. Deletions need no slow start.
* **Replacement** consists of the event of the deletion, the creation, and the event of the
  new pod on the watch. The set is read after the creation; if it no longer exists, the pod
  is deleted again. Threads switch every 0.5 ms, so that the thread of kopf does not block
  others for long.
* **Memory**: the interpreter and its libraries use about 70 MiB; the rest is one reduced
  object per pod (`shrink_pod` keeps the fields that the planner reads).
* **ReplicaSet with default limits** is limited to the 20 requests per second of its client.
  This is the limit of a cluster unless its administrator changes it.
"""


def _render_bounds(report: Report) -> str:
    scenario = report.rows[0].scenario
    ours, peer, bare = (report.row(scenario, name) for name in (OURS, UNLIMITED, BARE))
    return _BOUNDS.format(
        scenario=scenario,
        ours=_cpu_of(ours),
        others=_cpu_of(ours, others=True),
        peer=_cpu_of(peer),
        peer_others=_cpu_of(peer, others=True),
        bare=_cpu_of(bare),
        bare_others=_cpu_of(bare, others=True),
    )


def _count_rounds(report: Report) -> int:
    return max(len(row.seconds) for row in report.rows)


def _cpu_of(row: Row, *, others: bool = False) -> str:
    return f"{_median(row.other_cpu_seconds if others else row.cpu_seconds):.2f}"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _scale_table(report: Report) -> list[str]:
    lines = [
        "| scenario | candidate | seconds | ratio to qps 2000 | CPU s, its own | CPU s, others |",
        "|---|---|---|---|---|---|",
    ]
    for row in report.rows:
        peer = report.row(row.scenario, UNLIMITED)
        seconds = _median(row.seconds)
        ratio = seconds / _median(peer.seconds) if peer.seconds else 0.0
        lines.append(
            f"| {row.scenario} | {row.candidate} | {seconds:.2f} | {ratio:.2f} "
            f"| {_cpu_of(row)} | {_cpu_of(row, others=True)} |"
        )
    return lines


def _replacement_table(report: Report) -> list[str]:
    lines = ["| candidate | deletions | p50 ms | p99 ms |", "|---|---|---|---|"]
    for name, waits in report.replacements.items():
        p50, p99 = (percentile(waits, share) * 1000 for share in (0.5, 0.99))
        lines.append(f"| {name} | {len(waits)} | {p50:.1f} | {p99:.1f} |")
    return lines


def _rest_section(report: Report) -> list[str]:
    if not report.memory_mib:
        return []
    lines = [
        "### At rest with 10,000 pods",
        "",
        "Ten converged sets of 1,000 pods each. Writes are changes of a set or pod in 10 s.",
        "",
        "| candidate | resident MiB | writes in 10 s |",
        "|---|---|---|",
    ]
    for name, memory in report.memory_mib.items():
        lines.append(f"| {name} | {memory:.0f} | {report.writes_at_rest[name]} |")
    return [*lines, ""]
