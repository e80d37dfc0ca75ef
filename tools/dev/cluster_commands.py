"""Commands for the kind cluster: up, down, status, kubeconfig."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tools.cluster import commands
from tools.cluster.cache import Cache
from tools.cluster.csi import install_csi
from tools.cluster.demo_state import demo_state, find_demo
from tools.cluster.docker import stop_docker
from tools.cluster.errors import ToolError, UsageError
from tools.cluster.kind_cluster import DEFAULT_NAME, KindCluster, list_clusters
from tools.cluster.network_policies import install_network_policies
from tools.cluster.progress import Progress, open_progress
from tools.dev.operators import ROOT
from tools.dev.options import (
    CLUSTER_VARIABLE,
    Addition,
    ContextName,
    Kubeconfig,
    KubeVirtFrom,
    Name,
    Output,
    OutputFormat,
    Workers,
    find_target,
    render_up,
)
from tools.dev.status import list_rows, render_rows

_PANEL = "Cluster"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for function in (up, down, status, kubeconfig):
        app.command(rich_help_panel=_PANEL)(function)
    # All arguments are passed to kubectl, including options and the `--` of `kubectl exec`.
    passing = {
        "allow_extra_args": True,
        "allow_interspersed_args": False,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
    app.command(rich_help_panel=_PANEL, context_settings=passing, add_help_option=False)(kubectl)


def up(
    name: Name = DEFAULT_NAME,
    workers: Workers = None,
    additions: Annotated[
        list[Addition] | None,
        typer.Option(
            "--with",
            help="Addition to install: kubevirt installs KubeVirt and CDI, csi a CSI driver with"
            " snapshots, clones and volume expansion, network-policies enforces NetworkPolicies.",
        ),
    ] = None,
    kubevirt_from: KubeVirtFrom = None,
) -> None:
    """Create or start a kind cluster; set up docker, the node image and tools if missing."""
    cluster = KindCluster(name)
    progress = open_progress("up", cluster.cache)
    if kubevirt_from and Addition.KUBEVIRT not in (additions or ()):
        raise UsageError("--kubevirt-from requires --with kubevirt: add --with kubevirt")
    cluster.up(progress, workers)
    if Addition.CSI in (additions or ()):
        install_csi(cluster, progress)
    if Addition.NETWORK_POLICIES in (additions or ()):
        install_network_policies(cluster, progress)
    if Addition.KUBEVIRT in (additions or ()):
        install_kubevirt(cluster, progress, kubevirt_from)
    named = "" if name == DEFAULT_NAME else f" --name {name}"
    Console(highlight=False, soft_wrap=True).print(
        f"Cluster [bold]{name}[/bold] is ready. Kubeconfig: {cluster.kubeconfig}\n"
        f'Next: ./dev demo --kind{named}, or  export KUBECONFIG="$(./dev kubeconfig{named})"'
    )


def down(
    name: Name = DEFAULT_NAME,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Remove all clusters and stop the docker that ./dev started."),
    ] = False,
) -> None:
    """End the demo on this machine, or else remove the kind cluster; the cache stays."""
    cache = Cache()
    progress = open_progress("down", cache)
    if name == DEFAULT_NAME and demo_state(cache).stop():
        progress.say("Demo ended.")
        if not everything:
            return
    names = sorted({name, *list_clusters(cache)}) if everything else [name]
    for one in names:
        found = KindCluster(one, cache).down(progress)
        progress.say(f"Cluster {one} {'removed' if found else 'does not exist'}.")
    if everything and stop_docker(cache):
        progress.say("Private docker daemon stopped.")


def status(
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the state of docker, the cluster, its nodes and the installed operators."""
    if name == DEFAULT_NAME and not (kubeconfig or context) and (running := find_demo()):
        kubeconfig = running.kubeconfig
    rows = list_rows(name, kubeconfig, context)
    if output is OutputFormat.JSON:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        Console(highlight=False).print(render_rows(rows))


def kubeconfig(
    name: Name = DEFAULT_NAME,
    export: Annotated[
        bool,
        typer.Option(
            "--export",
            help="Merge it into ~/.kube/config (or the first file in KUBECONFIG) as context"
            " kind-<name>, and make that context current.",
        ),
    ] = False,
) -> None:
    """Print the path of the kubeconfig of the demo if it runs, else of the kind cluster."""
    if name == DEFAULT_NAME and not export and (running := find_demo()):
        print(running.kubeconfig)
        return
    cluster = KindCluster(name)
    if not cluster.kubeconfig.exists():
        raise ToolError(f"Cluster {name} does not exist: run `{render_up(name)}` first")
    if export:
        _export(cluster)
    else:
        print(cluster.kubeconfig)


def kubectl(arguments: typer.Context) -> None:
    """Run kubectl on the demo if it runs, else on the kind cluster; all arguments are passed on.

    SLIPWAY_CLUSTER selects another kind cluster than slipway.
    """
    name = os.environ.get(CLUSTER_VARIABLE) or DEFAULT_NAME
    target = find_target(None, None, name, demo=True)
    command = target.kubectl.command(*arguments.args)
    environment = dict(os.environ)
    if arguments.args[:1] == ["slipway"]:
        # The plugin of this checkout, which is not on PATH.
        command = [sys.executable, "-m", "kubectl_slipway", *arguments.args[1:]]
        environment |= {
            "KUBECTL": str(target.kubectl.binary),
            "KUBECONFIG": str(target.kubectl.kubeconfig),
            "PYTHONPATH": str(ROOT),
        }
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def install_kubevirt(cluster: KindCluster, progress: Progress, folder: Path | None) -> None:
    """Install KubeVirt and CDI into a running kind cluster.

    Raises:
        ToolError: The releases cannot be obtained, or do not become available.
    """
    # Imported here: it loads parts of the library that no other command of this module needs.
    from lab.kubevirt.install import KubeVirtInstaller

    KubeVirtInstaller(cluster, progress).install(folder)


def _export(cluster: KindCluster) -> None:
    chosen = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    target = Path(chosen) if chosen else Path.home() / ".kube" / "config"
    if target == cluster.kubeconfig:
        raise ToolError("KUBECONFIG is already the cluster's own file: unset it to use --export")
    # The cluster's file comes first: a context of the same name belongs to a deleted cluster.
    paths = os.pathsep.join(str(path) for path in (cluster.kubeconfig, target) if path.exists())
    command = [str(cluster.kubectl().binary), "config", "view", "--flatten", "--raw"]
    merged = commands.read(command, env={"KUBECONFIG": paths})
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.touch(mode=0o600)
    partial.write_text(merged)
    partial.rename(target)
    print(f"Added context kind-{cluster.name} to {target} and made it current.")
