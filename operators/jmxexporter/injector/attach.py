"""The attach protocol of HotSpot, spoken by hand: no JDK, no shell, no tool is needed.

A JVM that catches SIGQUIT and finds the file `.attach_pid<pid>` opens the socket `.java_pid<pid>`
in /tmp; a command on this socket loads an agent. Both files are reached through /proc/<pid>.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from operators.jmxexporter.injector.messages import Reason
from operators.jmxexporter.injector.processes import Process

ARGUMENT_LIMIT: Final = 1024
"""Bytes of one argument of the protocol."""
_PROTOCOL: Final = "1"
_PAUSE: Final = 0.05
_REPLY_LIMIT: Final = 4 << 20


class AttachError(Exception):
    """An attach that did not succeed.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        """Say why, for machines and for people."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a JVM.

    Attributes:
        code: Result of the command itself; 0 when the JVM took it.
        text: The rest.
    """

    code: int
    text: str


def parse_reply(raw: bytes) -> Reply:
    """Read a response: a number, and text that differs between releases.

    Raises:
        AttachError: The connection ended without a response: so does a JVM that dies.
    """
    first, _, rest = raw.decode(errors="replace").partition("\n")
    if not first.strip():
        raise AttachError(Reason.JVM_TERMINATED, "the JVM closed the connection without a response")
    try:
        return Reply(int(first), rest.strip())
    except ValueError:
        return Reply(-1, raw.decode(errors="replace").strip())


def evaluate_load(reply: Reply) -> None:
    """Raise unless an agent was loaded.

    Releases differ: 8 answers with a bare number, 9 and later with `return code: N`, and 21 and
    later refuse with words after a 0, which must not be taken for success.

    Raises:
        AttachError: It was not.
    """
    match = re.fullmatch(r"(?:return code: )?(-?\d+)", reply.text)
    if reply.code == 0 and (match and int(match[1]) == 0):
        return
    text = reply.text[:300]
    if "Dynamic agent loading is not enabled" in text:
        raise AttachError(Reason.DYNAMIC_AGENTS_DISABLED, text)
    if "java.instrument" in text or "instrument was not loaded" in text:
        raise AttachError(Reason.MISSING_MODULES, text)
    raise AttachError(Reason.ATTACH_REFUSED, f"code {reply.code}: {text}")


class Attachment:
    """A connection that sends commands to one JVM."""

    def __init__(self, process: Process, timeout: float) -> None:
        """Take the JVM, and how many seconds a command may take."""
        self._process = process
        self._timeout = timeout
        inner = process.inner_pid
        self._tmp = process.root.resolve("/tmp")  # noqa: S108 - HotSpot knows no other place.
        self._socket = self._tmp / f".java_pid{inner}"
        self._trigger = f".attach_pid{inner}"

    def has_socket(self) -> bool:
        """Return whether the JVM listens already, which a signal is not needed for then."""
        try:
            with self._connect():
                return True
        except OSError:
            return False

    def find_blocker(self) -> str:
        """Return the file that keeps the JVM from listening; empty when there is none.

        A JVM that is killed leaves its socket. HotSpot renames the next one over it, which a
        sticky directory, as /tmp is, grants to the owners of the file and of the directory only.
        """
        try:
            file, directory = self._socket.lstat(), self._tmp.stat()
        except OSError:
            return ""
        owners = (file.st_uid, directory.st_uid)
        if not directory.st_mode & stat.S_ISVTX or self._process.uid in (0, *owners):
            return ""
        return (
            f"/tmp/{self._socket.name}, left by user {file.st_uid}"  # noqa: S108 - as it sees it.
        )

    def load(self, jar: str, argument: str) -> None:
        """Load an agent; both are as the JVM sees them.

        Raises:
            AttachError: It was not loaded.
        """
        option = f"{jar}={argument}"
        if len(option.encode()) > ARGUMENT_LIMIT:
            raise AttachError(
                Reason.ATTACH_REFUSED, f"longer than {ARGUMENT_LIMIT} bytes: {option}"
            )
        evaluate_load(self.command("load", "instrument", "false", option))

    def command(self, name: str, *arguments: str) -> Reply:
        """Give one command.

        Raises:
            AttachError: The JVM does not listen, or does not answer.
        """
        if not self.has_socket():
            self._request_attach()
        words = [_PROTOCOL, name, *[*arguments, "", "", ""][:3]]
        try:
            with self._connect() as connection:
                connection.sendall(b"".join(word.encode() + b"\0" for word in words))
                return parse_reply(_read_all(connection))
        except TimeoutError as error:
            message = f"the JVM did not respond to {name} within {self._timeout:g} s"
            raise AttachError(Reason.TIMEOUT, message) from error
        except OSError as error:
            raise self._explain(error) from error

    def _explain(self, error: OSError) -> AttachError:
        if not self._process.is_alive():
            return AttachError(Reason.JVM_TERMINATED, f"the JVM ended: {error}")
        return AttachError(Reason.ATTACH_REFUSED, str(error))

    def _connect(self) -> socket.socket:
        """Connect, and see to it that it is this JVM that listens.

        Containers that share /tmp and count their processes alike use one name for two sockets.
        """
        if not stat.S_ISSOCK(self._socket.lstat().st_mode):
            raise AttachError(Reason.FOREIGN_SOCKET, f"{self._socket} is not a socket")
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(self._timeout)
            # Names of sockets are limited to 107 bytes, which /proc/<pid>/root/tmp never exceeds.
            connection.connect(str(self._socket))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            peer = struct.unpack("3i", credentials)[0]
            if peer != self._process.pid:
                message = f"process {peer or 'of another container'} listens there, not the JVM"
                raise AttachError(Reason.FOREIGN_SOCKET, message)
        except BaseException:
            connection.close()
            raise
        return connection

    def _request_attach(self) -> None:
        """Ask the JVM to listen.

        Raises:
            AttachError: It does not.
        """
        with self._place_trigger():
            # Between this look and the signal the process cannot be replaced unnoticed by less
            # than a whole turn of process ids.
            if not self._process.is_alive():
                raise AttachError(Reason.JVM_TERMINATED, "the JVM ended before the injection")
            os.kill(self._process.pid, signal.SIGQUIT)
            deadline = time.monotonic() + self._timeout
            while not self.has_socket():
                if not self._process.is_alive():
                    raise AttachError(
                        Reason.JVM_TERMINATED, "the JVM ended during the attach request"
                    )
                if time.monotonic() > deadline:
                    message = f"the JVM did not listen within {self._timeout:g} s"
                    raise AttachError(Reason.ATTACH_DISABLED, message)
                time.sleep(_PAUSE)

    @contextlib.contextmanager
    def _place_trigger(self) -> Iterator[None]:
        # The working directory is looked at first by all releases, /tmp by all as well.
        errors = []
        for directory in (self._process.path / "cwd", self._tmp):
            path = Path(directory) / self._trigger
            try:
                flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW
                os.close(os.open(path, flags, 0o600))
            except OSError as error:
                errors.append(str(error))
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
        raise AttachError(Reason.TMP_NOT_WRITABLE, "; ".join(errors))


def _read_all(connection: socket.socket) -> bytes:
    raw = b""
    while len(raw) < _REPLY_LIMIT and (part := connection.recv(4096)):
        raw += part
    return raw
