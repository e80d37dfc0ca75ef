"""Row 32: the same content makes the same image."""

from __future__ import annotations

import os
from pathlib import Path

from tools.cluster.image_archive import Entry, write_archive


def write(path: Path, content: bytes) -> bytes:
    """Write an archive of one file and return its bytes."""
    source = path.with_suffix(".source")
    source.write_bytes(content)
    os.utime(source, (1, len(content) + hash(path.name) % 1000))
    write_archive(path, [Entry("/app"), Entry("/app/run", source, mode=0o644)], ["slipway/x:dev"])
    return path.read_bytes()


def test_same_entries_make_the_same_archive(tmp_path: Path) -> None:
    assert write(tmp_path / "one.tar", b"same") == write(tmp_path / "two.tar", b"same")


def test_different_content_makes_a_different_archive(tmp_path: Path) -> None:
    assert write(tmp_path / "one.tar", b"same") != write(tmp_path / "two.tar", b"some")
