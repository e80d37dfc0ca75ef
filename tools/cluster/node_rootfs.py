"""The root file system of a node: Debian packages, and what kind expects to find on top of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tools.cluster import debian
from tools.cluster.node_payload import Programs
from tools.cluster.progress import Progress
from tools.cluster.versions import DEBIAN, KUBERNETES, PAUSE

PACKAGES: Final = [
    "bash",
    "busybox-static",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "curl",
    "dbus",
    "e2fsprogs",
    "ethtool",
    "hostname",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "libseccomp2",
    "mount",
    "netbase",
    "nftables",
    "pigz",
    "procps",
    "runc",
    "socat",
    "systemd",
    "util-linux",
]
_UNUSED: Final = ("doc", "man", "locale", "info")
"""Directories of /usr/share that no node needs."""
_IDLE_UNITS: Final = (
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/basic.target.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/multi-user.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
)
"""Units that make no sense in a container, as in kind's own node image."""
_MANIFESTS: Final = Path(__file__).parent / "manifests"


def install_rootfs(directory: Path, progress: Progress, more: Sequence[str] = ()) -> None:
    """Install the node's packages, and `more`, into a new root file system."""
    debian.install_packages(["mmdebstrap"], progress)
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _UNUSED]
    command += [f"--include={','.join([*PACKAGES, *more])}", DEBIAN, str(directory)]
    progress.run([*command, *debian.list_sources(DEBIAN)])


def run_in_rootfs(rootfs: Path, script: str, progress: Progress) -> str:
    """Run a shell script in the root; its mounts end with it, even if it is killed."""
    enter = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -euc "$1"'
    return progress.run(["unshare", "--mount", "sh", "-euc", enter, str(rootfs), script])


def add_node_files(rootfs: Path, kind_files: Path, programs: Programs, progress: Progress) -> None:
    """Turn a root with the packages into a kind node.

    `kind_files` is the folder `images/base/files` of the kind module.
    """
    _copy_kind_files(kind_files, rootfs)
    for pattern in _IDLE_UNITS:
        for path in rootfs.glob(pattern):
            path.unlink()
    journald = rootfs / "etc/systemd/journald.conf"
    journald.write_text(f"{journald.read_text()}ReadKMsg=no\n")
    _link(rootfs / "usr/sbin/init", "/usr/lib/systemd/systemd")
    for directory in ("etc/kubernetes/manifests", "etc/cni/net.d", "kind/manifests", "opt/cni"):
        (rootfs / directory).mkdir(parents=True, exist_ok=True)
    _configure_systemd(rootfs, progress)
    _configure_containerd(rootfs, progress)
    _add_programs(rootfs, programs)
    (rootfs / "kind/version").write_text(KUBERNETES)
    shutil.copyfile(_MANIFESTS / "storage.yaml", rootfs / "kind/manifests/default-storage.yaml")


def preload_images(rootfs: Path, archives: Sequence[Path], progress: Progress) -> None:
    """Import image archives into the store of the node's containerd, with its own containerd."""
    inside = rootfs / "archives"
    inside.mkdir()
    for archive in archives:
        shutil.copyfile(archive, inside / archive.name)
    shutil.copyfile(_MANIFESTS.parent / "preload.sh", inside / "preload.sh")
    try:
        run_in_rootfs(rootfs, "sh -eu /archives/preload.sh /archives/*.tar", progress)
    finally:
        shutil.rmtree(inside, ignore_errors=True)


def build_runtime_spec(default: dict[str, Any]) -> dict[str, Any]:
    """Return the base spec of containers: kind's hook added, rlimits left to the runtime."""
    hooks = default.setdefault("hooks", {}).setdefault("createContainer", [])
    hooks.append({"path": "/kind/bin/mount-product-files.sh"})
    default["process"].pop("rlimits", None)
    return default


def patch_containerd_config(config: str) -> str:
    """Return kind's configuration with our pause image, for a machine that limits oom_score_adj."""
    lines = []
    for line in config.splitlines():
        if line.strip().startswith("sandbox_image"):
            line = f'  sandbox_image = "registry.k8s.io/pause:{PAUSE}"'
        # Without CAP_SYS_RESOURCE nobody may lower the score; elsewhere this changes nothing.
        if line.strip().startswith("restrict_oom_score_adj"):
            line = "  restrict_oom_score_adj = true"
        lines.append(line)
    return "\n".join([*lines, ""])


def _copy_kind_files(source: Path, rootfs: Path) -> None:
    # The module cache is read-only; modes are those that kind's Dockerfile gives.
    for path in sorted(source.rglob("*")):
        target = rootfs / path.relative_to(source)
        if path.is_dir():
            target.mkdir(exist_ok=True)
            continue
        target.unlink(missing_ok=True)
        shutil.copyfile(path, target)
        program = path.parent.name == "bin"
        target.chmod(0o755 if program else 0o644)


def _configure_systemd(rootfs: Path, progress: Progress) -> None:
    units = "kubelet.service containerd.service undo-mount-hacks.service"
    script = f"systemctl enable {units}; systemctl mask systemd-binfmt.service"
    # A minimal Debian boots to a graphical target.
    run_in_rootfs(rootfs, f"{script}; systemctl set-default multi-user.target", progress)


def _configure_containerd(rootfs: Path, progress: Progress) -> None:
    for name in ("containerd", "ctr", "containerd-shim-runc-v2"):
        _link(rootfs / "usr/local/bin" / name, f"/usr/bin/{name}")
    _link(rootfs / "usr/local/sbin/runc", "/usr/sbin/runc")
    _link(rootfs / "opt/cni/bin", "/usr/lib/cni")
    spec = json.loads(run_in_rootfs(rootfs, "ctr oci spec", progress))
    containerd = rootfs / "etc/containerd"
    (containerd / "cri-base.json").write_text(json.dumps(build_runtime_spec(spec), indent=1))
    config = containerd / "config.toml"
    config.write_text(patch_containerd_config(config.read_text()))


def _add_programs(rootfs: Path, programs: Programs) -> None:
    for source, name in (
        (programs.kube, "usr/bin/kube"),
        (programs.crictl, "usr/local/bin/crictl"),
    ):
        shutil.copyfile(source, rootfs / name)
        (rootfs / name).chmod(0o755)
    for name in ("kubeadm", "kubectl", "kubelet"):
        _link(rootfs / "usr/bin" / name, "kube")


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
