"""Builds a Kubernetes node as a container with systemd and cloud-init, in place of a guest.

The programs are those of the disk in `node.py`. The kernel is the one of this machine, so that the
container needs no emulation and no KVM. User data has the same effect as in a guest: cloud-init
writes the files and starts the units, kubeadm makes the node.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tools.cluster import debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.docker import Docker
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.node_image import ensure_programs, ensure_rootfs, import_rootfs
from tools.cluster.node_payload import Programs, write_archives
from tools.cluster.node_rootfs import (
    PACKAGES,
    add_node_files,
    preload_images,
    run_in_rootfs,
)
from tools.cluster.progress import Progress
from tools.cluster.versions import DEBIAN, TOOL_MODULES

_NAME: Final = "slipway/node-container"
_FILES: Final = Path(__file__).parent / "container_files"
_MORE: Final = ("cloud-init",)
"""Packages in addition to those of a node of kind."""
_PLACES: Final = {
    "cloud.cfg": ("etc/cloud/cloud.cfg.d/90_slipway.cfg", 0o644),
    "kubelet.yaml": ("etc/kubernetes/kubelet.conf.d/10-container.conf", 0o644),
    "kubelet.env": ("etc/default/kubelet", 0o644),
    "kubeadm": ("usr/local/sbin/kubeadm", 0o755),
    "modprobe": ("usr/local/sbin/modprobe", 0o755),
}
"""Place in the container and mode of each file."""
_UNITS: Final = ("cloud-init-local", "cloud-init", "cloud-config", "cloud-final")
"""Units of cloud-init, which a node of kind has no use for and disables."""
_IMAGES: Final = ("busybox", "coredns", "kube", "pause")
"""Images that containerd has at the start; kubeadm asks no registry for them."""
_RECIPE: Final = (Path(__file__), *sorted(_FILES.iterdir()))
"""Files that decide what the image holds."""


def ensure_container_node(docker: Docker, progress: Progress, cache: Cache | None = None) -> str:
    """Return the reference of the image, which is built when docker does not have it.

    Raises:
        ToolError: It cannot be built here; the message says what is missing.
    """
    cache = cache or Cache()
    programs = ensure_programs(progress, cache)
    keys = [path.parent.name for path in programs.paths()]
    name = f"{_NAME}:{digest_of(*keys, *_RECIPE, *PACKAGES, *_MORE, DEBIAN)}"
    if docker.has_image(name):
        return name
    if not debian.is_debian_root():
        raise ToolError("The container of a node is built as root on Debian only")
    with cache.lock("guest-node", lambda: progress.say("Waiting for another build of the node.")):
        if not docker.has_image(name):
            packages = ensure_rootfs(progress, cache, _MORE)
            with progress.step(f"Image {name}", "about 40 seconds, once"):
                _build(docker, name, packages, programs, progress, cache)
    return name


def _build(
    docker: Docker,
    name: str,
    packages: Path,
    programs: Programs,
    progress: Progress,
    cache: Cache,
) -> None:
    work = cache.path("guest-node-assembly")
    shutil.rmtree(work, ignore_errors=True)
    rootfs, archives = work / "rootfs", work / "archives"
    archives.mkdir(parents=True)
    try:
        progress.run(["cp", "-a", "--reflink=auto", packages, rootfs])
        kind = ensure_go(progress, cache).module_directory(TOOL_MODULES["kind"])
        add_node_files(rootfs, kind / "images/base/files", programs, progress)
        for file, (place, mode) in _PLACES.items():
            target = rootfs / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_FILES / file, target)
            target.chmod(mode)
        run_in_rootfs(rootfs, f"systemctl enable {' '.join(_UNITS)}", progress)
        found = write_archives(programs, rootfs, archives)
        preload_images(rootfs, [each for each in found if each.stem in _IMAGES], progress)
        import_rootfs(docker, name, rootfs, progress)
    finally:
        shutil.rmtree(work, ignore_errors=True)
