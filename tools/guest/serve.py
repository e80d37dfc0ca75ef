"""Serves the guest in a kind cluster: over HTTP for CDI, and as a container disk for KubeVirt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache
from tools.cluster.docker import ensure_docker
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import Progress
from tools.guest.build import DISK, UNBOOTABLE, GuestImage, ensure_guest

NAME: Final = "slipway/guest"
NAMESPACE: Final = "slipway-guest"
URL: Final = f"http://guest-image.{NAMESPACE}.svc/{DISK}"
"""Where CDI finds the disk of the guest."""
UNBOOTABLE_URL: Final = f"http://guest-image.{NAMESPACE}.svc/{UNBOOTABLE}"
"""Where CDI finds a disk that cannot boot."""
MISSING_URL: Final = f"http://guest-image.{NAMESPACE}.svc/missing.img"
"""A URL that answers 404."""
_MANIFEST: Final = Path(__file__).with_name("serve.yaml")
_ENTRYPOINT: Final = ("/busybox", "httpd", "-f", "-p", "8080", "-h", "/www")
_READY_SECONDS: Final = 120


def ensure_container_image(progress: Progress, cache: Cache) -> str:
    """Return the reference of the guest as a container image, loaded into docker if missing.

    KubeVirt takes it as a container disk: /disk holds the one file.

    Raises:
        ToolError: The guest cannot be built, or docker does not answer.
    """
    guest = ensure_guest(progress, cache)
    reference = f"{NAME}:{guest.key}"

    def build(folder: Path) -> None:
        write_archive(
            folder / "image.tar", list_entries(guest), [reference], entrypoint=_ENTRYPOINT
        )

    archive = cache.ensure("guest-container", guest.key, build) / "image.tar"
    docker = ensure_docker(progress, cache)
    if not docker.has_image(reference):
        docker.read("load", "--input", archive, seconds=300.0)
    return reference


def list_entries(guest: GuestImage) -> Iterator[Entry]:
    """Yield the files of the container image."""
    yield Entry("/busybox", guest.folder / "busybox", mode=0o755)
    yield Entry(f"/disk/{DISK}", guest.disk, mode=0o644)
    yield Entry(f"/www/{DISK}", link=f"/disk/{DISK}")
    yield Entry(f"/www/{UNBOOTABLE}", guest.folder / UNBOOTABLE, mode=0o644)


def deploy(cluster: KindCluster, progress: Progress) -> str:
    """Serve the guest in a kind cluster, and return the reference of its container image.

    Raises:
        ToolError: It cannot be built, or the server does not become ready.
    """
    reference = ensure_container_image(progress, cluster.cache)
    marker = cluster.cache.path("clusters", cluster.name, "images", "guest")
    if not marker.exists() or marker.read_text() != reference:
        cluster.load([reference], progress)
        cluster.cache.write(marker, reference)
    kubectl = cluster.kubectl()
    with progress.step("Guest image served in the cluster", "5 seconds"):
        manifest = _MANIFEST.read_text().replace("IMAGE", reference)
        kubectl.read("apply", "--filename", "-", stdin=manifest)
        waiting = ("rollout", "status", "deployment/guest-image", "--namespace", NAMESPACE)
        limit = f"--timeout={_READY_SECONDS}s"
        kubectl.read(*waiting, limit, seconds=_READY_SECONDS + 10.0)
    return reference
