"""The jars as an image of nothing else, from which the image of the operator takes them."""

from __future__ import annotations

from typing import Final

from tools.cluster.cache import Cache
from tools.cluster.docker import Docker
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.progress import Progress
from tools.jvm.kit import ensure_kit

NAME: Final = "slipway/jmx-kit:dev"
"""Reference of the image."""
JARS: Final = ("agent", "engine", "upstream")
"""What injectors load."""


def ensure_kit_image(docker: Docker, progress: Progress, cache: Cache | None = None) -> str:
    """Load the image with the jars of now, and return its reference.

    Raises:
        ToolError: The jars cannot be built.
    """
    cache = cache or Cache()
    kit = ensure_kit(progress, cache)
    archive = cache.path("jmx-kit.tar")
    entries = [
        Entry(f"/kit/{name}.jar", (kit / f"{name}.jar").read_bytes(), mode=0o644) for name in JARS
    ]
    write_archive(archive, entries, [NAME])
    docker.read("load", "--input", archive, seconds=300.0)
    return NAME
