"""Update the packages of the base image, and record their versions in `base.lock`.

The image is built from what Debian has at that moment. The lock is a part of its key in the cache,
so a commit of it makes every machine build the base image again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache
from tools.cluster.image_archive import Entry
from tools.cluster.progress import Progress
from tools.images import packages as records
from tools.images.base import LOCK, PACKAGES, extract_packages, read_entries, store_archive

_NOTICE: Final = "# Versions of the base image; written by `python -m tools.images update`.\n"

type Versions = dict[str, str]
"""Version by name of the package."""


def update_base(cache: Cache, progress: Progress, lock: Path = LOCK) -> list[str]:
    """Build the base image from the newest packages, and return what changed; empty for nothing.

    Raises:
        ToolError: The packages cannot be had.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root.tar"
        with progress.step("Newest Debian packages", "20 seconds"):
            extract_packages(root, PACKAGES, progress, record=True)
        newest = read_versions(read_entries(root))
        changes = compare(read_lock(lock), newest)
        if changes:
            lock.write_text(render_lock(newest))
            store_archive(cache, root)
    return changes


def read_versions(entries: Iterable[Entry]) -> Versions:
    """Return the versions of the packages of which an image contains files."""
    versions = {}
    for entry in entries:
        if not entry.name.startswith(f"/{records.FOLDER}/"):
            continue
        assert isinstance(entry.content, bytes)
        for line in entry.content.decode().splitlines():
            field, _, value = line.partition(": ")
            if field == "Version":
                versions[entry.name.rpartition("/")[2]] = value
    return versions


def read_lock(lock: Path) -> Versions:
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
