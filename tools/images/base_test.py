"""What the base image holds of its packages."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tools.cluster.cache import Cache
from tools.cluster.docker import Docker
from tools.cluster.image_archive import read_reference
from tools.cluster.progress import open_progress
from tools.images.base import base_key, is_kept, read_entries, store_archive
from tools.images.build import ensure_base


def write_root(path: Path, files: dict[str, bytes], links: dict[str, str]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            info.mode = 0o755
            archive.addfile(info, io.BytesIO(content))
        for name, target in links.items():
            info = tarfile.TarInfo(f"./{name}")
            info.type = tarfile.SYMTYPE
            info.linkname = target
            archive.addfile(info)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "usr/bin/python3.13",
        "usr/lib/python3.13/json/decoder.py",
        "usr/lib/x86_64-linux-gnu/libssl.so.3",
        "usr/lib/aarch64-linux-gnu/libc.so.6",
        "usr/lib64/ld-linux-x86-64.so.2",
        "usr/lib/ld-linux-aarch64.so.1",
        "usr/share/zoneinfo/Europe/Berlin",
        "usr/share/doc/tzdata/copyright",
    ],
)
def test_files_that_python_needs_are_kept(name: str) -> None:
    assert is_kept(name)


@pytest.mark.parametrize(
    "name",
    [
        "bin/sh",
        "usr/bin/dash",
        "usr/bin/openssl",
        "usr/bin/perl",
        "usr/sbin/update-ca-certificates",
        "usr/lib/python3.13/ensurepip/__init__.py",
        "usr/lib/x86_64-linux-gnu/libperl.so.5.40",
        "usr/share/man/man1/openssl.1.gz",
        "var/lib/dpkg/status",
    ],
)
def test_programs_and_documentation_are_left_out(name: str) -> None:
    assert not is_kept(name)


def test_root_becomes_entries_with_what_set_up_would_add(tmp_path: Path) -> None:
    files = {
        "usr/bin/python3.13": b"python",
        "usr/bin/dash": b"shell",
        "usr/share/ca-certificates/mozilla/b.crt": b"second\n",
        "usr/share/ca-certificates/mozilla/a.crt": b"first\n",
    }
    links = {"usr/lib64/ld-linux-x86-64.so.2": "../lib/ld.so"}

    entries = read_entries(write_root(tmp_path / "root.tar", files, links))

    by_name = {entry.name: entry for entry in entries}
    assert by_name["/usr/bin/python3.13"].content == b"python"
    assert by_name["/usr/lib64/ld-linux-x86-64.so.2"].link == "../lib/ld.so"
    assert by_name["/etc/ssl/certs/ca-certificates.crt"].content == b"first\nsecond\n"
    assert by_name["/lib64"].link == "usr/lib64"
    assert by_name["/tmp"].mode == 0o1777
    assert "/usr/bin/dash" not in by_name
    passwd = by_name["/etc/passwd"].content
    assert isinstance(passwd, bytes)
    assert b"nonroot:x:65532:65532:" in passwd


def test_tag_of_the_base_names_its_content(tmp_path: Path) -> None:
    found = []
    for folder, content in (("one", b"python"), ("two", b"other"), ("three", b"python")):
        cache = Cache(tmp_path / folder)
        root = write_root(cache.path("root.tar"), {"usr/bin/python3.13": content}, {})
        store_archive(cache, root)
        archive = cache.find("base-image", base_key())
        assert archive is not None
        found.append(read_reference(archive / "base.tar"))

    one, two, three = found
    assert one == three
    assert one[0] != two[0]
    for tag, identity in found:
        assert tag == f"slipway/base:py313-{identity.removeprefix('sha256:')[:16]}"


def test_image_that_somebody_put_under_the_tag_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path)
    store_archive(cache, write_root(cache.path("root.tar"), {"usr/bin/python3.13": b"x"}, {}))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLIPWAY_BASE_IMAGE", raising=False)
    archive = cache.find("base-image", base_key())
    assert archive is not None
    tag, identity = read_reference(archive / "base.tar")
    loads = tmp_path / "loads"
    for present, expected in (("", 1), ("sha256:" + "0" * 64, 2), (identity, 2)):
        docker = tmp_path / "docker"
        answer = f'[ "$1" = load ] && echo "$3" >>{loads} || echo {present}'
        docker.write_text(f"#!/bin/sh\n{answer}\n")
        docker.chmod(0o755)
        assert ensure_base(Docker(), open_progress("test")) == tag
        assert loads.read_text().splitlines() == [str(archive / "base.tar")] * expected
