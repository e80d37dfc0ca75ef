"""The parts of the guest image: initramfs, kernel modules, partition table, choice of files."""

from __future__ import annotations

import io
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from lab.guest.cpio import write_cpio
from lab.guest.disk import render_partition
from lab.guest.modules import order_modules, read_dependencies
from lab.guest.rootfs import FILES, compile_module, is_kept, is_python, list_own_entries
from tools.cluster.image_archive import Entry

ENTRIES = (
    Entry("/usr/bin/tool", b"program"),
    Entry("/bin", link="usr/bin"),
    Entry("/tmp", mode=0o1777),
)


def pack(*needed: str) -> bytes:
    return lzma.compress(b"\x7fELF\0license=GPL\0depends=" + ",".join(needed).encode() + b"\0x=y\0")


def read_cpio(data: bytes) -> dict[str, tuple[int, bytes]]:
    """Read modes and contents by name, as the documentation of the kernel describes the format."""
    found: dict[str, tuple[int, bytes]] = {}
    place = 0
    while True:
        fields = [int(data[place + 6 + 8 * each : place + 14 + 8 * each], 16) for each in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[place + 110 : place + 110 + name_size - 1].decode()
        place += -(-(110 + name_size) // 4) * 4
        if name == "TRAILER!!!":
            return found
        found[name] = (mode, data[place : place + size])
        place += -(-size // 4) * 4


def test_initramfs_has_the_entries_and_the_directories_above_them() -> None:
    output = io.BytesIO()

    write_cpio(output, ENTRIES)

    assert read_cpio(output.getvalue()) == {
        "bin": (0o120777, b"usr/bin"),
        "tmp": (0o041777, b""),
        "usr": (0o040755, b""),
        "usr/bin": (0o040755, b""),
        "usr/bin/tool": (0o100755, b"program"),
    }


def test_initramfs_is_the_same_for_any_order_of_entries() -> None:
    one, other = io.BytesIO(), io.BytesIO()

    write_cpio(one, ENTRIES)
    write_cpio(other, reversed(ENTRIES))

    assert one.getvalue() == other.getvalue()
    assert one.getvalue().startswith(b"070701")


def test_modules_come_after_what_they_depend_on() -> None:
    packed = {
        "virtio_net": pack("net_failover"),
        "net_failover": pack("failover"),
        "failover": pack(),
        "sound": pack(),
    }

    assert [name for name, _ in order_modules(packed)] == ["failover", "net_failover", "virtio_net"]


def test_module_without_a_list_depends_on_nothing() -> None:
    assert read_dependencies(b"\x7fELF\0license=GPL\0") == []


def test_partition_has_its_place_in_sectors() -> None:
    entry = render_partition(0x83, 1, 8, active=True)

    assert len(entry) == 16
    assert (entry[0], entry[4]) == (0x80, 0x83)
    assert int.from_bytes(entry[8:12], "little") == 2048
    assert int.from_bytes(entry[12:16], "little") == 16384


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("usr/bin/busybox", True),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", True),
        ("usr/lib/x86_64-linux-gnu/libicudata.so.76", False),
        ("usr/bin/perl", False),
    ],
)
def test_programs_and_their_libraries_are_kept(name: str, kept: bool) -> None:
    assert is_kept(name) is kept


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("usr/lib/python3.13/subprocess.py", True),
        ("usr/lib/python3.13/encodings/utf_8.py", True),
        ("usr/lib/python3.13/asyncio/tasks.py", False),
        ("usr/lib/python3/dist-packages/yaml/loader.py", True),
    ],
)
def test_python_modules_that_the_guest_uses_are_kept(name: str, kept: bool) -> None:
    assert is_python(name) is kept


def test_compiled_module_runs_without_its_source(tmp_path: Path) -> None:
    (tmp_path / "part.pyc").write_bytes(compile_module(b"value = 6 * 7\n", "part.py"))

    command = [sys.executable, "-c", "import part; print(part.value)"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    assert done.stdout == "42\n"


@pytest.mark.parametrize("name", ["guest-agent", "init", "shutdown", "start", "udhcpc"])
def test_scripts_of_the_guest_are_valid(name: str) -> None:
    done = subprocess.run(
        ["sh", "-n", str(FILES / name)], check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_own_files_are_placed_where_init_looks_for_them() -> None:
    names = {entry.name for entry in list_own_entries()}

    assert {"/init", "/etc/inittab", "/usr/lib/slipway/start", "/usr/sbin/shutdown"} <= names
