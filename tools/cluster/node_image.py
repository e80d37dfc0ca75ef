"""The image of a kind node: pulled where a registry answers, else built from packages."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tools.cluster import debian
from tools.cluster.binaries import ensure_assets, ensure_tool
from tools.cluster.cache import Cache, digest_of
from tools.cluster.docker import Docker
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.node_payload import Programs, write_archives
from tools.cluster.node_rootfs import (
    PACKAGES,
    add_node_files,
    install_rootfs,
    preload_images,
)
from tools.cluster.progress import Progress
from tools.cluster.versions import DEBIAN, KUBERNETES, TOOL_MODULES

PULLED_IMAGE: Final = f"kindest/node:{KUBERNETES}"
_PULL_SECONDS: Final = 600.0
_REFUSAL_SECONDS: Final = 24 * 3600.0
"""How long a registry that did not answer is not asked again."""
_HERE: Final = Path(__file__).parent
_RECIPE: Final = (
    _HERE / "node_rootfs.py",
    _HERE / "node_payload.py",
    _HERE / "image_archive.py",
    _HERE / "preload.sh",
    _HERE / "manifests" / "storage.yaml",
)
"""Files that decide what a locally built image holds."""


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image of a node; we configure the network of a local one, a pulled one does so itself."""

    reference: str
    local: bool


def ensure_node_image(docker: Docker, progress: Progress, cache: Cache | None = None) -> NodeImage:
    """Return a node image that the daemon holds, pulled or built when it is missing.

    Raises:
        ToolError: It can neither be pulled nor built here; the message says what is missing.
    """
    cache = cache or Cache()
    if docker.has_image(PULLED_IMAGE):
        return NodeImage(PULLED_IMAGE, local=False)
    if not refused_recently(cache, time.time()):
        if _pull(docker, progress):
            return NodeImage(PULLED_IMAGE, local=False)
        cache.write(cache.path("node-image-refused"), f"{time.time()}\n")
    if not debian.is_debian_root():
        raise ToolError(
            f"{PULLED_IMAGE} cannot be pulled, and building it requires root on Debian:"
            f" import it with `docker load`, or run ./dev as root on Debian"
        )
    return _build(docker, progress, cache)


def refused_recently(cache: Cache, now: float) -> bool:
    """Return whether the registry refused the image within the last day; `now` in seconds."""
    try:
        return now - float(cache.path("node-image-refused").read_text()) < _REFUSAL_SECONDS
    except (OSError, ValueError):
        return False


def local_image_name(programs: Programs) -> str:
    """Return the name of the image that these programs and our recipe make."""
    # The directories of the programs are named by what the programs are made from.
    keys = [path.parent.name for path in programs.paths()]
    key = digest_of(*keys, *_RECIPE, TOOL_MODULES["kind"], DEBIAN)
    return f"slipway/node:{KUBERNETES}-{key}"


def _pull(docker: Docker, progress: Progress) -> bool:
    with progress.step(f"Pulling {PULLED_IMAGE}", "fails quickly, or takes minutes"):
        # A machine without a registry must not wait for a pull to time out.
        if not registry_responds():
            progress.say("    no registry responds: building the image locally")
            return False
        try:
            docker.read("pull", "--quiet", PULLED_IMAGE, seconds=_PULL_SECONDS)
        except ToolError:
            progress.say("    it cannot be pulled: building the image locally")
            return False
    return True


def registry_responds(url: str = "https://registry-1.docker.io/v2/", seconds: float = 8.0) -> bool:
    """Return whether the registry responds; without a token, the response is 401."""
    try:
        with urllib.request.urlopen(url, timeout=seconds):
            return True
    except urllib.error.HTTPError as err:
        return err.code == HTTPStatus.UNAUTHORIZED
    except OSError:
        return False


