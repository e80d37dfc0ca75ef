"""Files for a JVM: jars, the configuration, requests and their answers.

The files are in /tmp, which attaching to a JVM requires anyway. They are not in /dev/shm: the
containers of a pod share it, so another container with the same user could replace a jar before the
JVM opens it. Its pages also count against the memory limit of the pod.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from operators.jmxexporter.injector.processes import Process

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_PLACE: Final = "/tmp"  # noqa: S108 - only a directory that belongs to us is used.
_STALE_SECONDS: Final = 600
"""Age at which no injector uses a request any more."""


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """A directory, with its paths inside and outside of the container."""

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
        """Remove all files. A JVM that has a jar open can still read it."""
        with contextlib.suppress(OSError):
            self.remove(*(entry.name for entry in self.outside.iterdir()))

    def remove_stale(self) -> None:
        """Remove requests of injectors that were killed: they may contain a private key."""
        with contextlib.suppress(OSError):
            for path in (*self.outside.glob("request-*"), *self.outside.glob(".request-*")):
                if time.time() - path.lstat().st_mtime > _STALE_SECONDS:
                    self.remove(path.name)

    def remove(self, *names: str) -> None:
        """Remove files if they exist."""
        for name in names:
            with contextlib.suppress(OSError):
                (self.outside / name).unlink()


def find_directory(process: Process, id: str, *, dry: bool = False) -> SharedDirectory | None:
    """Return the directory for files that the JVM reads; None if it cannot be created.

    Args:
        process: The JVM.
        id: Name of the endpoint.
        dry: Whether to return where the directory would be, without creating it.
    """
    name = f"{_name_directory(id)}{os.geteuid()}"
    inside = f"{_PLACE}/{name}"
    try:
        directory = process.root.resolve(_PLACE)
        outside = directory / name
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


def has_engine(process: Process, id: str) -> bool:
    """Return whether a JVM has the engine of an endpoint open: it has until the endpoint stops.

    The kernel tells the truth even after something has removed the files in /tmp.
    """
    mark = f"/{_name_directory(id)}"
    return any(mark in name and "/engine-" in name for name in process.list_files())


def _name_directory(id: str) -> str:
    return f"slipway-jmx-{id[:8]}-"


def _is_ours(directory: Path) -> bool:
    mode = directory.lstat()
    owned = stat.S_ISDIR(mode.st_mode) and mode.st_uid == os.geteuid()
    return owned and not mode.st_mode & 0o022


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
