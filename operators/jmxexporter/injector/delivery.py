"""Files for a JVM, and the record of an endpoint that an earlier injector created.

The files are in /tmp, which attaching to a JVM requires anyway. They are not in /dev/shm: the
containers of a pod share it, so another container with the same user could replace a jar before the
JVM opens it. Its pages also count against the memory limit of the pod.
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
"""Directory of the files of version 0.1; the records in it are still read."""


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """A directory, with its paths inside and outside of the container.

    Attributes:
        inside: Path as the JVM sees it.
        outside: Path as the injector sees it.
    """

    inside: str
    outside: Path

    def put(self, name: str, content: bytes) -> str:
        """Write a file unless it exists with this content; return its path as the JVM sees it.

        An existing file is replaced and never changed in place, because a JVM may have it open.
        """
        path = self.outside / name
        if not path.exists() or path.read_bytes() != content:
            # Injectors in different process namespaces may have the same process id.
            partial = self.outside / f".{name}.{secrets.token_hex(8)}"
            with partial.open("wb") as file:
                file.write(content)
            partial.rename(path)
        return f"{self.inside}/{name}"

    def put_jar(self, jar: Path) -> str:
        """Copy a jar under a name that contains a hash of its content."""
        content = jar.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:12]
        return self.put(f"{jar.stem}-{digest}.jar", content)

    def clear(self) -> None:
        """Remove all files unless another JVM still has a record here.

        A JVM that has a jar open can still read it: only its name disappears.
        """
        with contextlib.suppress(OSError):
            names = [entry.name for entry in self.outside.iterdir()]
            if not any(name.startswith(_RECORD_PREFIX) for name in names):
                self.remove(*names)

    def remove(self, *names: str) -> None:
        """Remove files if they exist."""
        for name in names:
            with contextlib.suppress(OSError):
                (self.outside / name).unlink()


@dataclass(frozen=True, slots=True)
class Record:
    """The record of an endpoint that was created in a JVM, or was about to be created.

    Attributes:
        port: Port that it serves on.
        config_hash: Hash of its configuration.
        path: Path of the metrics.
        encrypted: Whether it serves HTTPS.
        closed: Whether the metrics need a login or a certificate.
    """

    port: int
    config_hash: str
    path: str = "/metrics"
    encrypted: bool = False
    closed: bool = False


def find_directory(process: Process, name: str, *, dry: bool = False) -> SharedDirectory | None:
    """Return the directory for files that the JVM reads; None if it cannot be created.

    Args:
        process: The JVM.
        name: Name of the directory; the id of the injector's user is appended.
        dry: Whether to return where the directory would be, without creating it.
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
    """Name the record of a JVM; the start distinguishes JVMs with the same process id."""
    return f"{_RECORD_PREFIX}{process.pid}-{process.start}.json"


def read_record(shared: SharedDirectory, process: Process) -> Record | None:
    """Return the record of a JVM; None if there is none."""
    return _parse_record(shared.outside, process) or _read_former(shared, process)


def _read_former(shared: SharedDirectory, process: Process) -> Record | None:
    try:
        directory = process.root.resolve(_FORMER_PLACE) / shared.outside.name
        return _parse_record(directory, process) if _is_ours(directory) else None
    except OSError:
        return None


def _parse_record(directory: Path, process: Process) -> Record | None:
    try:
        text = (directory / record_name(process)).read_text()
        raw = json.loads(text)  # security: written by this program
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
    """Write the record of a JVM."""
    shared.put(record_name(process), json.dumps(asdict(record)).encode())


def render_properties(values: Mapping[str, str]) -> bytes:
    """Render a properties file that Java can read."""
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
    """Parse a properties file that Java wrote."""
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
