"""Views of processes in /proc. They only read."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_OPTION_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_WITH_VALUE: Final = ("-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules")
_JVM_LIBRARY: Final = re.compile(r"\s(/\S*/lib(?:jvm|j9vm\d*)\.so)\b")
_SYMLINKS: Final = 40
_LISTENING: Final = "0A"
"""State of a socket that listens, in /proc/net/tcp."""


class RootView:
    """A resolver of paths as a process sees them.

    A symbolic link to an absolute path must be resolved from the root of the process; the kernel
    would resolve it from the root of the injector.
    """

    def __init__(self, root: Path) -> None:
        """Resolve paths below `root`, such as /proc/7/root."""
        self._root = root

    def resolve(self, path: str) -> Path:
        """Return the path by which the injector reaches a path of the process.

        Raises:
            OSError: There are too many links, or the path cannot be read.
        """
        done: list[str] = []
        todo = [part for part in reversed(path.split("/")) if part]
        links = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                done = done[:-1]
                continue
            here = self._root.joinpath(*done, part)
            if not here.is_symlink():
                done.append(part)
                continue
            links += 1
            if links > _SYMLINKS:
                raise OSError(f"{path}: too many symbolic links")
            target = str(here.readlink())
            if target.startswith("/"):
                done = []
            todo.extend(part for part in reversed(target.split("/")) if part)
        return self._root.joinpath(*done)


@dataclass(frozen=True)
class Process:
    """One process, which may end at any time.

    Attributes:
        pid: Process id, as the injector sees it.
    """

    pid: int
    proc: Path = PROC

    @property
    def path(self) -> Path:
        """Return the directory that shows the process."""
        return self.proc / str(self.pid)

    @cached_property
    def status(self) -> Mapping[str, str]:
        """Return the fields of `status`, which any user may read."""
        lines = (self.path / "status").read_text().splitlines()
        return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}

    @cached_property
    def start(self) -> int:
        """Return when the process started, in ticks since the boot."""
        return self.read_start()

    def read_start(self) -> int:
        """Read when the process that has this id now started; see `is_alive`.

        Raises:
            OSError: No process has this id.
        """
        text = (self.path / "stat").read_text()
        return int(text.rpartition(")")[2].split()[19])

    @property
    def uid(self) -> int:
        """Return the effective user."""
        return int(self.status["Uid"].split()[1])

    @property
    def gid(self) -> int:
        """Return the effective group."""
        return int(self.status["Gid"].split()[1])

    @property
    def inner_pid(self) -> int:
        """Return the id of the process in its own process namespace."""
        return int(self.status.get("NStgid", str(self.pid)).split()[-1])

    @property
    def scheduling(self) -> str:
        """Return the state as a letter: R, S, D; T for stopped, Z for ended."""
        return self.status["State"][:1]

    @cached_property
    def arguments(self) -> Sequence[str]:
        """Return the command line."""
        return (self.path / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]

    @cached_property
    def options(self) -> Sequence[str]:
        """Return the options of the JVM, including options from the environment."""
        return [*self._variable_options(), *self.arguments[1 : self._main_index()]]

    def _variable_options(self) -> Iterable[str]:
        try:
            raw = (self.path / "environ").read_bytes().decode(errors="replace")
        except OSError:
            return []
        variables = dict(entry.split("=", 1) for entry in raw.split("\0") if "=" in entry)
        return " ".join(variables.get(name, "") for name in _OPTION_VARIABLES).split()

    def _main_index(self) -> int:
        skip = False
        for index, argument in enumerate(self.arguments[1:], 1):
            if skip:
                skip = False
            elif argument in _WITH_VALUE:
                skip = True
            elif argument in ("-jar", "-m", "--module") or not argument.startswith(("-", "@")):
                return index
        return len(self.arguments)

    @property
    def main(self) -> str:
        """Return the main class, module or jar; empty if the command line has none."""
        index = self._main_index()
        rest = self.arguments[index:]
        if rest[:1] and rest[0] in ("-jar", "-m", "--module"):
            rest = rest[1:]
        return (
            rest[0].rpartition("/")[2] if rest and rest[0].endswith(".jar") else "".join(rest[:1])
        )

    @cached_property
    def library(self) -> str:
        """Return the path of the library of the JVM; empty if the process is not a JVM.

        Raises:
            OSError: The memory map cannot be read.
        """
        match = _JVM_LIBRARY.search((self.path / "maps").read_text(errors="replace"))
        return match[1] if match else ""

    def list_files(self) -> Sequence[str]:
        """Return what its file descriptors refer to: paths and sockets.

        Raises:
            OSError: They cannot be read.
        """
        found = []
        for descriptor in (self.path / "fd").iterdir():
            try:
                found.append(os.readlink(descriptor))
            except FileNotFoundError:
                continue  # It was closed in the meantime.
        return found

    def list_ports(self) -> set[int]:
        """Return the TCP ports on which the process itself listens.

        The containers of a pod share its ports, so an endpoint on a port may belong to another JVM.
        """
        own = {name[8:-1] for name in self.list_files() if name.startswith("socket:[")}
        ports = set()
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(FileNotFoundError):
                for line in (self.path / "net" / table).read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENING and fields[9] in own:
                        ports.add(int(fields[1].rpartition(":")[2], 16))
        return ports

    @property
    def root(self) -> RootView:
        """Return a resolver of paths in its file system."""
        return RootView(self.path / "root")

    def read_uptime(self) -> float:
        """Return how many seconds ago the process started."""
        ticks = os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.start / ticks

    def is_alive(self) -> bool:
        """Return whether the process still runs, and no other one has its id."""
        try:
            same = self.read_start() == self.start
            state = (self.path / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return same and state not in "ZX"
