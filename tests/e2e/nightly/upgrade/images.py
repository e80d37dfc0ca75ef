"""Images of the previous release, built from its code on top of the images of this release."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.upgrade.release import PREVIOUS
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import Progress, open_progress
from tools.images import list_images
from tools.jvm.kit import build_jars

_TAG: Final = "previous"
_DOCKERFILE: Final = """
FROM slipway/{image}:dev
ENV PYTHONPATH=/previous
COPY libs /previous/libs
COPY operators /previous/operators
"""
"""The previous code with the packages of this release, found before the code of this release."""
_JARS: Final = """
COPY kit/agent.jar kit/engine.jar /kit/
"""
"""The previous Java agent, in the image of jmxexporter."""


def previous_image(image: str) -> str:
    """Return the reference of an image of the previous release, such as `podset`."""
    return f"slipway/{image}:{_TAG}"


def build_previous_images(
    operators: tuple[str, ...],
    previous: Path,
    cluster: KindCluster,
    images: Mapping[str, str],
) -> None:
    """Build the images of operators of the previous release and load them into the nodes.

    Args:
        operators: Ids of the operators.
        previous: The unpacked previous release.
        cluster: The cluster.
        images: Images of this release by operator, built when they are read.
    """
    progress = open_progress("e2e-upgrade", cluster.cache)
    docker = ensure_docker(progress, cluster.cache)
    names = [image for operator in operators for image in list_images(operator)]
    for operator in operators:
        assert images[operator], "the images that are extended are built"
    for name in names:
        text = _DOCKERFILE.format(image=name)
        if name == "jmxexporter":
            shutil.copytree(_ensure_jars(previous, cluster, progress), previous / "kit")
            text += _JARS
        file = previous / "Dockerfile"
        file.write_text(text, encoding="utf-8")
        command = ["docker", "build", "--tag", previous_image(name), str(previous)]
        progress.run(command, env=docker.environment())
    cluster.load([previous_image(name) for name in names], progress)


def _ensure_jars(previous: Path, cluster: KindCluster, progress: Progress) -> Path:
    def build(directory: Path) -> None:
        with progress.step("Java agent of the previous release", "20 seconds, once"):
            build_jars(directory, previous / "operators/jmxexporter/guard", progress)

    return cluster.cache.ensure("jvm-previous", PREVIOUS, build)