def _build(docker: Docker, progress: Progress, cache: Cache) -> NodeImage:
    programs = ensure_programs(progress, cache)
    name = local_image_name(programs)
    image = NodeImage(name, local=True)
    if docker.has_image(name):
        return image
    with cache.lock("node-image", lambda: progress.say("Waiting for another node image build.")):
        if docker.has_image(name):
            return image
        rootfs = ensure_rootfs(progress, cache)
        archives = _ensure_archives(programs, rootfs, progress, cache)
        with progress.step(f"Node image {name}", "about 40 seconds, once"):
            _assemble(docker, name, rootfs, archives, programs, progress, cache)
        _remove_older(docker, name)
    return image


def ensure_programs(progress: Progress, cache: Cache) -> Programs:
    """Return the programs that a node consists of, built when they are missing.

    Raises:
        ToolError: One cannot be built here.
    """

    def tool(name: str) -> Path:
        return ensure_tool(name, progress, cache)

    return Programs(
        # Our own multi-call binary, even if KUBEBUILDER_ASSETS names another directory.
        kube=ensure_assets(progress, cache, environ={}) / "kube",
        coredns=tool("coredns"),
        crictl=tool("crictl"),
        local_path=tool("local-path-provisioner"),
        pause=tool("pause"),
    )


def ensure_rootfs(progress: Progress, cache: Cache, more: Sequence[str] = ()) -> Path:
    """Return a root file system with the packages of a node and `more`, installed when missing.

    Raises:
        ToolError: The packages cannot be had.
    """

    def build(directory: Path) -> None:
        with progress.step("Debian packages of the node", "40 seconds, once"):
            install_rootfs(directory / "rootfs", progress, more)

    return cache.ensure("node-rootfs", digest_of(DEBIAN, *PACKAGES, *more), build) / "rootfs"


def _ensure_archives(
    programs: Programs, rootfs: Path, progress: Progress, cache: Cache
) -> list[Path]:
    def build(directory: Path) -> None:
        with progress.step("Images that the node starts with", "a few seconds"):
            write_archives(programs, rootfs, directory)

    key = local_image_name(programs).rpartition("-")[2]
    return sorted(cache.ensure("node-archives", key, build).glob("*.tar"))


def _assemble(
    docker: Docker,
    name: str,
    packages: Path,
    archives: list[Path],
    programs: Programs,
    progress: Progress,
    cache: Cache,
) -> None:
    go = ensure_go(progress, cache)
    kind = go.module_directory(TOOL_MODULES["kind"])
    work = cache.path("node-assembly")
    shutil.rmtree(work, ignore_errors=True)
    try:
        progress.note("copying the packages")
        progress.run(["cp", "-a", "--reflink=auto", packages, work])
        add_node_files(work, kind / "images/base/files", programs, progress)
        progress.note("importing images into the node's containerd")
        preload_images(work, archives, progress)
        progress.note("importing the node into docker")
        import_rootfs(docker, name, work, progress)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def import_rootfs(docker: Docker, name: str, rootfs: Path, progress: Progress) -> None:
    """Make an image of a root file system with the files of a kind node; systemd runs in it.

    Raises:
        ToolError: Packing or importing it failed.
    """
    imported = f"{name}-import"
    change = ["--change", "ENV container=docker"]
    change += ["--change", 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]']
    tar = ["tar", "-C", str(rootfs), "--numeric-owner", "--xattrs", "-c", "."]
    with subprocess.Popen(tar, stdout=subprocess.PIPE) as packing:
        env = docker.environment()
        progress.run(["docker", "import", *change, "-", imported], env=env, stdin=packing.stdout)
    if packing.returncode:
        raise ToolError(f"Packing {rootfs} failed: see the messages of tar")
    # `docker import` cannot set the stop signal, on which systemd ends.
    docker.read("build", "--tag", name, "-", stdin=f"FROM {imported}\nSTOPSIGNAL SIGRTMIN+3\n")
    docker.read("image", "rm", "--no-prune", imported)


def _remove_older(docker: Docker, name: str) -> None:
    """Remove images of earlier recipes; docker keeps those that a cluster still runs on."""
    query = ("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "slipway/node")
    for image in docker.read(*query).split():
        if image != name:
            with contextlib.suppress(ToolError):
                docker.read("image", "rm", image)
