"""Where files are put for a JVM, and what is known of one that was seen before.

/dev/shm is writable also below a read-only root, and is shared by the containers of a pod; so the
directory carries the user's id, and one that somebody else made is not used.
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

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_PLACES: Final = ("/dev/shm", "/tmp")  # noqa: S108 - only what belongs to us is used.


@dataclass(frozen=True, slots=True)
class Place:
    """Name a directory from both sides.

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

    def remove(self, *names: str) -> None:
        """Remove files that may be there."""
        for name in names:
            with contextlib.suppress(OSError):
                (self.outside / name).unlink()


@dataclass(frozen=True, slots=True)
class Record:
    """Remember what was put into a JVM, or was about to be.

    Attributes:
        port: Port that it serves at.
        config_hash: Hash of its configuration.
    """

    port: int
    config_hash: str


def find_place(process: Process, name: str, *, dry: bool = False) -> Place | None:
    """Return a directory of ours that the JVM can read; None when there is no place for one.

    Args:
        process: The JVM.
        name: Name of the directory; our user's id is added.
        dry: Name the place where the directory would be made, and make none.
    """
    for parent in _PLACES:
        inside = f"{parent}/{name}-{os.geteuid()}"
        try:
            directory = process.root.resolve(parent)
            outside = directory / f"{name}-{os.geteuid()}"
            if dry and not outside.exists():
                if not os.access(directory, os.W_OK | os.X_OK):
                    continue
                return Place(inside, outside)
            outside.mkdir(mode=0o700, exist_ok=True)
            mode = outside.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(mode.st_mode) and mode.st_uid == os.geteuid() and not mode.st_mode & 0o022:
            return Place(inside, outside)
    return None


def record_name(process: Process) -> str:
    """Name the record of one JVM; its start tells it from another with the same id."""
    return f"jvm-{process.pid}-{process.start}.json"


def read_record(place: Place, process: Process) -> Record | None:
    """Return what was put into a JVM before; None for nothing."""
    try:
        raw = json.loads((place.outside / record_name(process)).read_text())
        return Record(int(raw["port"]), str(raw["config_hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_record(place: Place, process: Process, record: Record) -> None:
    """Remember what was put into a JVM."""
    place.put(record_name(process), json.dumps(asdict(record)).encode())


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
