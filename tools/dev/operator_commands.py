"""Commands for one operator: load, install, uninstall, logs, run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME, KindCluster
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import Progress, open_progress
from tools.dev import install as installer
from tools.dev.images import load_operator, read_loaded
from tools.dev.install import Release
from tools.dev.operators import ROOT, chart_of, check_operator, environment_prefix
from tools.dev.options import (
    SYSTEM_NAMESPACE,
    ContextName,
    FoundNamespace,
    Kubeconfig,
    Name,
    Namespace,
    OperatorId,
    SystemNamespace,
    Target,
    find_target,
)

_PANEL = "Operator"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for function in (load, install, uninstall, logs):
        app.command(rich_help_panel=_PANEL)(function)
    # Arguments after the id are passed to the operator.
    passing = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(rich_help_panel=_PANEL, context_settings=passing)(run)


def load(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ID|IMAGE",
            help="Id of an operator (podset), or an image in docker (shop/app:1).",
            show_default=False,
        ),
    ],
    name: Name = DEFAULT_NAME,
) -> None:
    """Build the image of an operator and load it into the kind cluster, or load another image."""
    other = ":" in what or "/" in what
    if not other:
        check_operator(what)
    target = find_target(None, None, name)
    assert target.kind is not None  # A target without kubeconfig and context is a kind cluster.
    progress = open_progress("load")
    if other:
        target.kind.load([what], progress)
    print(what if other else load_operator(what, target.kind, progress))


def install(
    operator: OperatorId,
    namespace: SystemNamespace = SYSTEM_NAMESPACE,
    watched: Annotated[
        str,
        typer.Option("--watch", help="Namespace of the objects; --set watch.* replaces it."),
    ] = "default",
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            help="Image to run instead of the local build: repository:tag or repository@digest.",
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Chart value. Repeatable."),
    ] = None,
) -> None:
    """Install or upgrade an operator with its chart and wait until it runs."""
    check_operator(operator)
    progress = open_progress(f"install-{operator}")
    target = find_target(kubeconfig, context, name)
    chosen = image or find_image(operator, target.kind, progress)
    pairs = list(values or ())
    if not any(pair.startswith("watch.") for pair in pairs):
        pairs.append(f"watch.namespaces={{{watched}}}")
    installer.install(Release(operator, namespace), target, chosen, progress, pairs)


def uninstall(
    operator: OperatorId,
    namespace: FoundNamespace = None,
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
    no_hooks: Annotated[
        bool,
        typer.Option("--no-hooks", help="Skip the clean-up: finalizers stay on the objects."),
    ] = False,
) -> None:
    """Uninstall an operator; its CRDs and the objects of its kinds stay."""
    check_operator(operator)
    target = find_target(kubeconfig, context, name)
    progress = open_progress(f"uninstall-{operator}")
    release = _find_release(operator, namespace, target.kubectl)
    installer.uninstall(release, target, progress, hooks=not no_hooks)


def logs(
    operator: OperatorId,
    namespace: FoundNamespace = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines.")
    ] = False,
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
) -> None:
    """Show the logs of an operator that runs in the cluster."""
    check_operator(operator)
    target = find_target(kubeconfig, context, name)
    release = _find_release(operator, namespace, target.kubectl)
    if not installer.get_deployments(release, target.kubectl):
        raise ToolError(
            f"Operator {operator} is not installed in namespace {release.namespace}: run `./dev"
            f" status` to find it, or `./dev install {operator}` to install it"
        )
    arguments = ["logs", "--namespace", release.namespace, "--selector", release.selector]
    arguments += ["--tail", "-1", "--prefix", *(["--follow"] if follow else [])]
    command = target.kubectl.command(*arguments)
    sys.stdout.flush()
    os.execv(command[0], command)


def run(
    extra: typer.Context,
    operator: OperatorId,
    namespace: Namespace = "default",
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
) -> None:
    """Run an operator as a local process against the cluster; other arguments go to the operator.

    `./dev run ID -- --help` lists the arguments of the operator.
    """
    check_operator(operator)
    command = [sys.executable, "-m", f"operators.{operator}", *extra.args]
    if {"-h", "--help"} & set(extra.args):
        # The help of the operator needs no cluster.
        os.execve(command[0], command, {**os.environ, "PYTHONPATH": str(ROOT)})
    environment = _prepare_run(
        operator, namespace, find_target(kubeconfig, context, name, demo=True)
    )
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def _prepare_run(operator: str, namespace: str, target: Target) -> dict[str, str]:
    """Apply the CRDs, and return the environment of a local process."""
    for place in (namespace, SYSTEM_NAMESPACE):
        _refuse_second(Release(operator, place), target.kubectl)
    _apply_crds(operator, target, open_progress(f"run-{operator}"))
    environment = {**build_local_settings(operator, namespace, target), **os.environ}
    environment["PYTHONPATH"] = str(ROOT)
    return environment


def build_local_settings(operator: str, namespace: str, target: Target) -> dict[str, str]:
    """Return the settings for a local process; the environment and arguments override them."""
    prefix = environment_prefix(operator)
    settings = {
        "LOG_FORMAT": "console",
        # A single local process needs no election and should leave no Lease behind.
        "LEADER_ELECT": "false",
        "WATCH_NAMESPACES": namespace,
        # Local ports may be in use; the operator's own flags enable the endpoints again.
        "METRICS_BIND_ADDRESS": "0",
        "HEALTH_PROBE_BIND_ADDRESS": "0",
        "KUBECONFIG": str(target.kubectl.kubeconfig or ""),
        "CONTEXT": target.kubectl.context or "",
    }
    local = {f"{prefix}{key}": value for key, value in settings.items() if value}
    return {"POD_NAMESPACE": namespace, **local}


def find_image(operator: str, cluster: KindCluster | None, progress: Progress) -> str | None:
    """Return the image loaded into the kind cluster, after loading it if necessary."""
    if cluster is None:
        return None
    return read_loaded(operator, cluster) or load_operator(operator, cluster, progress)


def _find_release(operator: str, namespace: str | None, kubectl: Kubectl) -> Release:
    """Return the release in a namespace, by default in the place that installs or demos use."""
    places = [namespace] if namespace else [SYSTEM_NAMESPACE, "default"]
    releases = [Release(operator, place) for place in places]
    return next(filter(lambda one: installer.get_deployments(one, kubectl), releases), releases[0])


def _refuse_second(release: Release, kubectl: Kubectl) -> None:
    if any(one["spec"].get("replicas", 1) for one in installer.get_deployments(release, kubectl)):
        raise ToolError(
            f"Operator {release.operator} already runs in namespace {release.namespace}, and two"
            f" would conflict: run `./dev uninstall {release.operator} --namespace"
            f" {release.namespace}` first"
        )


def _apply_crds(operator: str, target: Target, progress: Progress) -> None:
    crds: Path = chart_of(operator) / "files" / "crds"
    if any(crds.glob("*.yaml")):
        with progress.step(f"CRDs of {operator}"):
            command = ["apply", "--server-side", "--force-conflicts", "--filename", str(crds)]
            progress.run(target.kubectl.command(*command))
