"""What a run of the pod benchmark measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Final

from lab.bench.processes import percentile

OURS: Final = "PodSet"
DEFAULT: Final = "ReplicaSet, default limits"
UNLIMITED: Final = "ReplicaSet, qps 2000"


@dataclass(slots=True)
class Row:
    """The rounds of one measurement of one candidate.

    Attributes:
        scenario: What was done.
        candidate: Who did it.
        seconds: Wall-clock time of each round.
        cpu_seconds: CPU time of the controller in each round.
        other_cpu_seconds: CPU time of the API server, etcd and the client that watches.
    """

    scenario: str
    candidate: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    other_cpu_seconds: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """All measurements of one run."""

    rows: list[Row] = field(default_factory=list)
    replacements: dict[str, list[float]] = field(default_factory=dict)
    memory_mib: dict[str, float] = field(default_factory=dict)
    writes_at_rest: dict[str, int] = field(default_factory=dict)

    def row(self, scenario: str, candidate: str) -> Row:
        """Return the row of a measurement, made on first use."""
        for row in self.rows:
            if (row.scenario, row.candidate) == (scenario, candidate):
                return row
        self.rows.append(Row(scenario, candidate))
        return self.rows[-1]


def summarize(report: Report) -> str:
    """Render the report as text for the terminal."""
    lines = []
    for row in report.rows:
        seconds, cpu = statistics.median(row.seconds), statistics.median(row.cpu_seconds)
        lines.append(f"{row.scenario:12} {row.candidate:28} {seconds:7.2f} s  cpu {cpu:5.2f} s")
    for name, waits in report.replacements.items():
        p50, p99 = percentile(waits, 0.5) * 1000, percentile(waits, 0.99) * 1000
        lines.append(f"replacement  {name:28} p50 {p50:6.1f} ms  p99 {p99:6.1f} ms")
    for name, memory in report.memory_mib.items():
        writes = report.writes_at_rest[name]
        lines.append(f"at rest      {name:28} {memory:6.0f} MiB  {writes} writes")
    return "\n".join(lines)
