"""What pulsarconsumer costs: `./dev bench pulsarconsumer`, its app beside a bare loop, and itself.

The app and the loops share a broker on this machine; the operator has an API server of its own, and
a thousand PulsarConsumers.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from libs.common.testing.pulsar import ASSETS_VARIABLE, Broker
from tools.bench.consumer_app import AppCost, measure_app
from tools.bench.consumer_fleet import FleetCost, measure_fleets
from tools.bench.pages import describe_load, describe_machine, save_report, write_page
from tools.bench.processes import percentile
from tools.pulsar import ensure_pulsar


@dataclass(frozen=True, slots=True)
class Report:
    """Hold what a run measured.

    Attributes:
        load: Processes that wanted a core in the minute before.
        messages: Messages that each contender consumed.
        size: Bytes of each.
        rounds: How often each did.
        count: PulsarConsumers of the operator.
        app: Contenders.
        operator: Scenarios.
    """

    load: float
    messages: int
    size: int
    rounds: int
    count: int
    app: Sequence[AppCost] = ()
    operator: Sequence[FleetCost] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page when asked to."""
    parser = argparse.ArgumentParser(prog="./dev bench pulsarconsumer", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="0 leaves out the app")
    parser.add_argument("--count", type=int, default=1000, help="0 leaves out the operator")
    parser.add_argument("--rest-seconds", type=float, default=60)
    parser.add_argument("--write", action="store_true", help="write the page of benchmarks")
    options = parser.parse_args(argv)
    load = os.getloadavg()[0]
    app: list[AppCost] = []
    if options.rounds:
        os.environ[ASSETS_VARIABLE] = str(ensure_pulsar())
        with Broker() as broker:
            app = measure_app(broker, options.messages, options.bytes, options.rounds)
        print("\n".join(render_app(app)), flush=True)
    operator = measure_fleets(options.count, options.rest_seconds) if options.count else []
    print("\n".join(render_operator(operator)))
    report = Report(
        load, options.messages, options.bytes, options.rounds, options.count, app, operator
    )
    save_report("pulsarconsumer", asdict(report))
    if options.write:
        write_page("pulsarconsumer", render_page(report))
    return 0


def render_app(costs: Sequence[AppCost]) -> list[str]:
    """Render the table of the contenders."""
    return [
        "| contender | messages/s | of its loop | microseconds of CPU a message | resident MiB |",
        "|---|---|---|---|---|",
        *(
            f"| {cost.name} | {cost.rate:,.0f} | {cost.ratio:.2f} | {cost.cpu_us:.1f} "
            f"| {cost.memory_mib:.0f} |"
            for cost in costs
        ),
    ]


def render_operator(costs: Sequence[FleetCost]) -> list[str]:
    """Render the table of the operator's scenarios."""
    return [
        "| scenario | all Ready | CPU till then | CPU/min | writes/min | requests/min | MiB |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {cost.scenario} | {cost.seconds:.0f} s | {cost.cpu_seconds:.0f} s "
            f"| {cost.rest_cpu:.1f} s | {sum(cost.rest_writes.values()):.0f} "
            f"| {cost.rest_looks:,.0f} | {cost.memory_mib:.0f} |"
            for cost in costs
        ),
    ]


