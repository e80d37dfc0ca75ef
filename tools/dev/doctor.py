"""Checks whether this machine meets the requirements of ./dev, without starting anything."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.cluster import debian
from tools.cluster.cache import Cache
from tools.cluster.docker import find_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import list_clusters
from tools.cluster.node_image import PULLED_IMAGE, registry_responds
from tools.images.base import check_builders

_DISK_GIB: Final = 15
"""Size of the cache after everything was built, in GiB."""
_MEMORY_GIB: Final = 4
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the output.

    Attributes:
        what: Name of the check.
        detail: Result, and the remedy if it is not sufficient.
        ok: Whether it is sufficient; None if ./dev can do without it, or install it.
    """

    what: str
    detail: str
    ok: bool | None = True


def examine(cache: Cache) -> Iterator[Finding]:
    """Yield the results, in the order in which `./dev up` and `./dev demo` need the parts."""
    for check in _CHECKS:
        yield check(cache)


def _check_system(_: Cache) -> Finding:
    name = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if platform.system() != "Linux":
        return Finding("system", f"{name}: use Linux; clusters of ./dev need it", ok=False)
    return Finding("system", name)


def _check_packages(_: Cache) -> Finding:
    if debian.is_debian_root():
        return Finding("packages", "root on Debian: ./dev installs missing packages")
    return Finding("packages", "not root on Debian: ./dev cannot install packages", ok=None)


def _check_docker(cache: Cache) -> Finding:
    if docker := find_docker(cache):
        version = docker.read("version", "--format", "{{.Server.Version}}").strip()
        return Finding("docker", version)
    if debian.is_debian_root():
        return Finding("docker", "does not respond: ./dev up installs and starts it", ok=None)
    how = "install and start it: https://docs.docker.com/engine/install"
    return Finding("docker", f"does not respond: {how}", ok=False)


def _check_node_image(cache: Cache) -> Finding:
    docker = find_docker(cache)
    if docker and docker.has_image(PULLED_IMAGE):
        return Finding("node image", PULLED_IMAGE)
    if registry_responds():
        return Finding("node image", f"{PULLED_IMAGE} can be pulled", ok=None)
    if cache.path("node-rootfs").exists() or debian.is_debian_root():
        return Finding("node image", "no registry responds: ./dev builds the image", ok=None)
    how = f"import {PULLED_IMAGE} with `docker load`"
    return Finding("node image", f"no registry responds: {how}", ok=False)


def _check_base_image(cache: Cache) -> Finding:
    try:
        check_builders(cache)
    except ToolError as err:
        return Finding("base image", str(err), ok=False)
    return Finding("base image", "built, or can be built here")


def _check_disk(cache: Cache) -> Finding:
    place = next(path for path in (cache.root, *cache.root.parents) if path.exists())
    free = shutil.disk_usage(place).free / _GIB
    if free < _DISK_GIB:
        detail = (
            f"{free:.0f} of {_DISK_GIB} GiB free in {place}: delete files, or set SLIPWAY_CACHE to"
            " a directory on a larger disk"
        )
        return Finding("disk", detail, ok=False)
    return Finding("disk", f"{free:.0f} GiB free in {place}")


def _check_memory(_: Cache) -> Finding:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    detail = f"{size:.0f} GiB, {os.cpu_count()} cores"
    if size < _MEMORY_GIB:
        return Finding("memory", f"{detail}: a demo needs {_MEMORY_GIB} GiB", ok=False)
    return Finding("memory", detail)


def _check_clusters(cache: Cache) -> Finding:
    names = ", ".join(sorted(list_clusters(cache)))
    return Finding("clusters", names or "none: ./dev up creates one", ok=True if names else None)


def _check_interpreter(_: Cache) -> Finding:
    return Finding("interpreter", str(Path(sys.executable)))


_CHECKS: Final[tuple[Callable[[Cache], Finding], ...]] = (
    _check_system,
    _check_interpreter,
    _check_packages,
    _check_docker,
    _check_node_image,
    _check_base_image,
    _check_disk,
    _check_memory,
    _check_clusters,
)
