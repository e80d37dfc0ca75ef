"""Builds the disk of a Kubernetes node: Debian with containerd, kubeadm and cloud-init.

It is what image-builder makes for users, built from packages and from programs that the cache has:
the operator clusters turns such a machine into a node by user data alone.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.guest.disk import BUILDERS, Partition, write_disk
from tools.cluster import debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.image_archive import architecture
from tools.cluster.node_image import ensure_programs
from tools.cluster.node_payload import Programs, write_archives
from tools.cluster.node_rootfs import PACKAGES, preload_images, run_in_rootfs
from tools.cluster.progress import Progress
from tools.cluster.versions import PAUSE
from tools.images.base import SUITE

NODE_DISK: Final = "node.img.gz"
"""The disk of the node, a raw image that gzip compressed; CDI unpacks it."""
_HERE: Final = Path(__file__).parent
_FILES: Final = _HERE / "node_files"
_RECIPE: Final = (
    _HERE / "disk.py",
    _HERE / "node.py",
    _HERE.parent / "cluster" / "node_payload.py",
    *sorted(_FILES.iterdir()),
)
"""Files that decide what the disk holds."""
_MORE: Final = (
    "cloud-init",
    "initramfs-tools",
    "linux-image-cloud-amd64",
    "qemu-guest-agent",
    "systemd-resolved",
    "systemd-sysv",
    "udev",
)
"""Packages that a machine needs in addition to a node in a container."""
_PLACES: Final = {
    "cloud.cfg": "etc/cloud/cloud.cfg.d/90_slipway.cfg",
    "containerd.toml": "etc/containerd/config.toml",
    "kubelet.service": "etc/systemd/system/kubelet.service",
}
_TEXTS: Final = {
    "etc/fstab": "LABEL=slipway-root / ext4 defaults 0 1\n",
    "etc/machine-id": "",
    "etc/modules-load.d/kubernetes.conf": "overlay\nbr_netfilter\n",
}
_UNITS: Final = ("containerd", "kubelet", "systemd-networkd", "systemd-resolved")
_UNUSED: Final = ("doc", "man", "locale", "info")
"""Directories of /usr/share that no node needs."""
_ROOT_MEBIBYTES: Final = 3072
"""Size of the root partition: what it holds, and room for logs, etcd and containers."""
_OPTIONS: Final = "root=LABEL=slipway-root ro"
_IMAGES: Final = ("busybox", "coredns", "kube", "pause")
"""Images that containerd has when the machine boots; kubeadm asks no registry for them."""


@dataclass(frozen=True, slots=True)
class NodeGuest:
    """The files of a built node.

    Attributes:
        folder: Folder of the files.
        key: What they were built from.
    """

    folder: Path
    key: str

    @property
    def disk(self) -> Path:
        """Return the compressed disk."""
        return self.folder / NODE_DISK


def ensure_node_guest(progress: Progress, cache: Cache | None = None) -> NodeGuest:
    """Return the node, built when it is missing.

    Raises:
        ToolError: It cannot be built here; the message says what is missing.
    """
    if architecture() != "amd64" or not debian.is_debian_root():
        raise ToolError("The disk of a node is built on amd64 only, as root on Debian")
    cache = cache or Cache()
    programs = ensure_programs(progress, cache)
    keys = [path.parent.name for path in programs.paths()]
    key = digest_of(*keys, *_RECIPE, *PACKAGES, SUITE)

    def build(folder: Path) -> None:
        with progress.step("Disk of a Kubernetes node from Debian packages", "3 minutes, once"):
            _build(folder, programs, progress)

    return NodeGuest(cache.ensure("node-guest", key, build), key)


def _build(folder: Path, programs: Programs, progress: Progress) -> None:
    debian.install_packages(["mmdebstrap", *BUILDERS], progress)
    rootfs, archives = folder / "rootfs", folder / "archives"
    try:
        progress.note("packages")
        _install_packages(rootfs, progress)
        _add_files(rootfs, programs, progress)
        progress.note("container images")
        archives.mkdir()
        found = write_archives(programs, rootfs, archives)
        preload_images(rootfs, [each for each in found if each.stem in _IMAGES], progress)
        progress.note("disk")
        _write_disk(folder, rootfs, progress)
    finally:
        for each in (rootfs, archives):
            shutil.rmtree(each, ignore_errors=True)


def _install_packages(rootfs: Path, progress: Progress) -> None:
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _UNUSED]
    command += [f"--include={','.join([*PACKAGES, *_MORE])}", SUITE, str(rootfs)]
    progress.run([*command, *debian.list_sources(SUITE)])


def _add_files(rootfs: Path, programs: Programs, progress: Progress) -> None:
    for name, place in _PLACES.items():
        _write(rootfs / place, (_FILES / name).read_text().replace("PAUSE", PAUSE))
    for place, text in _TEXTS.items():
        _write(rootfs / place, text)
    for source, place in (
        (programs.kube, "usr/bin/kube"),
        (programs.crictl, "usr/local/bin/crictl"),
    ):
        shutil.copyfile(source, rootfs / place)
        (rootfs / place).chmod(0o755)
    for name in ("kubeadm", "kubectl", "kubelet"):
        (rootfs / "usr/bin" / name).symlink_to("kube")
    units = " ".join(_UNITS)
    run_in_rootfs(rootfs, f"systemctl enable {units}", progress)
    # What resolved knows comes from the network of the machine.
    resolv = rootfs / "etc/resolv.conf"
    resolv.unlink(missing_ok=True)
    resolv.symlink_to("../run/systemd/resolve/stub-resolv.conf")


def _write_disk(folder: Path, rootfs: Path, progress: Progress) -> None:
    boot = rootfs / "boot"
    kernel = _only(boot.glob("vmlinuz-*")).read_bytes()
    initramfs = folder / "initrd.gz"
    shutil.move(_only(boot.glob("initrd.img-*")), initramfs)
    disk = folder / "node.img"
    root = Partition("slipway-root", _ROOT_MEBIBYTES, rootfs)
    write_disk(disk, kernel, initramfs, progress, root, options=_OPTIONS)
    with disk.open("rb") as raw, gzip.open(folder / NODE_DISK, "wb", compresslevel=1) as output:
        shutil.copyfileobj(raw, output, 1 << 20)
    disk.unlink()


def _only(paths: Iterator[Path]) -> Path:
    """Return the one path; packages that bring two kernels would be a mistake of ours."""
    (found,) = paths
    return found


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
