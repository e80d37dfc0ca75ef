"""Standard output belongs to the message log alone."""

from __future__ import annotations

import os
import threading


class MessageStream:
    """Write whole lines to a file descriptor, from any thread."""

    def __init__(self, descriptor: int) -> None:
        """Take the descriptor."""
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, line: bytes) -> None:
        """Write a line; it is with the reader when this returns.

        Raises:
            OSError: Nobody reads any more.
        """
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]


def take_standard_output() -> MessageStream:
    """Return the stream of the message log; all else that is printed goes to stderr from now on.

    The Pulsar client, and the print() of a handler, would otherwise write between the lines.
    """
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return MessageStream(descriptor)
