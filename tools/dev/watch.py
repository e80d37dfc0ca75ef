"""Run a process, and start it again whenever its code changes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 40.0
"""Longer than the default drain time-out of an operator."""

type Snapshot = Mapping[Path, int]


def take_snapshot(folders: Iterable[Path]) -> Snapshot:
    """Return the time of the last change of every Python file."""
    found = {}
    for folder in folders:
        for path in folder.rglob("*.py"):
            try:
                found[path] = path.stat().st_mtime_ns
            except FileNotFoundError:  # Deleted meanwhile, as editors do while they save.
                continue
    return found


class Watcher:
    """A command that runs until it is interrupted, and again after each change.

    Args:
        command: The command.
        environment: Its environment.
        folders: Folders of its code.
        say: Prints a message for the user.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folders: Sequence[Path],
        say: Callable[[str], None],
    ) -> None:
        """Keep the arguments; nothing runs yet."""
        self._command = list(command)
        self._environment = dict(environment)
        self._folders = list(folders)
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run until the caller is interrupted; the process ends with it."""
        try:
            while True:
                self.run_once()
        finally:
            self.stop()

    def run_once(self) -> Path:
        """Start the process, wait for a change of its code, and return the file that changed.

        A process that ends by itself is started again only after a change, because it would fail in
        the same way.
        """
        before = take_snapshot(self._folders)
        self.stop()
        self._process = subprocess.Popen(self._command, env=self._environment)
        ended = False
        while True:
            if not ended and (code := self._process.poll()) is not None:
                ended = True
                self._say(f"Exited with {code}; it starts again after a change")
            now = take_snapshot(self._folders)
            if now != before:
                changed = min(path for path in {*now, *before} if now.get(path) != before.get(path))
                self._say(f"{changed.name} changed; starting again")
                return changed
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End the process."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
