"""Update the packages of the base image, and record their versions in `base.lock`.

The image is built from what Debian has at that moment. The lock is a part of its key in the cache,
so a commit of it makes every machine build the base image again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache
from tools.cluster.progress import Progress
from tools.images.base import LOCK, PACKAGES, extract_packages, store_archive, write_base
from tools.sbom.debian import list_packages

_NOTICE: Final = "# Versions of the base image; written by `python -m tools.images update`.\n"


def update_base(cache: Cache, progress: Progress, lock: Path = LOCK) -> list[str]:
    """Build the base image from the newest packages, and return what changed; empty for nothing.

    Raises:
        ToolError: The packages cannot be had.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root.tar"
        with progress.step("Newest Debian packages", "20 seconds"):
            extract_packages(root, PACKAGES, progress, record=True)
        write_base(Path(folder), root)
        newest = read_versions(Path(folder) / "base.tar")
        changes = compare(read_lock(lock), newest)
        if changes:
            lock.write_text(render_lock(newest))
            store_archive(cache, root)
    return changes


def read_versions(archive: Path) -> dict[str, str]:
    """Return the versions of the packages of a base image by name."""
    return {str(each["name"]): str(each["version"]) for each in list_packages(archive)}


def read_lock(lock: Path) -> dict[str, str]:
    """Return the recorded versions; empty if nothing was recorded."""
    if not lock.exists():
        return {}
    lines = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split() for line in lines)


def render_lock(versions: Mapping[str, str]) -> str:
    """Render the lock: a line per package."""
    return _NOTICE + "".join(f"{name} {versions[name]}\n" for name in sorted(versions))


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line per package that was added, removed or changed."""
    lines = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, "none"), after.get(name, "none")
        if old != new:
            lines.append(f"{name}: {old} -> {new}")
    return lines
