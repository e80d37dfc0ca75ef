"""Record what the dashboards show: `python -m tools.monitoring.record URL [OPERATOR]...`.

The command asks a Prometheus that has scraped a demo for the values of every panel, and writes
docs/images/monitoring.json, from which `python -m tools.site.pictures` draws. It fails if a panel
has no value or NaN.
"""

from __future__ import annotations

import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.cluster.command_line import Parser, run
from tools.cluster.errors import ToolError
from tools.cluster.progress import open_progress
from tools.monitoring.deploy import read_charts
from tools.site.graphs import RECORD

_STEP_SECONDS: Final = 10
_TIMEOUT_SECONDS: Final = 30.0
_DIGITS: Final = 4
_LEGEND: Final = re.compile(r"\{\{([a-z_]+)\}\}")

type Panel = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = Parser(
        prog="python -m tools.monitoring.record",
        description="Record the values of all panels of the dashboards of a demo.",
    )
    parser.add_argument("url", help="Prometheus of the demo, such as http://172.18.0.2:30090")
    parser.add_argument("operators", nargs="*", help="operators; default: podset volumes")
    parser.add_argument("--namespace", default="default", help="namespace of the operators")
    parser.add_argument("--minutes", type=int, default=3, help="how far back (default 3)")
    parser.add_argument("--output", type=Path, default=RECORD, help="file (default docs/images)")
    options = parser.parse_args(argv)
    operators = options.operators or ["podset", "volumes"]
    write_record(options.url, operators, options.namespace, options.minutes, options.output)
    print(options.output)
    return 0


def write_record(
    url: str,
    operators: Sequence[str],
    namespace: str,
    minutes: int,
    output: Path,
    *,
    shared: bool = True,
) -> None:
    """Write the values of all panels; values of other dashboards in the file stay.

    Args:
        url: Address of Prometheus.
        operators: Operators that it scrapes.
        namespace: Namespace of the operators.
        minutes: How far back.
        output: The file.
        shared: Whether to record the dashboard about all operators as well.

    Raises:
        ToolError: Prometheus refuses a query, or a panel has no value, or NaN.
    """
    charts = read_charts(operators, namespace, open_progress("record"))
    variables = {"$namespace": namespace, "$__rate_interval": "30s"}
    # The dashboard of an operator has its id as name, and the other one is about all.
    jobs = {f"{operator}.json": operator for operator in operators}
    end = int(time.time())
    times = {"start": end - minutes * 60, "end": end, "step": _STEP_SECONDS}
    dashboards = json.loads(output.read_text())["dashboards"] if output.exists() else {}
    for name, text in charts.dashboards.items():
        if name in jobs or shared:
            chosen = {"$job": jobs.get(name, "|".join(operators)), **variables}
            dashboards[name] = list(record_panels(json.loads(text), url, chosen, times))
    record = {"step": _STEP_SECONDS, "dashboards": dict(sorted(dashboards.items()))}
    output.write_text(json.dumps(record) + "\n")


def record_panels(
    dashboard: Mapping[str, Any], url: str, variables: Mapping[str, str], times: Mapping[str, int]
) -> Iterator[Panel]:
    """Yield each panel of a dashboard with its series.

    Raises:
        ToolError: Prometheus refuses a query, or a panel has no value, or NaN.
    """
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        series = {}
        for target in panel["targets"]:
            found = _ask(url, fill_in(target["expr"], variables), times)
            if not found:
                raise ToolError(f"Panel {panel['title']!r} has no value: {target['expr']}")
            for one in found:
                legend = render_legend(target["legendFormat"], one["metric"]) or panel["title"]
                values = dict(one["values"])
                if any(math.isnan(float(value)) for value in values.values()):
                    raise ToolError(f"Panel {panel['title']!r} has NaN: {target['expr']}")
                moments = range(times["start"], times["end"] + 1, times["step"])
                series[legend] = [_round(values.get(moment)) for moment in moments]
        unit = panel["fieldConfig"]["defaults"]["unit"]
        yield {"title": panel["title"], "type": panel["type"], "unit": unit, "series": series}


def fill_in(expression: str, variables: Mapping[str, str]) -> str:
    """Replace the variables of an expression as Grafana does."""
    for name, value in variables.items():
        expression = expression.replace(name, value)
    return expression


def render_legend(legend: str, labels: Mapping[str, str]) -> str:
    """Replace the labels of a legend as Grafana does."""
    return _LEGEND.sub(lambda match: labels.get(match[1], ""), legend).strip()


def _round(value: str | None) -> float | None:
    return None if value is None else float(f"{float(value):.{_DIGITS}g}")


def _ask(url: str, expression: str, times: Mapping[str, int]) -> list[dict[str, Any]]:
    words = urllib.parse.urlencode({"query": expression, **times})
    address = f"{url.rstrip('/')}/api/v1/query_range?{words}"
    if not address.startswith(("http://", "https://")):
        raise ToolError(f"{url}: not an HTTP address")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as response:
            answer = json.load(response)
    except OSError as err:
        raise ToolError(f"Prometheus at {url} does not respond: {err}") from err
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


if __name__ == "__main__":
    raise SystemExit(run(main))
