"""The initramfs: a cpio archive in the format "newc", which the kernel unpacks as its root."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from tools.cluster.image_archive import Entry

_MAGIC: Final = "070701"
_TRAILER: Final = "TRAILER!!!"
_ALIGNMENT: Final = 4


class Writer(Protocol):
    """A binary file, compressed or not."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""


def write_cpio(output: Writer, entries: Iterable[Entry]) -> None:
    """Write entries, owned by root and sorted by name, with the directories above them."""
    by_name = {entry.name.strip("/"): entry for entry in entries}
    for name in list(by_name):
        for parent in PurePosixPath(name).parents:
            if str(parent) != ".":
                by_name.setdefault(str(parent), Entry(str(parent)))
    for number, (name, entry) in enumerate(sorted(by_name.items()), 1):
        mode, content = _describe(entry)
        _write_member(output, name, content, mode, number)
    _write_member(output, _TRAILER, b"", 0, 0)


def _describe(entry: Entry) -> tuple[int, bytes]:
    if entry.link:
        return stat.S_IFLNK | 0o777, entry.link.encode()
    if entry.content is None:
        return stat.S_IFDIR | entry.mode, b""
    content = entry.content
    return stat.S_IFREG | entry.mode, content.read_bytes() if isinstance(content, Path) else content


def _write_member(output: Writer, name: str, content: bytes, mode: int, inode: int) -> None:
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = _MAGIC + "".join(f"{field:08x}" for field in fields)
    _write_padded(output, header.encode() + encoded)
    _write_padded(output, content)


def _write_padded(output: Writer, data: bytes) -> None:
    output.write(data + bytes(-len(data) % _ALIGNMENT))
