"""Kernel modules that the guest loads, in the order in which they depend on one another."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping
from typing import Final

WANTED: Final = (
    "virtio_blk",
    "virtio_net",
    "virtio_scsi",
    "sd_mod",
    "sr_mod",
    "ahci",
    "isofs",
    "vfat",
    "nls_ascii",
    "nls_iso8859-1",
    "button",
    "evdev",
    "virtio-rng",
    "virtio_balloon",
    "qemu_fw_cfg",
)
"""Disks, network, file systems of NoCloud, the power button; built-in ones are skipped."""
_SUFFIX: Final = ".ko.xz"
_DEPENDS: Final = b"\0depends="


def is_module(name: str) -> bool:
    """Return whether a path is a compressed module."""
    return name.endswith(_SUFFIX)


def module_name(path: str) -> str:
    """Return the name of a module, as other modules name it, from its path."""
    return path.rpartition("/")[2].removesuffix(_SUFFIX).replace("-", "_")


def order_modules(packed: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield wanted modules after those they depend on: the name and the unpacked module."""
    seen: set[str] = set()
    for name in WANTED:
        yield from _visit(name.replace("-", "_"), packed, seen)


def read_dependencies(module: bytes) -> list[str]:
    """Return the modules that a module depends on, which stand in its section .modinfo."""
    start = module.find(_DEPENDS)
    if start < 0:
        return []
    text = module[start + len(_DEPENDS) :].split(b"\0", 1)[0].decode()
    return [name.replace("-", "_") for name in text.split(",") if name]


def _visit(name: str, packed: Mapping[str, bytes], seen: set[str]) -> Iterator[tuple[str, bytes]]:
    if name in seen or name not in packed:
        return
    seen.add(name)
    module = lzma.decompress(packed[name])
    for needed in read_dependencies(module):
        yield from _visit(needed, packed, seen)
    yield name, module
