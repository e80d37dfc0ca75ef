"""Commands on the cluster as a whole: up, down, status, kubeconfig."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tools.cluster import commands
from tools.cluster.cache import Cache
from tools.cluster.docker import stop_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME, KindCluster, list_clusters
from tools.cluster.progress import open_progress
from tools.dev.options import ContextName, Kubeconfig, Name, Workers, find_target, render_up
from tools.dev.status import render_status

_PANEL = "The cluster"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for function in (up, down, status, kubeconfig):
        app.command(rich_help_panel=_PANEL)(function)
    # All that follows goes to kubectl, options too, and the `--` of `kubectl exec`.
    passing = {
        "allow_extra_args": True,
        "allow_interspersed_args": False,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
    app.command(rich_help_panel=_PANEL, context_settings=passing, add_help_option=False)(kubectl)


def up(name: Name = DEFAULT_NAME, workers: Workers = None) -> None:
    """Bring a kind cluster up; docker, node image and programs are made where they are missing."""
    cluster = KindCluster(name)
    cluster.up(open_progress("up", cluster.cache), workers)
    named = "" if name == DEFAULT_NAME else f" --name {name}"
    Console(highlight=False, soft_wrap=True).print(
        f"Cluster [bold]{name}[/bold] is ready. Its kubeconfig: {cluster.kubeconfig}\n"
        f'Next: ./dev demo{named}, or  export KUBECONFIG="$(./dev kubeconfig{named})"'
    )


def down(
    name: Name = DEFAULT_NAME,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every cluster and stop the docker started here.")
    ] = False,
) -> None:
    """Remove the kind cluster; images and programs stay in the cache."""
    cache = Cache()
    progress = open_progress("down", cache)
    names = sorted({name, *list_clusters(cache)}) if everything else [name]
    for one in names:
        found = KindCluster(one, cache).down(progress)
        progress.say(f"Cluster {one} is {'gone' if found else 'not there'}.")
    if everything and stop_docker(cache):
        progress.say("The private docker daemon has stopped.")


def status(
    name: Name = DEFAULT_NAME, kubeconfig: Kubeconfig = None, context: ContextName = None
) -> None:
    """Show docker, the cluster, its nodes, and the operators installed with their readiness."""
    Console(highlight=False).print(render_status(name, kubeconfig, context))


def kubeconfig(
    name: Name = DEFAULT_NAME,
    export: Annotated[
        bool,
        typer.Option(
            "--export",
            help="Merge it into ~/.kube/config, or the first file of KUBECONFIG, as context"
            " kind-<name>, which becomes the current one.",
        ),
    ] = False,
) -> None:
    """Print the path of the cluster's kubeconfig."""
    cluster = KindCluster(name)
    if not cluster.kubeconfig.exists():
        raise ToolError(f"Cluster {name} is not there: run `{render_up(name)}` first")
    if export:
        _export(cluster)
    else:
        print(cluster.kubeconfig)


def kubectl(arguments: typer.Context) -> None:
    """Run kubectl on the kind cluster; all that follows are its arguments."""
    command = find_target(None, None).kubectl.command(*arguments.args)
    sys.stdout.flush()
    os.execv(command[0], command)


def _export(cluster: KindCluster) -> None:
    chosen = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    target = Path(chosen) if chosen else Path.home() / ".kube" / "config"
    if target == cluster.kubeconfig:
        raise ToolError("KUBECONFIG names the cluster's own file already: unset it to use --export")
    # The cluster's file comes first: a context of the same name is of a cluster that is gone.
    paths = os.pathsep.join(str(path) for path in (cluster.kubeconfig, target) if path.exists())
    command = [str(cluster.kubectl().binary), "config", "view", "--flatten", "--raw"]
    merged = commands.read(command, env={"KUBECONFIG": paths})
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.touch(mode=0o600)
    partial.write_text(merged)
    partial.rename(target)
    print(f"Context kind-{cluster.name} is in {target}, and current.")
