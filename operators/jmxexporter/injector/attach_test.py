"""The attach protocol, with the responses of all Java releases."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from operators.jmxexporter.injector.attach import (
    AttachError,
    Attachment,
    Reply,
    evaluate_load,
    parse_reply,
)
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.reasons import Reason


@pytest.mark.parametrize(
    "raw",
    [b"0\n0", b"0\n0\n", b"0\nreturn code: 0\n"],
    ids=["8", "8 with an end", "9 and later"],
)
def test_success_is_known_from_each_release(raw: bytes) -> None:
    evaluate_load(parse_reply(raw))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"0\nreturn code: 102\n", Reason.ATTACH_REFUSED),
        (b"0\n102", Reason.ATTACH_REFUSED),
        (b"0\n", Reason.ATTACH_REFUSED),
        (b"-1\nDynamic agent loading is not enabled.\n", Reason.DYNAMIC_AGENTS_DISABLED),
        (
            b"0\nDynamic agent loading is not enabled. Use -XX:+EnableDynamicAgentLoading\n",
            Reason.DYNAMIC_AGENTS_DISABLED,
        ),
        (b"101\n", Reason.ATTACH_REFUSED),
        (b"not a number", Reason.ATTACH_REFUSED),
    ],
)
def test_refusal_is_never_taken_for_success(raw: bytes, reason: Reason) -> None:
    with pytest.raises(AttachError) as caught:
        evaluate_load(parse_reply(raw))

    assert caught.value.reason is reason


def test_silence_means_that_the_jvm_died() -> None:
    with pytest.raises(AttachError) as caught:
        parse_reply(b"")

    assert caught.value.reason is Reason.JVM_TERMINATED


def test_reply_keeps_what_was_said() -> None:
    assert parse_reply(b"0\nline one\nline two\n") == Reply(0, "line one\nline two")


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Process]:
    """A process whose /tmp has a socket that we listen at ourselves."""
    proc = tmp_path / "proc" / "1"
    (proc / "root" / "tmp").mkdir(parents=True)
    (proc / "status").write_text("Name:\tjava\nNStgid:\t1\n")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(proc / "root/tmp/.java_pid1"))
        server.listen()
        yield Process(1, tmp_path / "proc")


def test_socket_of_another_process_is_not_spoken_to(stranger: Process) -> None:
    """Containers that share /tmp, each with a JVM as process 1, have one name for two sockets."""
    with pytest.raises(AttachError) as caught:
        Attachment(stranger, 1).command("threaddump")

    assert caught.value.reason is Reason.FOREIGN_SOCKET
