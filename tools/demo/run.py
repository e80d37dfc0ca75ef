"""From a bare machine to running operators: each step can be repeated, and continues."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import format_seconds, open_progress
from tools.demo.examples import Example, find_all_examples
from tools.demo.prerequisites import create_objects, prepare
from tools.demo.table import Row, build_row, render_rows
from tools.dev.images import load_operator
from tools.dev.install import Release, install
from tools.dev.options import Target, find_target, hint_cluster
from tools.images import check_needs
from tools.monitoring.deploy import deploy_to_kind

_READY_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5
_COLUMN: Final = 60
"""Commands that are longer do not move the comments of the others."""


def run_demo(
    operators: Sequence[str],
    *,
    namespace: str,
    name: str,
    kubeconfig: Path | None = None,
    context: str | None = None,
    build: bool = True,
    monitoring: bool = False,
) -> None:
    """Install the operators, apply their examples and show them turn Ready.

    The kind cluster `name` is brought up first, unless a cluster of the user's own is named.
    `build` False takes the images that were built last. `monitoring` runs Prometheus beside the
    operators and changes objects, so that its graphs move.

    Raises:
        ToolError: A step failed, or the objects were not Ready in time.
    """
    started = time.monotonic()
    progress = open_progress("demo")
    console = Console(highlight=False)
    # Report errors that need no cluster before creating one, which takes minutes.
    examples = find_all_examples(operators)
    if not (kubeconfig or context):
        if build:
            check_needs(progress)
        KindCluster(name).up(progress)
    target = find_target(kubeconfig, context, name)
    for operator in operators:
        image = None
        if target.kind:
            image = load_operator(operator, target.kind, progress, build=build)
        install(Release(operator, namespace), target, image, progress)
    prepare(operators, target, namespace, progress)
    for example in examples:
        console.print(f"[bold]{example.operator}[/bold]: {example.shows}")
        target.kubectl.read("apply", "--namespace", namespace, "--filename", example.path)
    watch_examples(examples, target.kubectl, namespace, console)
    looks = create_objects(operators, target, namespace, progress)
    if monitoring and target.kind:
        looks += deploy_to_kind(target.kind, operators, namespace, progress)
    took = format_seconds(time.monotonic() - started)
    console.print(f"\nAll objects are Ready after {took}.")
    console.print(_render_next(operators, target, namespace, looks), markup=False, soft_wrap=True)


def watch_examples(
    examples: Sequence[Example], kubectl: Kubectl, namespace: str, console: Console
) -> None:
    """Show the objects of examples until all are Ready.

    Raises:
        ToolError: They were not Ready in time.
    """
    files = [word for example in examples for word in ("--filename", str(example.path))]
    deadline = time.monotonic() + _READY_SECONDS
    shown: dict[tuple[str, str], str] = {}
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while True:
            rows = [build_row(item) for item in _get(kubectl, namespace, files)]
            if console.is_terminal:
                live.update(render_rows(rows, datetime.now(UTC)))
            else:
                _print_changes(rows, shown, console)
            if rows and all(row.ready for row in rows):
                return
            if time.monotonic() > deadline:
                raise ToolError(_describe_late(rows))
            time.sleep(_POLL_SECONDS)


def _get(kubectl: Kubectl, namespace: str, files: Sequence[str]) -> list[dict[str, object]]:
    response = kubectl.get("--namespace", namespace, *files)
    # One object comes as itself, several as a list.
    items: list[dict[str, object]] = response.get("items", [response])
    return items


def _print_changes(
    rows: Sequence[Row], shown: dict[tuple[str, str], str], console: Console
) -> None:
    for row in rows:
        line = f"{'ready  ' if row.ready else 'waiting'} {row.kind}/{row.name}: {row.state}"
        line = f"{line}: {row.detail}" if row.detail else line
        if shown.get((row.kind, row.name)) != line:
            shown[row.kind, row.name] = line
            console.print(line, markup=False, soft_wrap=True)


def _describe_late(rows: Sequence[Row]) -> str:
    late = [row for row in rows if not row.ready]
    lines = [f"  {row.kind}/{row.name}: {row.state}: {row.detail}" for row in late]
    return "\n".join([f"Not Ready after {_READY_SECONDS:g} s:", *lines])


def _render_next(
    operators: Sequence[str], target: Target, namespace: str, looks: Sequence[tuple[str, str]]
) -> str:
    first = operators[0]
    where = "" if namespace == "default" else f" -n {namespace}"
    # A fresh machine has no kubectl but ours.
    ours = "./dev kubectl" if target.kind else str(target.kubectl.binary)
    kubectl = "kubectl" if shutil.which("kubectl") else ours
    hints = [
        (f"{kubectl} get all{where}", "objects that the operators created"),
        *looks,
        (f"./dev logs {first} -f{where}", f"log of {first}"),
        (f"ls operators/{first}/examples", "more manifests to apply"),
        ("./dev status", "the cluster and its operators"),
    ]
    if target.kind:
        selected = ('export KUBECONFIG="$(./dev kubeconfig)"', "point kubectl to the cluster")
        hints[:0] = [*hint_cluster(target.kind.name), selected]
        hints.append(("./dev down", "remove the cluster"))
    width = max(len(command) for command, _ in hints if len(command) < _COLUMN)
    return "\n".join(["Next:", *(f"  {command:<{width}}  # {why}" for command, why in hints)])
