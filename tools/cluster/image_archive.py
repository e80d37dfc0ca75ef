"""Container images without docker: one layer in an archive that docker and containerd load.

The same entries give the same bytes: names are sorted, owners are root, times are the epoch.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_EPOCH: Final = "1970-01-01T00:00:00Z"
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """Place one file, link or directory in the image.

    Attributes:
        name: Absolute path in the image.
        content: The bytes, or the file to take them from; None for a directory or link.
        link: Where a symbolic link points; empty otherwise.
        mode: Permission bits.
    """

    name: str
    content: bytes | Path | None = None
    link: str = ""
    mode: int = 0o755


def write_archive(
    output: Path,
    entries: Iterable[Entry],
    tags: Sequence[str],
    *,
    entrypoint: Sequence[str] = (),
) -> None:
    """Write an image of one layer under all `tags` in the format of `docker save`.

    A tag may contain `{digest}`, which stands for the beginning of the digest of the image.
    """
    layer = output.with_name(f".{output.name}.layer")
    try:
        _write_layer(layer, entries)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        config = _render_config(digest, entrypoint)
        image = hashlib.sha256(config).hexdigest()
        name = f"{image}.json"
        named = [tag.format(digest=image[:16]) for tag in tags]
        manifest = [{"Config": name, "RepoTags": named, "Layers": ["layer.tar"]}]
        with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as archive:
            _add_bytes(archive, name, config)
            _add_file(archive, "layer.tar", layer, 0o644)
            _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
    finally:
        layer.unlink(missing_ok=True)


def read_reference(archive: Path) -> tuple[str, str]:
    """Return the first tag and the id of the image in an archive that `write_archive` wrote."""
    with tarfile.open(archive) as file:
        text = file.extractfile("manifest.json")
        assert text is not None
        (manifest,) = json.load(text)
    return manifest["RepoTags"][0], f"sha256:{manifest['Config'].removesuffix('.json')}"


def architecture() -> str:
    """Return this machine's architecture by the name that images use."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def _render_config(layer_digest: str, entrypoint: Sequence[str]) -> bytes:
    config = {
        "architecture": architecture(),
        "os": "linux",
        "created": _EPOCH,
        "config": {"Env": [_PATH], "Entrypoint": list(entrypoint) or None},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created": _EPOCH}],
    }
    return json.dumps(config, sort_keys=True).encode()


def _write_layer(path: Path, entries: Iterable[Entry]) -> None:
    by_name = {entry.name.strip("/"): entry for entry in entries}
    for name in list(by_name):
        for parent in PurePosixPath(name).parents:
            if str(parent) != ".":
                by_name.setdefault(str(parent), Entry(str(parent)))
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as layer:
        for name, entry in sorted(by_name.items()):
            _add_entry(layer, name, entry)


def _add_entry(layer: tarfile.TarFile, name: str, entry: Entry) -> None:
    if isinstance(entry.content, Path):
        _add_file(layer, name, entry.content, entry.mode)
    elif entry.content is not None:
        _add_bytes(layer, name, entry.content, entry.mode)
    else:
        info = tarfile.TarInfo(name)
        info.type = tarfile.SYMTYPE if entry.link else tarfile.DIRTYPE
        info.linkname = entry.link
        info.mode = 0o777 if entry.link else entry.mode
        layer.addfile(info)


def _add_file(archive: tarfile.TarFile, name: str, source: Path, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = source.stat().st_size
    info.mode = mode
    with source.open("rb", buffering=_CHUNK) as file:
        archive.addfile(info, file)


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = mode
    archive.addfile(info, io.BytesIO(content))
