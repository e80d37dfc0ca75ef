"""Builds the guest once for each state of its recipe and keeps it in the cache."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.guest.cpio import write_cpio
from lab.guest.disk import BUILDERS, write_disk, write_unbootable
from lab.guest.rootfs import FILES, NOCLOUD, PACKAGES, Packages, list_own_entries
from tools.cluster import debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.image_archive import architecture
from tools.cluster.progress import Progress
from tools.images.base import extract_packages

DISK: Final = "guest.img"
"""The disk of the guest, a raw image."""
UNBOOTABLE: Final = "empty.img"
"""A disk that cannot boot, to test what becomes of a machine that is given one."""
_HERE: Final = Path(__file__).parent
_RECIPE: Final = ("build.py", "cpio.py", "disk.py", "modules.py", "rootfs.py")
"""Modules that decide what the guest holds."""


@dataclass(frozen=True, slots=True)
class GuestImage:
    """The files of a built guest.

    Attributes:
        folder: Folder of the files.
        key: What they were built from.
    """

    folder: Path
    key: str

    @property
    def disk(self) -> Path:
        """Return the disk of the guest."""
        return self.folder / DISK


def guest_key() -> str:
    """Return the hash of everything of ours that decides what the guest holds."""
    recipe = [*(_HERE / name for name in _RECIPE), *NOCLOUD.glob("*.py"), *FILES.iterdir()]
    return digest_of(*(path for path in sorted(recipe) if not path.name.endswith("_test.py")))


def ensure_guest(progress: Progress, cache: Cache | None = None) -> GuestImage:
    """Return the guest, built when it is missing.

    Raises:
        ToolError: It cannot be built here; the message says what is missing.
    """
    if architecture() != "amd64":
        raise ToolError(f"The guest image is built on amd64 only, not on {architecture()}")
    key = guest_key()

    def build(folder: Path) -> None:
        with progress.step("Guest image from Debian packages", "40 seconds, once"):
            _build(folder, progress)

    return GuestImage((cache or Cache()).ensure("guest", key, build), key)


def _build(folder: Path, progress: Progress) -> None:
    debian.install_packages(BUILDERS, progress)
    archive, initramfs = folder / "root.tar", folder / "initrd.gz"
    extract_packages(archive, PACKAGES, progress)
    progress.note("initramfs")
    packages = Packages(archive)
    archive.unlink()
    entries = [*packages.entries, *list_own_entries()]
    with initramfs.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as output:
        write_cpio(output, entries)
    progress.note("disk")
    write_disk(folder / DISK, packages.kernel, initramfs, progress)
    write_unbootable(folder / UNBOOTABLE)
    (folder / "busybox").write_bytes(packages.busybox)
