"""The disk of a guest: a boot sector, a partition with kernel and initramfs, one of Linux.

mtools, syslinux and mke2fs write the file systems, so neither a loop device nor root is needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress

BUILDERS: Final = ("e2fsprogs", "mtools", "syslinux", "syslinux-common")
"""Packages of the machine that write the disk."""
_SECTOR: Final = 512
_MEBIBYTE: Final = 1 << 20
_BOOT_START: Final = 1
"""Where the boot partition begins, in MiB; partitioning tools align to it."""
_FAT16: Final = 0x0E
_LINUX: Final = 0x83
_ACTIVE: Final = 0x80
_MBR: Final = Path("/usr/lib/syslinux/mbr/mbr.bin")
_CODE: Final = 440
_SERIAL: Final = "534c4950"
_UUID: Final = "8f0c5bb5-6c0e-4d0a-9d53-1c2ba0a6d001"
# Without tsc=reliable, Linux does not trust the time stamp counter of an emulated processor, and
# each look at the clock is an access to an emulated device. Its mitigations replace each indirect
# jump by code that is slow under emulation, and protect these guests, which live for a test, from
# nobody.
_LINUX_OPTIONS: Final = (
    "console=tty0 console=ttyS0,115200 quiet panic=10 tsc=reliable mitigations=off"
)
_CONFIG: Final = """\
SERIAL 0 115200
DEFAULT slipway
PROMPT 0
LABEL slipway
  KERNEL /vmlinuz
  INITRD /initrd.gz
  APPEND {options}
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """An ext4 partition.

    Attributes:
        label: Label of its file system.
        size: Size in MiB.
        content: Directory that is copied into it; None for an empty file system.
    """

    label: str
    size: int
    content: Path | None = None


STATE: Final = Partition("slipway-state", 8)
"""Where the small guest keeps what must survive a restart."""


def write_disk(
    output: Path,
    kernel: bytes,
    initramfs: Path,
    progress: Progress,
    partition: Partition = STATE,
    *,
    options: str = "",
) -> None:
    """Write the disk, and delete the initramfs, which is on it.

    Args:
        output: Where to write it.
        kernel: The kernel.
        initramfs: File `initrd.gz` with the first root of the kernel.
        progress: Shows the commands.
        partition: The partition after the boot partition.
        options: Further options of the kernel.

    Raises:
        ToolError: A tool is missing or failed.
    """
    folder = output.parent
    (folder / "vmlinuz").write_bytes(kernel)
    (folder / "syslinux.cfg").write_text(
        _CONFIG.format(options=f"{_LINUX_OPTIONS} {options}".rstrip())
    )
    files = [folder / "vmlinuz", initramfs, folder / "syslinux.cfg"]
    boot = _needed(files)
    start = _BOOT_START + boot
    with output.open("wb") as disk:
        disk.write(_render_mbr(boot, partition.size))
        disk.truncate((start + partition.size) * _MEBIBYTE)
    _write_boot(output, files, boot, progress)
    _write_linux(output, start, partition, progress)
    for path in files:
        path.unlink()


def write_unbootable(output: Path) -> None:
    """Write a disk that no firmware boots: it is empty."""
    with output.open("wb") as disk:
        disk.truncate(4 * _MEBIBYTE)


def render_partition(kind: int, start: int, size: int, *, active: bool = False) -> bytes:
    """Return an entry of the partition table; `start` and `size` are in MiB.

    The addresses by cylinder are the ones that say "too large": all firmware of today reads the
    sector numbers behind them.
    """
    beyond = b"\xfe\xff\xff"
    sectors = _MEBIBYTE // _SECTOR
    flag = _ACTIVE if active else 0
    numbers = struct.pack("<II", start * sectors, size * sectors)
    return bytes([flag]) + beyond + bytes([kind]) + beyond + numbers


def _needed(files: list[Path]) -> int:
    """Return the size of the boot partition in MiB, with room for the boot loader."""
    total = sum(path.stat().st_size for path in files)
    return max(20, total // _MEBIBYTE + 4)


def _render_mbr(boot: int, size: int) -> bytes:
    try:
        code = _MBR.read_bytes()[:_CODE]
    except FileNotFoundError as err:
        raise ToolError(f"{_MBR} is missing: install syslinux-common") from err
    table = render_partition(_FAT16, _BOOT_START, boot, active=True)
    table += render_partition(_LINUX, _BOOT_START + boot, size)
    return code.ljust(446, b"\0") + table.ljust(64, b"\0") + b"\x55\xaa"


def _write_boot(disk: Path, files: list[Path], size: int, progress: Progress) -> None:
    offset = _BOOT_START * _MEBIBYTE
    image = f"{disk}@@{offset}"
    sectors = str(size * _MEBIBYTE // _SECTOR)
    hidden = str(offset // _SECTOR)
    geometry = ["-h", "64", "-s", "32", "-T", sectors, "-H", hidden]
    progress.run(["mformat", "-i", image, *geometry, "-N", _SERIAL, "::"])
    env = {"SOURCE_DATE_EPOCH": "0", "MTOOLS_SKIP_CHECK": "1"}
    progress.run(["mcopy", "-i", image, *map(str, files), "::/"], env=env)
    progress.run(["syslinux", "--install", "--offset", str(offset), str(disk)], env=env)


def _write_linux(disk: Path, start: int, partition: Partition, progress: Progress) -> None:
    options = f"offset={start * _MEBIBYTE},hash_seed={_UUID}"
    command = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", partition.label, "-U", _UUID]
    if partition.content is not None:
        command += ["-d", str(partition.content)]
    command += ["-E", options, str(disk), f"{partition.size}m"]
    progress.run(command, env={"SOURCE_DATE_EPOCH": "0"})
