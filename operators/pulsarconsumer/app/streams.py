"""Standard output belongs to the message log alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from select import PIPE_BUF


class MessageStream:
    """A writer of whole lines to a file descriptor; thread-safe."""

    def __init__(self, descriptor: int) -> None:
        """Take the descriptor."""
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, lines: Iterable[bytes]) -> None:
        """Write lines; they are with the reader when this returns.

        Raises:
            OSError: Nobody reads any more.
        """
        with self._lock:
            for block in _pack(lines):
                rest = block
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]


def _pack(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Put lines together, as many as a pipe takes as a whole or not at all.

    So a process that is killed leaves no half of a line, unless that is longer by itself.
    """
    block: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line)
        if size > PIPE_BUF and block:
            yield b"".join(block)
            block, size = [], len(line)
        block.append(line)
    if block:
        yield b"".join(block)


def take_standard_output() -> MessageStream:
    """Return the stream of the message log; all else that is printed goes to stderr from now on.

    The Pulsar client, and the print() of a handler, would otherwise write between the lines.
    """
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return MessageStream(descriptor)
