"""The command `kubevirt-sim`, which simulates KubeVirt outside a cluster or inside it."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from tools.cluster.command_line import run
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME
from tools.cluster.kubectl import render_list
from tools.cluster.progress import Progress, open_progress
from tools.dev.images import load_operator
from tools.dev.operators import ROOT
from tools.dev.options import ContextName, Kubeconfig, Name, Target, find_target

ID: Final = "kubevirt-sim"
_CRD: Final = "virtualmachines.kubevirt.io"


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
        bool, typer.Option("--remove", help="Remove the simulator and its CRDs from the cluster.")
    ] = False,
    speed: Annotated[
        float,
        typer.Option("--speed", min=0.1, help="Simulated seconds of delay per real second."),
    ] = 1.0,
) -> None:
    """Simulate KubeVirt and CDI for a cluster without them; other arguments go to the simulator."""
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
    command = [sys.executable, "-m", "lab.kubevirt_sim", *flags, *extra.args]
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, "PYTHONPATH": str(ROOT)})


def deploy_simulator(
    target: Target,
    progress: Progress,
    *,
    speed: float = 1.0,
    load_balancer: str = "Off",
    build: bool = True,
) -> None:
    """Run the simulator in a kind cluster and wait until it is ready.

    `load_balancer` names the load balancer to simulate. If `build` is False, use the last build.

    Raises:
        ToolError: The target is not a kind cluster, or the simulator does not start.
    """
    # Imported here: these load much of the library, which no other command needs.
    from lab.kubevirt_sim.deployment import NAMESPACE, build_manifests, service_name
    from libs.common.testing.certificates import create_certificates

    if target.kind is None:
        raise ToolError("--deploy requires a kind cluster: remove --kubeconfig and --context")
    image = load_operator(ID, target.kind, progress, build=build)
    with tempfile.TemporaryDirectory() as folder:
        create_certificates(Path(folder), (service_name(),))
        certificates = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    settings = {"speed": str(speed), "load-balancer": load_balancer}
    manifests = build_manifests(image, certificates, settings=settings)
    with progress.step("KubeVirt simulator", "20 s"):
        apply = ("apply", "--server-side", "--force-conflicts", "--filename", "-")
        target.kubectl.read(*apply, stdin=render_list(manifests))
        wait = ("rollout", "status", f"deployment/{ID}", "--namespace", NAMESPACE)
        target.kubectl.read(*wait, "--timeout=120s", seconds=130.0)


def remove_simulator(target: Target, progress: Progress) -> None:
    """Remove the simulator, its CRDs with their objects, and its nodes from a cluster.

    The CRDs are deleted first, while the simulator still removes the finalizers from their objects.
    An APIService without a backend would block the deletion of every namespace.
    """
    from lab.kubevirt_sim.behavior import SIMULATED_NODE
    from lab.kubevirt_sim.crds import PART_OF
    from lab.kubevirt_sim.deployment import NAMESPACE
    from lab.kubevirt_sim.registration import API_SERVICE, GROUP_VERSION, WEBHOOKS
    from lab.kubevirt_sim.storage import CLASS_NAME
    from libs.common.kinds import STORAGE_CLASS

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
            (STORAGE_CLASS.plural, CLASS_NAME),
        ):
            target.kubectl.read(*delete, *what, seconds=90.0)


def refuse_real(target: Target) -> None:
    """Refuse a cluster that has the real KubeVirt.

    Raises:
        ToolError: The cluster has the real KubeVirt.
    """
    if has_real(target):
        raise ToolError(f"The cluster has the real KubeVirt ({_CRD}): it needs no simulator")


def has_real(target: Target) -> bool:
    """Return whether a cluster has the real KubeVirt."""
    from lab.kubevirt_sim.crds import SIMULATED

    found = target.kubectl.items("crds", "--field-selector", f"metadata.name={_CRD}")
    notes = [crd["metadata"].get("annotations") or {} for crd in found]
    return any(note.get(SIMULATED) != "true" for note in notes)


def main() -> int:
    """Run the command line and return its exit status."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    # Options that are not declared here are passed to the simulator.
    passing = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=passing)(kubevirt_sim)
    return run(lambda: app(prog_name=f"./dev {ID}"))


if __name__ == "__main__":
    raise SystemExit(main())
