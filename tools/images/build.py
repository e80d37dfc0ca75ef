"""Build the image of an operator, and push it to a registry."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache
from tools.cluster.docker import Docker, ensure_docker
from tools.cluster.errors import ToolError
from tools.cluster.image_archive import read_reference
from tools.cluster.progress import Progress, open_progress
from tools.images.base import BASE_VARIABLE, build_archive, check_builders
from tools.jvm.image import ensure_kit_image

ROOT: Final = Path(__file__).parents[2]
_PREPARATIONS: Final[Mapping[str, Callable[[Docker, Progress], object]]] = {
    "jmxexporter": ensure_kit_image
}
"""What must be there before the image of an operator is built."""
_TOOLS: Final[Mapping[str, str]] = {"kubevirt-sim": "lab/kubevirt_sim"}
"""Images that are not of operators."""


def build(operator_id: str, tag: str = "dev", progress: Progress | None = None) -> str:
    """Build the image of an operator with Pants and return its reference.

    Args:
        operator_id: Folder of the operator in operators/; with `-app`, the folder of its app.
        tag: The tag of the image.

    Raises:
        ToolError: There is no such operator, no docker, or the build failed.
    """
    return build_together([operator_id], tag, progress)[0]


def build_together(
    images: Sequence[str],
    tag: str = "dev",
    progress: Progress | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """Build several images in one run of Pants and return their references.

    Args:
        images: Names of the images.
        tag: The tag of the images.
        progress: Shows the steps.
        labels: Build arguments for labels. Without them, equal code makes equal images.

    Raises:
        ToolError: There is no such operator, no docker, or the build failed.
    """
    folders = [folder_of(image) for image in images]
    for folder in folders:
        if not (ROOT / folder / "BUILD").exists():
            raise ToolError(f"{folder}/BUILD: no such operator; check the id")
    progress = progress or open_progress(f"image-{images[0]}")
    docker = ensure_docker(progress)
    base = ensure_base(docker, progress)
    environment = {
        **docker.environment(),
        "PANTS_DOCKER_BUILD_ARGS": json.dumps(
            [
                f"{name}={value}"
                for name, value in {"TAG": tag, "BASE": base, **(labels or {})}.items()
            ]
        ),
    }
    for image in images:
        if prepare := _PREPARATIONS.get(image):
            prepare(docker, progress)
    references = [f"slipway/{image}:{tag}" for image in images]
    with progress.step(f"Image {', '.join(references)}", "2 minutes the first time"):
        targets = [f"{folder}:image" for folder in folders]
        progress.run([ROOT / "pants", "package", *targets], env=environment, cwd=ROOT)
    return references


def check_needs(progress: Progress) -> None:
    """Check, before anything takes long, that images can be built on this machine.

    Raises:
        ToolError: They cannot; the message says what is missing and how to get it.
    """
    if not os.environ.get(BASE_VARIABLE):
        check_builders(Cache())
    first = not any(Cache().root.glob("pex-*/pex"))
    title = progress.step("What Pants runs on", "a minute at most, once")
    with title if first else contextlib.nullcontext():
        # Looks for its interpreters, and makes what else it needs.
        progress.run([ROOT / "pants", "--pex"])


def list_images(operator: str, root: Path = ROOT) -> list[str]:
    """Return the names of the images of an operator: its own, and the image of its app if any."""
    app = root / "operators" / operator / "app" / "BUILD"
    return [operator, f"{operator}-app"] if app.exists() else [operator]


def list_all_images(root: Path = ROOT) -> list[str]:
    """Return the names of all images that are built here, images of operators first."""
    operators = sorted(path.parent.name for path in root.glob("operators/*/BUILD"))
    return [*(image for operator in operators for image in list_images(operator, root)), *_TOOLS]


def folder_of(image: str) -> str:
    """Return where an image is made: `<id>-app` is what the operator `<id>` runs in its pods."""
    if image in _TOOLS:
        return _TOOLS[image]
    return f"operators/{image.removesuffix('-app')}{'/app' if image.endswith('-app') else ''}"


def push(
    operator_id: str, registry: str, tag: str = "dev", progress: Progress | None = None
) -> str:
    """Push the image of an operator, built before, and return its reference there.

    Args:
        registry: Host and path of the registry, such as registry.example.com/team.

    Raises:
        ToolError: The image is not there, or the registry refused it.
    """
    progress = progress or open_progress(f"push-{operator_id}")
    docker = ensure_docker(progress)
    local = f"slipway/{operator_id}:{tag}"
    if not docker.has_image(local):
        raise ToolError(f"Image {local} is not there: run `python -m tools.images build` first")
    remote = f"{registry.rstrip('/')}/{operator_id}:{tag}"
    docker.read("tag", local, remote)
    with progress.step(f"Push of {remote}"):
        progress.run(["docker", "push", remote], env=docker.environment())
    return remote


def ensure_base(docker: Docker, progress: Progress) -> str:
    """Return the reference of the base image, built and loaded when it is missing."""
    if chosen := os.environ.get(BASE_VARIABLE):
        return chosen
    archive = build_archive(Cache(), progress)
    reference, identity = read_reference(archive)
    # Anyone can move a tag, so what the daemon has under it counts.
    if identity not in docker.read("images", "--no-trunc", "--quiet", reference):
        with progress.step("Loading the base image"):
            docker.read("load", "--input", archive, seconds=300.0)
    return reference
