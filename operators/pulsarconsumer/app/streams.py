"""Reserves the standard output for the message log."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from select import PIPE_BUF


class MessageStream:
    """A writer of whole lines to a file descriptor; thread-safe."""

    def __init__(self, descriptor: int) -> None:
        """Store the descriptor."""
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, lines: Iterable[bytes]) -> None:
        """Write lines, and return after they have been passed to the kernel.

        Raises:
            OSError: The reader has closed the stream.
        """
        with self._lock:
            for block in _pack(lines):
                rest = block
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]


def _pack(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to chunks that a pipe accepts atomically.

    So a killed process does not leave an incomplete line, unless the line exceeds that size.
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
    """Return the stream of the message log, and redirect all other output to stderr.

    Otherwise the Pulsar client and print() in a handler would write between the lines.
    """
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return MessageStream(descriptor)
