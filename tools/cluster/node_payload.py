"""The images that a node starts with, made from programs instead of pulled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.cluster import commands
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.versions import COREDNS, ETCD, KUBERNETES, PAUSE, TOOL_MODULES

_COMPONENTS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
)
_XTABLES: Final = "/usr/sbin/xtables-nft-multi"
_XTABLES_MODULES: Final = "usr/lib/*/xtables/*.so"
_IPTABLES: Final = tuple(
    f"{name}{action}" for name in ("iptables", "ip6tables") for action in ("", "-save", "-restore")
)
"""Names by which kube-proxy calls the one program of iptables, in its default mode."""
_BASIC: Final = (
    Entry("/tmp", mode=0o1777),
    Entry("/etc/passwd", b"root:x:0:0:root:/root:/\nnobody:x:65534:65534:nobody:/:/\n", mode=0o644),
    Entry("/etc/group", b"root:x:0:\nnogroup:x:65534:\n", mode=0o644),
)
_LOCAL_PATH_VERSION: Final = TOOL_MODULES["local-path-provisioner"].partition("@")[2]


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs from which the images are built, as files of this machine."""

    kube: Path
    coredns: Path
    crictl: Path
    local_path: Path
    pause: Path

    def paths(self) -> list[Path]:
        """Return all of them."""
        return [self.kube, self.coredns, self.crictl, self.local_path, self.pause]


def write_archives(programs: Programs, rootfs: Path, directory: Path) -> list[Path]:
    """Write the archives of all images into a directory.

    nft for kube-proxy and busybox for sample pods come from the node's packages in `rootfs`.
    """
    kube_tags = [f"registry.k8s.io/{name}:{KUBERNETES}" for name in _COMPONENTS[1:]]
    images: list[tuple[str, Sequence[Entry], Sequence[str], Sequence[str]]] = [
        ("pause", [Entry("/pause", programs.pause)], _tags("pause", PAUSE), ["/pause"]),
        ("kube", _kube_entries(programs.kube, rootfs), [*kube_tags, *_tags("etcd", ETCD)], []),
        ("coredns", _single(programs.coredns), _tags("coredns/coredns", COREDNS), ["/coredns"]),
        (
            "local-path-provisioner",
            _single(programs.local_path),
            [f"docker.io/rancher/local-path-provisioner:{_LOCAL_PATH_VERSION}"],
            [],
        ),
        ("busybox", _busybox_entries(rootfs), ["docker.io/library/busybox:latest"], []),
    ]
    for name, entries, tags, entrypoint in images:
        write_archive(directory / f"{name}.tar", entries, tags, entrypoint=entrypoint)
    return [directory / f"{name}.tar" for name, *_ in images]


def parse_ldd(output: str) -> list[str]:
    """Return the paths of the libraries that `ldd` found."""
    return re.findall(r"(/\S+) \(0x", output)


def _tags(name: str, tag: str) -> list[str]:
    return [f"registry.k8s.io/{name}:{tag}"]


def _single(program: Path) -> list[Entry]:
    return [*_BASIC, Entry(f"/{program.name}", program)]


def _kube_entries(kube: Path, rootfs: Path) -> list[Entry]:
    # kube-proxy calls nft or iptables, the programs here that are not static. Without
    # /etc/protocols nft lists the keys of a map with 6 for tcp; kube-proxy looks for "tcp", takes
    # each for a leftover and deletes it at its next full synchronization: at its restart, or an
    # hour after it.
    programs = ["/usr/sbin/nft", _XTABLES]
    matches = [f"/{each.relative_to(rootfs)}" for each in sorted(rootfs.glob(_XTABLES_MODULES))]
    # The modules of iptables need libraries of their own: libm for the match `statistic`.
    libraries = parse_ldd(commands.read(["chroot", rootfs, "ldd", *programs, *matches]))
    files = [*programs, "/etc/protocols", *sorted(set(libraries)), *matches]
    return [
        *_BASIC,
        Entry("/usr/local/bin/kube", kube),
        *(Entry(f"/usr/local/bin/{name}", link="kube") for name in _COMPONENTS),
        *(Entry(f"/usr/sbin/{name}", link=_XTABLES) for name in _IPTABLES),
        *(Entry(name, _resolve(rootfs, name)) for name in files),
    ]


def _busybox_entries(rootfs: Path) -> list[Entry]:
    applets = commands.read(["chroot", rootfs, "/bin/busybox", "--list"]).split()
    return [
        *_BASIC,
        Entry("/root", mode=0o700),
        Entry("/bin/busybox", _resolve(rootfs, "/bin/busybox")),
        *(Entry(f"/bin/{name}", link="busybox") for name in applets if name != "busybox"),
    ]


def _resolve(rootfs: Path, name: str) -> Path:
    """Follow links inside the root, whose absolute targets mean the root and not this machine."""
    return rootfs / commands.read(["chroot", rootfs, "realpath", name]).strip().lstrip("/")
