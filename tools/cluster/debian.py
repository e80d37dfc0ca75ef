"""Debian packages: what the machine lacks, and where its mirror is."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tools.cluster import commands
from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.progress import Progress


def is_debian_root() -> bool:
    """Return whether packages can be installed: on Debian or a derivative, as root."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def check_packages(packages: Iterable[str]) -> list[str]:
    """Return the Debian packages that are missing, and can be installed here.

    Raises:
        ToolError: A package is missing and cannot be installed here.
    """
    missing = [package for package in packages if not _is_installed(package)]
    if missing and not is_debian_root():
        raise ToolError(f"Missing packages: install {', '.join(missing)}, or run as root on Debian")
    return missing


def install_packages(packages: Iterable[str], progress: Progress) -> None:
    """Install Debian packages that are missing.

    Raises:
        ToolError: A package is missing and cannot be installed here.
    """
    missing = check_packages(packages)
    if not missing:
        return
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"Debian packages: {' '.join(missing)}", "about 20 seconds"):
        progress.run(["apt-get", "update"], env=env)
        progress.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], env=env)


def extract_package(package: str, directory: Path) -> None:
    """Download a Debian package and extract its files, without installing it.

    Raises:
        ToolError: This is not Debian, or its archive does not respond.
    """
    with tempfile.TemporaryDirectory() as folder:
        download = ["sh", "-c", f"cd {folder} && apt-get download {package}"]
        try:
            commands.read(download, seconds=300)
        except CommandFailed:
            # The index of the machine is missing or too old.
            commands.read(["apt-get", "update"], seconds=300)
            commands.read(download, seconds=300)
        (archive,) = Path(folder).glob("*.deb")
        commands.read(["dpkg-deb", "--extract", archive, directory])


def parse_mirror(sources: str) -> str | None:
    """Return the first Debian archive of apt's sources, in either of their two formats."""
    for line in sources.splitlines():
        match = re.match(r"(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+)", line.strip())
        if match and re.search(r"/debian/?$", match[1]):
            return match[1].rstrip("/")
    return None


def find_mirror(root: Path = Path("/etc/apt")) -> str | None:
    """Return the Debian archive that this machine uses; None where apt names none."""
    files = [root / "sources.list", *sorted((root / "sources.list.d").glob("*"))]
    for path in files:
        if path.is_file() and (mirror := parse_mirror(path.read_text())):
            return mirror
    return None


def list_sources(suite: str, *, security: bool = False) -> list[str]:
    """Return the sources of a suite for mmdebstrap; empty for its default."""
    mirror = find_mirror()
    if mirror is None:
        return []
    sources = [f"deb {mirror} {suite} main"]
    return [*sources, f"deb {mirror}-security {suite}-security main"] if security else sources


def _is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", package]
    try:
        return commands.read(query) == "installed"
    except ToolError:
        return False