def render_page(report: Report) -> list[str]:
    """Render the page from what was measured."""
    waits = [wait for cost in report.operator for wait in cost.waits]
    scaled = (
        f"{len(waits)} of the {report.count} PulsarConsumers were given a backlog in one moment: "
        f"half had their replicas raised\nwithin {percentile(waits, 0.5):.1f} s, all within "
        f"{max(waits):.1f} s."
        if waits
        else "Not measured in this run."
    )
    return [
        "# Benchmark of pulsarconsumer",
        "",
        f"Measured by `./dev bench pulsarconsumer --write` on {describe_machine()}.",
        "Broker, API server, etcd and what is measured share the cores.",
        "",
        *describe_load(report.load),
        "## The consumer app beside a bare client",
        "",
        f"{report.messages:,} messages of {report.size} bytes, medians of {report.rounds} rounds",
        "in turns. Each contender reads them from one real broker in a process and by a",
        "subscription of its own, with a receiver queue of 1,000. The bare loop is what one would",
        "write first: receive, look at the payload, acknowledge; or with a line of JSON for each",
        "message, as the app writes one.",
        "The aim is 0.9 of the loop's messages a second.",
        "",
        *render_app(report.app),
        "",
        *_judge_aim(report.app),
        *_BOUNDS,
        "",
        f"## {report.count:,} PulsarConsumers",
        "",
        "Deployments that no node runs, and a recorded broker that answers at once. Settings are",
        "the defaults. CPU, writes and requests are of a minute at rest: requests to the broker,",
        "two a look, and writes to the API server by anybody, but of Leases and Events.",
        "",
        *render_operator(report.operator),
        "",
        *_OPERATOR,
        "",
        "## From a backlog to more consumers",
        "",
        scaled,
        "",
        *_PEER,
        "",
    ]


def _judge_aim(costs: Sequence[AppCost]) -> list[str]:
    """Say which settings of the app reach the aim, and which do not."""
    held = [cost for cost in costs if cost.name != cost.loop]
    met = "; ".join(cost.name for cost in held if cost.ratio >= _AIM)
    missed = "; ".join(cost.name for cost in held if cost.ratio < _AIM)
    return [f"* **The aim** is met by: {met or 'none'}.", f"  Not by: {missed or 'none'}."]


_AIM: Final = 0.9
"""Share of the rate of its loop that the app is to reach."""
_BOUNDS: Final = (
    "* **Messages a second** are bound by the core that the app's thread of Python shares with the",
    "  broker on a machine this small. The CPU a message is what one consumer needs anywhere.",
    "* **Above the bare loop** are, for each message: an object with what handlers may ask, whose",
    "  fields are read from the client when they do (`app/received.py`); the handler called within",
    "  bounds and timed; age, time and result noted in lists, counted five times a second",
    "  (`app/meters.py`); the look whether to stop. Without an exporter of traces no span is made.",
    "* **Bursts**: while more than a thousand a second come and are handled, up to a hundred are",
    "  taken from the client at a time (`app/intake.py`), which pays for some of this; otherwise",
    "  one, so that none waits for another. Each is acknowledged by itself: the client has no call",
    "  for many, and a message that was handled is not to be handled again.",
    "* **A line each** costs about what the loop's costs, though it knows partitions, tries and",
    "  payloads that are no text, hides what looks like a secret, and is with the reader before",
    "  its message is handled: a message is read in one go, and the lines of a burst are written",
    "  together, as many as a pipe takes as a whole (`app/streams.py`).",
    "* **Memory** is that of the interpreter and of the client; a queue of big messages adds its",
    "  own.",
)
_OPERATOR: Final = (
    "At rest all of it is the looks at the broker, so the CPU goes with their number:",
    "`settings.pollSeconds` (30 s without autoscaling), `spec.autoscaling.pollSeconds` (15 s).",
    "Nothing is read from the API server at rest, since it is watched. Writes at rest are changes",
    "of the backlog in the status, of which this broker has none.",
)
_PEER: Final = (
    "The engine Native looks each `pollSeconds`, 15 by default, and sets the number in the same",
    "pass; so a backlog waits up to 15 s, and half of that in the middle.",
    "[KEDA](https://keda.sh/docs/latest/reference/scaledobject-spec/#pollinginterval) looks each",
    "30 seconds by default (`pollingInterval`), which is what the step from zero to one waits for;",
    "above one a HorizontalPodAutoscaler asks it, each [15 seconds by",
    "default](https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/). So from",
    "zero to many consumers a backlog waits up to 30 + 15 s, and half of that in the middle. That",
    "is what their documentation says; KEDA itself was not run here.",
)


if __name__ == "__main__":
    raise SystemExit(main())
