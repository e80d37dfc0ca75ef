"""The command that simulates KubeVirt: beside a cluster, or in it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from libs.common.kinds import Manifest
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME
from tools.cluster.progress import Progress, open_progress
from tools.dev.images import load_operator
from tools.dev.operators import ROOT
from tools.dev.options import ContextName, Kubeconfig, Name, Target, find_target

ID: Final = "kubevirt-sim"
_CRD: Final = "virtualmachines.kubevirt.io"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    # What is not an option of ours goes to the simulator itself.
    passing = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("kubevirt-sim", rich_help_panel="The cluster", context_settings=passing)(
        kubevirt_sim
    )


def kubevirt_sim(
    extra: typer.Context,
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Run it in the cluster, with subresources and webhooks."),
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take it and its kinds out of the cluster again.")
    ] = False,
    speed: Annotated[
        float,
        typer.Option("--speed", min=0.1, help="How many seconds of its delays pass in a real one."),
    ] = 1.0,
) -> None:
    """Simulate KubeVirt and CDI for a cluster that has none; further arguments are its own."""
    target = find_target(kubeconfig, context, name)
    refuse_real(target)
    if remove:
        remove_simulator(target, open_progress(ID))
        return
    if deploy:
        deploy_simulator(target, open_progress(ID), speed=speed)
        return
    flags = [f"--speed={speed}", "--log-format=console"]
    flags += [f"--kubeconfig={target.kubectl.kubeconfig}"] if target.kubectl.kubeconfig else []
    flags += [f"--context={target.kubectl.context}"] if target.kubectl.context else []
    flags += ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
    command = [sys.executable, "-m", "tools.kubevirt_sim", *flags, *extra.args]
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, "PYTHONPATH": str(ROOT)})


def deploy_simulator(
    target: Target, progress: Progress, *, speed: float = 1.0, build: bool = True
) -> None:
    """Run the simulator in a kind cluster and wait until it answers.

    `build` False takes the image that was built last.

    Raises:
        ToolError: It is not a kind cluster, or the simulator does not start.
    """
    # At use: these load a good part of the library, which no other command needs.
    from libs.common.testing.certificates import create_certificates
    from tools.kubevirt_sim.deployment import NAMESPACE, build_manifests, service_name

    if target.kind is None:
        raise ToolError("--deploy loads an image into a kind cluster; leave --kubeconfig out")
    image = load_operator(ID, target.kind, progress, build=build)
    with tempfile.TemporaryDirectory() as folder:
        create_certificates(Path(folder), (service_name(),))
        certificates = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    manifests = build_manifests(image, certificates, settings={"speed": str(speed)})
    with progress.step("KubeVirt simulator", "20 s"):
        apply = ("apply", "--server-side", "--force-conflicts", "--filename", "-")
        target.kubectl.read(*apply, stdin=_render(manifests))
        wait = ("rollout", "status", f"deployment/{ID}", "--namespace", NAMESPACE)
        target.kubectl.read(*wait, "--timeout=120s", seconds=130.0)


def remove_simulator(target: Target, progress: Progress) -> None:
    """Take the simulator, its kinds with their objects, and its nodes out of a cluster.

    The kinds go first, while somebody still takes the finalizers off their objects. An APIService
    that nobody answers would keep namespaces from ever being deleted.
    """
    from tools.kubevirt_sim.behavior import SIMULATED_NODE
    from tools.kubevirt_sim.crds import PART_OF
    from tools.kubevirt_sim.deployment import NAMESPACE
    from tools.kubevirt_sim.registration import API_SERVICE, GROUP_VERSION, WEBHOOKS

    delete = ("delete", "--ignore-not-found", "--timeout=60s")
    with progress.step("Removing the KubeVirt simulator", "20 s"):
        for what in (
            ("crds", "--selector", PART_OF),
            (API_SERVICE.plural, GROUP_VERSION),
            (WEBHOOKS.plural, ID),
            ("namespaces", NAMESPACE),
            ("clusterrolebindings", ID),
            ("clusterroles", ID),
            ("nodes", "--selector", SIMULATED_NODE),
        ):
            target.kubectl.read(*delete, *what, seconds=90.0)


def refuse_real(target: Target) -> None:
    """Refuse a cluster that has the real KubeVirt.

    Raises:
        ToolError: It has.
    """
    if has_real(target):
        raise ToolError(f"The cluster has {_CRD} of the real KubeVirt: it needs no simulator")


def has_real(target: Target) -> bool:
    """Tell whether a cluster has the real KubeVirt."""
    from tools.kubevirt_sim.crds import SIMULATED

    found = target.kubectl.items("crds", "--field-selector", f"metadata.name={_CRD}")
    notes = [crd["metadata"].get("annotations") or {} for crd in found]
    return any(note.get(SIMULATED) != "true" for note in notes)


def _render(manifests: list[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
