"""Serves guests in a kind cluster: over HTTP for CDI, the small one as a container disk as well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lab.guest.build import DISK, UNBOOTABLE, GuestImage, ensure_guest
from lab.guest.node import NODE_DISK, ensure_node_guest
from tools.cluster.cache import Cache
from tools.cluster.docker import ensure_docker
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import Progress

NAME: Final = "slipway/guest"
NAMESPACE: Final = "slipway-guest"
URL: Final = f"http://guest-image.{NAMESPACE}.svc/{DISK}"
"""Where CDI finds the disk of the guest."""
UNBOOTABLE_URL: Final = f"http://guest-image.{NAMESPACE}.svc/{UNBOOTABLE}"
"""Where CDI finds a disk that cannot boot."""
MISSING_URL: Final = f"http://guest-image.{NAMESPACE}.svc/missing.img"
"""A URL that answers 404."""
NODE_URL: Final = f"http://node-image.{NAMESPACE}.svc/{NODE_DISK}"
"""Where CDI finds the disk of a Kubernetes node."""
SLOW_URL: Final = f"http://slow-image.{NAMESPACE}.svc/cgi-bin/{DISK}"
"""Where CDI finds the disk of the guest, sent within about a minute."""
_MANIFEST: Final = Path(__file__).with_name("serve.yaml")
_SLOW_MANIFEST: Final = Path(__file__).with_name("slow.yaml")
_ENTRYPOINT: Final = ("/busybox", "httpd", "-f", "-p", "8080", "-h", "/www")
_READY_SECONDS: Final = 120


def ensure_container_image(progress: Progress, cache: Cache) -> str:
    """Return the reference of the guest as a container image, loaded into docker if missing.

    KubeVirt takes it as a container disk: /disk holds the one file.

    Raises:
        ToolError: The guest cannot be built, or docker does not answer.
    """
    guest = ensure_guest(progress, cache)
    return _ensure_image(f"{NAME}:{guest.key}", list_entries(guest), progress, cache)


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
    _serve(cluster, "guest", reference, progress)
    return reference


def deploy_slow(cluster: KindCluster, progress: Progress) -> None:
    """Serve the guest in a kind cluster a second time, slowly, at `SLOW_URL`.

    Raises:
        ToolError: It cannot be built, or the server does not become ready.
    """
    reference = deploy(cluster, progress)
    _apply(cluster, "slow", _SLOW_MANIFEST.read_text().replace("IMAGE", reference), progress)


def deploy_node(cluster: KindCluster, progress: Progress) -> None:
    """Serve the disk of a Kubernetes node in a kind cluster, at `NODE_URL`.

    Raises:
        ToolError: It cannot be built, or the server does not become ready.
    """
    guest, node = ensure_guest(progress, cluster.cache), ensure_node_guest(progress, cluster.cache)
    entries = (
        Entry("/busybox", guest.folder / "busybox", mode=0o755),
        Entry(f"/www/{NODE_DISK}", node.disk, mode=0o644),
    )
    reference = _ensure_image(f"{NAME}-node:{node.key}", entries, progress, cluster.cache)
    _serve(cluster, "node", reference, progress)


def _ensure_image(
    reference: str, entries: Iterable[Entry], progress: Progress, cache: Cache
) -> str:
    def build(folder: Path) -> None:
        write_archive(folder / "image.tar", entries, [reference], entrypoint=_ENTRYPOINT)

    repository, _, key = reference.rpartition(":")
    archive = cache.ensure(f"{Path(repository).name}-container", key, build) / "image.tar"
    docker = ensure_docker(progress, cache)
    if not docker.has_image(reference):
        docker.read("load", "--input", archive, seconds=300.0)
    return reference


def _serve(cluster: KindCluster, name: str, reference: str, progress: Progress) -> None:
    marker = cluster.cache.path("clusters", cluster.name, "images", name)
    if not marker.exists() or marker.read_text() != reference:
        cluster.load([reference], progress)
        cluster.cache.write(marker, reference)
    manifest = _MANIFEST.read_text().replace("IMAGE", reference).replace("NAME", name)
    _apply(cluster, name, manifest, progress)


def _apply(cluster: KindCluster, name: str, manifest: str, progress: Progress) -> None:
    kubectl = cluster.kubectl()
    with progress.step(f"Image of the {name} served in the cluster", "5 seconds"):
        kubectl.read("apply", "--filename", "-", stdin=manifest)
        waiting = ("rollout", "status", f"deployment/{name}-image", "--namespace", NAMESPACE)
        limit = f"--timeout={_READY_SECONDS}s"
        kubectl.read(*waiting, limit, seconds=_READY_SECONDS + 10.0)
