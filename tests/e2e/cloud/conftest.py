"""What runs the machines of these tests: the KubeVirt of the cluster, or one that is simulated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from lab.kubevirt_sim.command import deploy_simulator, has_real, remove_simulator
from libs.common.kinds import Manifest
from operators.compute.samples import IMAGE
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.dev.options import find_target

IMAGE_VARIABLE: Final = "SLIPWAY_E2E_MACHINE_IMAGE"
"""Image of the machines where KubeVirt is real, such as `docker://registry.example.com/debian:13`."""


@dataclass(frozen=True, slots=True)
class KubeVirt:
    """The KubeVirt that runs machines.

    Attributes:
        simulated: Whether it is the simulator, which can have nodes fall silent.
        image: What root disks are filled with.
    """

    simulated: bool
    image: Manifest


@pytest.fixture(scope="module")
def kubevirt(kind_cluster: KindCluster) -> Iterator[KubeVirt]:
    """Use the KubeVirt of the cluster, or a simulated one if there is none.

    The simulated one is ten times as fast as a real one, and goes with the module.
    """
    target = find_target(None, None, kind_cluster.name)
    progress = open_progress("kubevirt-sim")
    if has_real(target):
        image = os.environ.get(IMAGE_VARIABLE)
        assert image, f"KubeVirt is real here: set {IMAGE_VARIABLE} to an image that it can run"
        yield KubeVirt(simulated=False, image={"registry": image})
        return
    deploy_simulator(target, progress, speed=10)
    yield KubeVirt(simulated=True, image=dict(IMAGE))
    remove_simulator(target, progress)
