"""Where the demo on this machine keeps its files, and whether it runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError

CONTEXT: Final = "slipway-demo"
"""Name of the context in the kubeconfig."""
_STOP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class State:
    """The files of the demo.

    Attributes:
        folder: Directory that holds them.
    """

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the demo; it exists once the operators may start."""
        return self.folder / "kubeconfig"

    @property
    def ready(self) -> Path:
        """File that exists once everything has started; it says which API server runs."""
        return self.folder / "ready"

    def log(self, name: str) -> Path:
        """Return the log of an operator or of `host`."""
        return self.folder / f"{name}.log"

    def claim(self) -> IO[str]:
        """Lock the folder for this process as long as the returned file is open.

        Raises:
            ToolError: A demo runs already.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (self.folder / "host.pid").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            file.close()
            raise ToolError("A demo runs already: run `./dev down` to end it") from err
        logs = (path for path in self.folder.glob("*.log") if path != self.log("host"))
        for path in (self.kubeconfig, self.ready, *logs):
            path.unlink(missing_ok=True)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return file

    def find_pid(self) -> int | None:
        """Return the process of a running demo, or None."""
        try:
            with (self.folder / "host.pid").open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(file.read() or 0) or None
        except FileNotFoundError:
            pass
        return None

    def stop(self) -> bool:
        """End a running demo and wait until it has ended; returns whether one ran.

        Raises:
            ToolError: It did not end.
        """
        pid = self.find_pid()
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.find_pid() == pid:
            if time.monotonic() > deadline:
                raise ToolError(f"The demo did not end; its log: {self.log('host')}")
            time.sleep(_POLL_SECONDS)
        return True


def demo_state(cache: Cache | None = None) -> State:
    """Return the state of the demo of this user."""
    return State((cache or Cache()).root / "demo")


def find_demo(cache: Cache | None = None) -> State | None:
    """Return the state of the demo if it runs and its API server responds, or None."""
    state = demo_state(cache)
    return state if state.find_pid() and state.kubeconfig.exists() else None
