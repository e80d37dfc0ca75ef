"""The user cache: results kept by the hash of what makes them, made once, whole or not at all.

A result is built in a temporary directory and then renamed. So a result with its final name is
complete, an interruption only leaves a temporary directory that the next run removes, and two
concurrent runs wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

_KEPT: Final = 2
"""Results kept for each name: the current one, and one of before for going back and forth."""
_DIGEST_LENGTH: Final = 16


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of everything that the tools keep between runs."""
    if chosen := environ.get("SLIPWAY_CACHE"):
        return Path(chosen).absolute()
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/tmp")) / ".cache"
    return Path(base).absolute() / "slipway"


def digest_of(*parts: str | Path) -> str:
    """Return a short hash of texts and of the contents of files."""
    total = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()[:_DIGEST_LENGTH]


class Cache:
    """A cache of results on disk; safe for concurrent processes."""

    def __init__(self, root: Path | None = None) -> None:
        """Use `root`, or the user's cache."""
        self.root = root or cache_root()

    def path(self, *names: str) -> Path:
        """Return a path under the root whose parent directory exists."""
        path = self.root.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def find(self, name: str, key: str) -> Path | None:
        """Return the finished result of `name` at `key`, or None."""
        path = self.root / name / key
        return path if path.exists() else None

    @contextlib.contextmanager
    def lock(self, name: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock `name`; `on_wait` is called once when another process has it."""
        # The descriptor is not inherited, so a daemon started meanwhile does not keep the lock.
        with self.path("locks", f"{name}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def ensure(
        self,
        name: str,
        key: str,
        build: Callable[[Path], None],
        on_wait: Callable[[], None] = lambda: None,
    ) -> Path:
        """Return the directory of `name` at `key`, made by `build(directory)` when missing."""
        place = self.root / name / key
        if place.exists():
            return place
        with self.lock(name, on_wait):
            if place.exists():
                return place
            building = self.path(name, ".building")
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            build(building)
            building.rename(place)
            self._prune(place)
        return place

    def write(self, path: Path, text: str) -> None:
        """Write a file whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(text)
        partial.rename(path)

    def _prune(self, newest: Path) -> None:
        others = [path for path in newest.parent.iterdir() if path != newest and path.is_dir()]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in others[_KEPT - 1 :]:
            shutil.rmtree(path, ignore_errors=True)
