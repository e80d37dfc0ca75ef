"""The message log: whole lines, however many at a time and from however many threads."""

from __future__ import annotations

import os
import socket
import threading
from select import PIPE_BUF

from operators.pulsarconsumer.app.streams import MessageStream


def write_blocks(*lines: bytes) -> list[bytes]:
    """Return the blocks in which lines are written, each of which is a packet here."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        MessageStream(writer.fileno()).write(lines)
        writer.shutdown(socket.SHUT_WR)
        return list(iter(lambda: reader.recv(1 << 20), b""))


def test_lines_are_written_together_as_far_as_a_pipe_takes_them_as_a_whole() -> None:
    lines = [b"%03d %s\n" % (number, b"x" * (number * 17 % 900)) for number in range(100)]

    blocks = write_blocks(*lines)

    assert b"".join(blocks) == b"".join(lines)
    assert all(block.endswith(b"\n") and len(block) <= PIPE_BUF for block in blocks)
    assert len(blocks) < len(lines) / 4


def test_line_that_is_too_long_for_a_pipe_is_a_block_of_its_own() -> None:
    long = b"x" * PIPE_BUF + b"\n"

    assert write_blocks(b"a\n", b"b\n", long, b"c\n") == [b"a\nb\n", long, b"c\n"]
    assert write_blocks() == []


def test_lines_of_several_threads_stay_whole() -> None:
    reader, writer = os.pipe()
    stream = MessageStream(writer)
    bursts = [[b"%d " % thread * 3_000 + b"\n"] * 20 for thread in range(4)]
    threads = [threading.Thread(target=stream.write, args=(lines,)) for lines in bursts]
    with os.fdopen(reader, "rb") as pipe:
        for thread in threads:
            thread.start()
        read = [pipe.readline() for lines in bursts for _ in lines]
        os.close(writer)

    assert sorted(read) == sorted(line for lines in bursts for line in lines)
