"""Where files are put for a JVM, and what is known of one that was seen before.

Files are in /tmp, which a JVM needs anyway to be attached to. They are not in /dev/shm: the
containers of a pod share it, so that a neighbor of the same user could replace a jar before the JVM
opens it, and its pages count against the memory limit of the pod.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from operators.jmxexporter.injector.processes import Process

_RECORD_PREFIX: Final = "jvm-"
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_PLACE: Final = "/tmp"  # noqa: S108 - only a directory that belongs to us is used.
_FORMER_PLACE: Final = "/dev/shm"  # noqa: S108 - it is only read.
"""Where version 0.1 kept its files; the records of JVMs that it instrumented are still read."""


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """A directory, with its paths inside and outside of the container.

    Attributes:
        inside: As the JVM sees it.
        outside: As we reach it.
    """

    inside: str
    outside: Path

    def put(self, name: str, content: bytes) -> str:
        """Write a file whole unless it is there, and return its path as the JVM sees it.

        Files are never overwritten: a jar that is loaded must not change below its JVM. So names
        of jars and configurations tell their content.
        """
        path = self.outside / name
        if not path.exists() or path.read_bytes() != content:
            # No process id: two injectors may have the same one, each in a namespace of its own.
            partial = self.outside / f".{name}.{secrets.token_hex(8)}"
            with partial.open("wb") as file:
                file.write(content)
            partial.rename(path)
        return f"{self.inside}/{name}"

    def put_jar(self, jar: Path) -> str:
        """Copy a jar under a name that tells its content; see `put`."""
        content = jar.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:12]
        return self.put(f"{jar.stem}-{digest}.jar", content)

    def clear(self) -> None:
        """Remove everything unless another JVM still has a record here.

        A JVM that has a jar open keeps it: only the name disappears.
        """
        with contextlib.suppress(OSError):
            names = [entry.name for entry in self.outside.iterdir()]
            if not any(name.startswith(_RECORD_PREFIX) for name in names):
                self.remove(*names)

    def remove(self, *names: str) -> None:
        """Remove files that may be there."""
        for name in names:
            with contextlib.suppress(OSError):
                (self.outside / name).unlink()


@dataclass(frozen=True, slots=True)
class Record:
    """The record of the files that were loaded into a JVM, or were about to be loaded.

    Attributes:
        port: Port that it serves at.
        config_hash: Hash of its configuration.
        path: Path that it serves at.
        encrypted: Whether it serves HTTPS.
        closed: Whether the metrics need a login or a certificate.
    """

    port: int
    config_hash: str
    path: str = "/metrics"
    encrypted: bool = False
    closed: bool = False


def find_directory(process: Process, name: str, *, dry: bool = False) -> SharedDirectory | None:
    """Return a directory of ours that the JVM can read; None when there is no place for one.

    Args:
        process: The JVM.
        name: Name of the directory; our user's id is added.
        dry: Name the place where the directory would be made, and make none.
    """
    inside = f"{_PLACE}/{name}-{os.geteuid()}"
    try:
        directory = process.root.resolve(_PLACE)
        outside = directory / f"{name}-{os.geteuid()}"
        if dry and not outside.exists():
            return (
                SharedDirectory(inside, outside)
                if os.access(directory, os.W_OK | os.X_OK)
                else None
            )
        outside.mkdir(mode=0o700, exist_ok=True)
        return SharedDirectory(inside, outside) if _is_ours(outside) else None
    except OSError:
        return None


def _is_ours(directory: Path) -> bool:
    mode = directory.lstat()
    owned = stat.S_ISDIR(mode.st_mode) and mode.st_uid == os.geteuid()
    return owned and not mode.st_mode & 0o022


def record_name(process: Process) -> str:
    """Name the record of one JVM; its start tells it from another with the same id."""
    return f"{_RECORD_PREFIX}{process.pid}-{process.start}.json"


def read_record(shared: SharedDirectory, process: Process) -> Record | None:
    """Return what was put into a JVM before; None for nothing."""
    return _parse_record(shared.outside, process) or _read_former(shared, process)


def _read_former(shared: SharedDirectory, process: Process) -> Record | None:
    try:
        directory = process.root.resolve(_FORMER_PLACE) / shared.outside.name
        return _parse_record(directory, process) if _is_ours(directory) else None
    except OSError:
        return None


def _parse_record(directory: Path, process: Process) -> Record | None:
    try:
        raw = json.loads((directory / record_name(process)).read_text())
        path = str(raw.get("path", "/metrics"))
        return Record(
            int(raw["port"]),
            str(raw["config_hash"]),
            path,
            encrypted=raw.get("encrypted") is True,
            closed=raw.get("closed") is True,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_record(shared: SharedDirectory, process: Process, record: Record) -> None:
    """Remember what was put into a JVM."""
    shared.put(record_name(process), json.dumps(asdict(record)).encode())


def render_properties(values: Mapping[str, str]) -> bytes:
    """Render a properties file as Java reads it."""
    lines = []
    for name, value in sorted(values.items()):
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        text = "".join(sign if " " <= sign <= "~" else _escape(sign) for sign in escaped)
        lines.append(f"{name}={text}\n")
    return "".join(lines).encode("ascii")


def _escape(sign: str) -> str:
    raw = sign.encode("utf-16-be")
    return "".join(f"\\u{raw[at : at + 2].hex()}" for at in range(0, len(raw), 2))


def parse_properties(content: bytes) -> dict[str, str]:
    """Read a properties file as Java writes it."""
    values = {}
    for line in content.decode("latin-1").splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            values[name] = _ESCAPE.sub(_unescape, value).encode("utf-16", "surrogatepass")
    return {name: value.decode("utf-16", "replace") for name, value in values.items()}


def _unescape(match: re.Match[str]) -> str:
    code, sign = match.groups()
    return (
        chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(sign, sign)
    )
