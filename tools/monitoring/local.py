"""Record dashboards without a cluster: `python -m tools.monitoring.local [OPERATOR]...`.

For each operator, the command starts an API server, the operator and a Prometheus, makes a load for
some minutes and writes what the panels of its dashboard show to docs/images/monitoring.json. Values
of other operators in that file stay.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from libs.common.client import Client
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from tools.cluster.binaries import export_assets
from tools.cluster.command_line import Parser, run
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress, open_progress
from tools.monitoring.loads import LOADS
from tools.monitoring.record import write_record
from tools.monitoring.stage import NAMESPACE, Stage, run_operator, run_prometheus
from tools.site.graphs import RECORD


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = Parser(
        prog="python -m tools.monitoring.local",
        description="Record the values of the dashboards of operators, without a cluster.",
    )
    parser.add_argument(
        "operators", nargs="*", metavar="OPERATOR", help=f"default: {' '.join(LOADS)}"
    )
    parser.add_argument("--minutes", type=int, default=3, help="length of a record (default 3)")
    parser.add_argument("--output", type=Path, default=RECORD, help="file (default docs/images)")
    options = parser.parse_args(argv)
    operators = options.operators or list(LOADS)
    if unknown := set(operators) - set(LOADS):
        raise ToolError(f"No load for {', '.join(sorted(unknown))}: name {', '.join(LOADS)}")
    export_assets()
    # The simulators log each of their steps.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    progress = open_progress("record")
    for operator in operators:
        asyncio.run(record(operator, options.minutes, options.output, progress))
    return 0


async def record(operator: str, minutes: int, output: Path, progress: Progress) -> None:
    """Record the dashboard of one operator.

    Raises:
        ToolError: The load ended before the record was complete, or a panel has no value.
    """
    load = LOADS[operator]
    with tempfile.TemporaryDirectory() as name, ControlPlane() as plane:
        folder = Path(name)
        async with Client(plane.config, user_agent="record") as client:
            await serve(client, *load.crds)
            stage = Stage(plane, client, folder)
            async with AsyncExitStack() as stack:
                settings = {**load.settings, **await stack.enter_async_context(load.serve(stage))}
                port = stack.enter_context(run_operator(plane, operator, folder, **settings))
                address = stack.enter_context(run_prometheus({operator: port}, folder))
                stack.enter_context(progress.step(f"Load of {operator}", f"{minutes} min"))
                work = asyncio.ensure_future(load.run(stage))
                done, _ = await asyncio.wait([work], timeout=minutes * 60 + 20)
                try:
                    if done:
                        raise ToolError(f"The load of {operator} ended: {work.exception()!r}")
                    await asyncio.to_thread(
                        write_record, address, [operator], NAMESPACE, minutes, output, shared=False
                    )
                finally:
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)


if __name__ == "__main__":
    raise SystemExit(run(main))
