"""What works need on a kind cluster: their operators, and machines that are simulated."""

from __future__ import annotations

from collections.abc import Iterable

from lab.kubevirt_sim.command import deploy_simulator, refuse_real
from tools.cluster.kind_cluster import DEFAULT_NAME, KindCluster
from tools.cluster.progress import open_progress
from tools.demo.cloud import OPERATORS, list_values
from tools.dev.images import load_operator
from tools.dev.install import Release, install
from tools.dev.options import find_target

_SPEED = 10.0
"""Seconds of the delays of KubeVirt that pass in a real second."""


def install_operators(operators: Iterable[str], namespace: str) -> None:
    """Install operators, and a simulated KubeVirt for those that need one.

    Raises:
        ToolError: A step failed.
    """
    wanted = set(operators)
    if "clusters" in wanted:
        wanted |= set(OPERATORS)
    progress = open_progress("soak")
    KindCluster(DEFAULT_NAME).up(progress)
    target = find_target(None, None, DEFAULT_NAME)
    assert target.kind is not None, "the cluster that was brought up is one of kind"
    if wanted & {"compute", "clusters"}:
        refuse_real(target)
        deploy_simulator(target, progress, speed=_SPEED)
    for operator in sorted(wanted):
        image = load_operator(operator, target.kind, progress)
        install(Release(operator, namespace), target, image, progress, list_values(operator))
