"""Client of the attach protocol of HotSpot. It needs no JDK, no shell and no other tool.

A JVM that receives SIGQUIT and finds the file `.attach_pid<pid>` opens the socket `.java_pid<pid>`
in /tmp. A command on this socket loads an agent. Both files are reached through /proc/<pid>.
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

from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.reasons import Reason

ARGUMENT_LIMIT: Final = 1024
"""Maximum size of one argument of the protocol, in bytes."""
_PROTOCOL: Final = "1"
_PAUSE: Final = 0.05
_REPLY_LIMIT: Final = 4 << 20


class AttachError(Exception):
    """A failure to attach to a JVM.

    Attributes:
        reason: Why it failed.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        """Keep the reason; the message explains it for people."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a JVM.

    Attributes:
        code: Result of the command itself; 0 if the JVM accepted it.
        text: The rest of the response.
    """

    code: int
    text: str


def parse_reply(raw: bytes) -> Reply:
    """Parse a response: a number, and text that differs between releases.

    Raises:
        AttachError: The connection ended without a response, as it does if the JVM dies.
    """
    first, _, rest = raw.decode(errors="replace").partition("\n")
    if not first.strip():
        raise AttachError(Reason.JVM_TERMINATED, "the JVM closed the connection without a response")
    try:
        return Reply(int(first), rest.strip())
    except ValueError:
        return Reply(-1, raw.decode(errors="replace").strip())


def evaluate_load(reply: Reply) -> None:
    """Raise an error unless an agent was loaded.

    Releases differ: Java 8 responds with a number, 9 and later with `return code: N`. 21 and later
    refuse with an error text after code 0, which must not be mistaken for success.

    Raises:
        AttachError: The agent was not loaded.
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
        """Prepare commands to a JVM; each one fails after `timeout` seconds."""
        self._process = process
        self._timeout = timeout
        inner = process.inner_pid
        self._tmp = process.root.resolve("/tmp")  # noqa: S108 - HotSpot knows no other place.
        self._socket = self._tmp / f".java_pid{inner}"
        self._trigger = f".attach_pid{inner}"

    def has_socket(self) -> bool:
        """Return whether the JVM listens already, so that it needs no signal."""
        try:
            with self._connect():
                return True
        except OSError:
            return False

    def find_blocker(self) -> str:
        """Return the file that prevents the JVM from listening; empty if there is none.

        A killed JVM leaves its socket behind, and HotSpot renames the next socket over it. If the
        directory has the sticky bit, as /tmp does, only root and the owners of the file and of the
        directory may do that.
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
        """Load an agent; the paths of jar and argument are as the JVM sees them.

        Raises:
            AttachError: The agent was not loaded.
        """
        option = f"{jar}={argument}"
        if len(option.encode()) > ARGUMENT_LIMIT:
            raise AttachError(
                Reason.ATTACH_REFUSED, f"longer than {ARGUMENT_LIMIT} bytes: {option}"
            )
        evaluate_load(self.command("load", "instrument", "false", option))

    def command(self, name: str, *arguments: str) -> Reply:
        """Send one command.

        Raises:
            AttachError: The JVM does not listen, or does not respond.
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
        """Connect, and verify that the process that listens is this JVM.

        In containers that share /tmp, two JVMs with the same process id have the same socket name.
        """
        if not stat.S_ISSOCK(self._socket.lstat().st_mode):
            raise AttachError(Reason.FOREIGN_SOCKET, f"{self._socket} is not a socket")
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(self._timeout)
            # Names of sockets are limited to 107 bytes; paths in /proc/<pid>/root/tmp are shorter.
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
        """Make the JVM listen.

        Raises:
            AttachError: It does not listen.
        """
        with self._place_trigger():
            # Between this check and the signal, another process can get this id only if the kernel
            # has gone through all other ids.
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
        # All releases look in the working directory first, and then in /tmp.
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
