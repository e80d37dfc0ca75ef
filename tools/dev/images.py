"""Build images of operators and load them into the cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tools.cluster.docker import Docker, ensure_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import Progress
from tools.images import build as build_image
from tools.images import list_images

BUILT_VARIABLE: Final = "SLIPWAY_IMAGES_BUILT"
"""Set if all images were already built from this checkout: they are then only loaded."""
TAG: Final = "dev"
"""Tag of the last build; a loaded image has a second tag that identifies its content."""


def load_operator(
    operator: str, cluster: KindCluster, progress: Progress, *, build: bool = True
) -> str:
    """Build and load the images of an operator; return the reference of the operator's image.

    The reference identifies the content, so an install restarts the operator only if its image has
    changed. An app that an operator runs in other pods has a separate image.

    Args:
        build: Whether to build the images. If False, use the last build, tagged `dev`.
    """
    build = build and not os.environ.get(BUILT_VARIABLE)
    for image in list_images(operator)[1:]:
        _load(image, cluster, progress, build=build)
    return _load(operator, cluster, progress, build=build)


def _load(operator: str, cluster: KindCluster, progress: Progress, *, build: bool) -> str:
    docker = ensure_docker(progress, cluster.cache)
    image = f"slipway/{operator}:{TAG}"
    if build:
        image = build_image(operator, TAG, progress)
    elif not docker.has_image(image):
        raise ToolError(f"Image {image} is not built: run `./dev load {operator}`")
    reference = tag_by_content(docker, image)
    marker = _marker(operator, cluster)
    if read_loaded(operator, cluster) == reference:
        progress.say(f"Image {reference} is already in the cluster.")
        return reference
    cluster.load([image, reference], progress)
    cluster.cache.write(marker, reference)
    return reference


def read_loaded(operator: str, cluster: KindCluster) -> str | None:
    """Return the reference of the image that was loaded last, or None."""
    marker = _marker(operator, cluster)
    return marker.read_text().strip() if marker.exists() else None


def tag_by_content(docker: Docker, image: str) -> str:
    """Give the image a second tag that identifies its content, and return that reference."""
    identity = docker.read("image", "inspect", "--format", "{{.Id}}", image).strip()
    reference = content_reference(image, identity)
    docker.read("tag", image, reference)
    return reference


def content_reference(image: str, identity: str) -> str:
    """Return the reference for an image id such as `sha256:0123...`."""
    digest = re.sub("^sha256:", "", identity)[:12]
    return f"{image.rpartition(':')[0]}:{TAG}-{digest}"


def _marker(operator: str, cluster: KindCluster) -> Path:
    return cluster.cache.path("clusters", cluster.name, "images", operator)
