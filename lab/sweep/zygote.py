"""Zygote: a process that has imported the operators and forks one for each start.

An import costs more than a second, a fork some milliseconds. The zygote has no thread and no event
loop, and is forked from the command line before that has any.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_READY: Final = b"w"
type Body = Callable[[dict[str, Any], Callable[[], None]], int]
"""Runs a child: takes the request and a function that reports it as working; returns its status."""


@dataclass
class Child:
    """The state of one process.

    Attributes:
        pid: Process id.
        working: Set when the process has reported that it works.
        exited: Set when it has ended.
        status: Its exit status; negative for a signal; None while it runs.
    """

    pid: int
    working: asyncio.Event = field(default_factory=asyncio.Event)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it still runs, as far as is known."""
        return self.status is None

    def kill(self) -> None:
        """Kill it immediately, as a crash does."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """The connection of the process that runs the trials to the zygote."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        """Take one end of a socket pair; `fork_zygote` calls this."""
        self._socket = connection
        self.pid = pid
        self._children: dict[int, Child] = {}
        self._forked: asyncio.Queue[Child] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def spawn(self, request: dict[str, Any]) -> Child:
        """Fork a child."""
        async with self._turn:
            if self._task is None:
                self._socket.setblocking(False)
                reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
                self._task = asyncio.create_task(self._listen(reader))
            self._writer.write(json.dumps(request).encode() + b"\n")
            return await self._forked.get()

    async def close(self) -> None:
        """Stop the zygote and its children."""
        if self._task is not None:
            self._task.cancel()
            self._writer.close()
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            await asyncio.to_thread(os.waitpid, self.pid, 0)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            message = json.loads(line)
            pid = message["pid"]
            if message["what"] == "forked":
                self._children[pid] = Child(pid)
                self._forked.put_nowait(self._children[pid])
            elif message["what"] == "working":
                if pid in self._children:
                    self._children[pid].working.set()
            else:
                child = self._children.pop(pid)
                child.status = message["status"]
                child.exited.set()


def fork_zygote(body: Body) -> Zygote:
    """Fork the zygote; call it before there is any thread or event loop."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return Zygote(ours, pid)
    ours.close()
    # Exclude imported modules from garbage collection, so that children do not copy their pages.
    gc.collect()
    gc.freeze()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _Loop(theirs, body).run()
    finally:
        os._exit(0)


class _Loop:
    """Fork, and report running and finished children, until the other side disconnects."""

    def __init__(self, connection: socket.socket, body: Body) -> None:
        self._connection = connection
        self._body = body
        self._selector = selectors.DefaultSelector()
        self._ready: dict[int, int] = {}
        self._wake, wake_end = socket.socketpair()
        for end in (self._wake, wake_end):
            end.setblocking(False)
        self._wake_end = wake_end
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        rest = b""
        self._selector.register(self._connection, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._connection:
                    data = self._connection.recv(65536)
                    if not data:
                        self._end()
                        return
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._fork(json.loads(line))
                elif key.fileobj is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        self._wake.recv(4096)
                else:
                    self._hear(key.fd)
            self._reap()

    def _fork(self, request: dict[str, Any]) -> None:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            self._become(request, write_end)
        os.close(write_end)
        self._ready[read_end] = pid
        self._selector.register(read_end, selectors.EVENT_READ)
        self._send({"what": "forked", "pid": pid})

    def _become(self, request: dict[str, Any], ready: int) -> None:
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for end in (self._connection, self._wake, self._wake_end):
                end.close()
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            status = self._body(request, lambda: _say(ready))
        except BaseException:  # noqa: BLE001 the child must never get back into the loop
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _hear(self, read_end: int) -> None:
        data = os.read(read_end, 16)
        pid = self._ready[read_end]
        if data:
            self._send({"what": "working", "pid": pid})
        else:
            self._selector.unregister(read_end)
            os.close(read_end)
            del self._ready[read_end]

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            self._send({"what": "exited", "pid": pid, "status": code})

    def _send(self, message: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _end(self) -> None:
        for pid in self._ready.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _say(ready: int) -> None:
    os.write(ready, _READY)


def read_log(path: Path) -> str:
    """Return the log of a child."""
    return path.read_text(errors="replace") if path.exists() else ""
