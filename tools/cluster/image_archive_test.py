"""Image archives are reproducible, and what docker and containerd expect."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.cluster.image_archive import Entry, write_archive

ENTRIES = (
    Entry("/bin/tool", b"program"),
    Entry("/bin/alias", link="tool"),
    Entry("/tmp", mode=0o1777),
    Entry("/etc/passwd", b"root:x:0:0::/:\n", mode=0o644),
)


def write(path: Path, entries: Sequence[Entry] = ENTRIES) -> bytes:
    write_archive(path, entries, ["example.test/a:1", "example.test/b:2"], entrypoint=["/bin/tool"])
    return path.read_bytes()


def read_layer(archive: Path) -> tarfile.TarFile:
    with tarfile.open(archive) as outer:
        layer = outer.extractfile("layer.tar")
        assert layer is not None
        return tarfile.open(fileobj=io.BytesIO(layer.read()))


def test_same_entries_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    assert write(tmp_path / "one") == write(tmp_path / "two", ENTRIES[::-1])


def test_file_of_the_machine_gives_the_same_bytes_as_its_content(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"program")
    from_file = [Entry("/bin/tool", tmp_path / "tool"), *ENTRIES[1:]]

    assert write(tmp_path / "one") == write(tmp_path / "two", from_file)


def test_layer_digest_and_tags_are_those_of_the_manifest(tmp_path: Path) -> None:
    write(tmp_path / "image")
    with tarfile.open(tmp_path / "image") as archive:
        read = {member.name: archive.extractfile(member) for member in archive}
        contents = {name: file.read() for name, file in read.items() if file}

    (manifest,) = json.loads(contents["manifest.json"])
    config = json.loads(contents[manifest["Config"]])
    assert manifest["RepoTags"] == ["example.test/a:1", "example.test/b:2"]
    assert config["rootfs"]["diff_ids"] == [
        f"sha256:{hashlib.sha256(contents['layer.tar']).hexdigest()}"
    ]
    assert config["config"]["Entrypoint"] == ["/bin/tool"]


def test_layer_has_parents_before_children_modes_and_links(tmp_path: Path) -> None:
    write(tmp_path / "image")
    members = {member.name: member for member in read_layer(tmp_path / "image")}

    assert list(members) == ["bin", "bin/alias", "bin/tool", "etc", "etc/passwd", "tmp"]
    assert members["tmp"].mode == 0o1777
    assert members["bin/alias"].linkname == "tool"
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, 0)}


def test_failed_write_leaves_no_layer_behind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "image", [Entry("/x", tmp_path / "missing")])

    assert [path.name for path in tmp_path.iterdir()] == []
