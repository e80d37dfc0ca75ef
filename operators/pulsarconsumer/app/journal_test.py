"""The record that outlives a crash of the process."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from operators.pulsarconsumer.app.journal import Journal


def test_failed_attempts_are_known_after_a_crash(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    first.remember("1:2:-1:0", 1)
    first.remember("1:3:-1:0", 1)
    first.remember("1:2:-1:0", 2)

    second = Journal(str(tmp_path))
    assert second.attempts == {"1:3:-1:0": 1, "1:2:-1:0": 2}
    second.remember("1:3:-1:0", 2)
    assert Journal(str(tmp_path)).attempts == {"1:2:-1:0": 2, "1:3:-1:0": 2}


def test_crash_that_was_counted_as_an_attempt_is_not_counted_again(tmp_path: Path) -> None:
    Journal(str(tmp_path)).begin(1, "1:2:-1:0")
    second = Journal(str(tmp_path))
    assert second.settle("1:2:-1:0") == 1
    second.remember("1:2:-1:0", 1)
    second.begin(1, "1:2:-1:0")

    third = Journal(str(tmp_path))
    assert (third.attempts, third.crashes) == ({"1:2:-1:0": 1}, {"1:2:-1:0": 1})


@pytest.mark.parametrize(
    "content", ["1:2:-1:0 3\n1:3:-1:0", "1:2:-1:0 3\n\n \n1 x\n", "1:2:-1:0 3\n9"]
)
def test_half_of_a_line_is_ignored(content: str, tmp_path: Path) -> None:
    (tmp_path / "attempts").write_text(content)

    assert Journal(str(tmp_path)).attempts == {"1:2:-1:0": 3}


def test_file_of_attempts_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.pulsarconsumer.app.journal._REMEMBERED", 10)
    journal = Journal(str(tmp_path))
    for number in range(100):
        journal.remember(f"1:{number}:-1:0", 1)

    assert len((tmp_path / "attempts").read_text().splitlines()) <= 20
    assert list(Journal(str(tmp_path)).attempts)[-1] == "1:99:-1:0"


def test_messages_that_were_copied_are_known_after_a_crash(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    first.remember("1:2:-1:0", 1)
    first.remember("1:3:-1:0", 1)
    first.remember_copied("1:2:-1:0")

    second = Journal(str(tmp_path))
    assert (second.attempts, second.copied) == ({"1:3:-1:0": 1}, ["1:2:-1:0"])
    assert Journal(str(tmp_path)).copied == ["1:2:-1:0"]


def test_message_that_was_copied_long_ago_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the broker delivers it again, its cursor was moved back."""
    Journal(str(tmp_path)).remember_copied("1:2:-1:0")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)

    assert Journal(str(tmp_path)).copied == []


def test_journal_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    """Recorded from a process that was killed in its second call of a message that had crashed."""
    lines = ["1700000000001:2:0:-1:-1 2", "1700000000002:2:1:-1:-1 1", "1700000000002:2:1:-1:-1 0"]
    (tmp_path / "attempts").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "crashes.json").write_text('{"1700000000003:2:2:-1:-1": 1}')
    slots = [b"running", b"1700000000003:2:2:-1:-1"]
    (tmp_path / "in-flight").write_bytes(b"".join(slot.ljust(64, b"\0") for slot in slots))

    journal = Journal(str(tmp_path))
    assert journal.attempts == {"1700000000001:2:0:-1:-1": 2}
    assert journal.copied == ["1700000000002:2:1:-1:-1"]
    assert (journal.interrupted, journal.careful) == (("1700000000003:2:2:-1:-1",), True)
    assert journal.settle("1700000000003:2:2:-1:-1") == 2


def test_full_volume_does_not_stop_the_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(str(tmp_path))
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        journal.remember("1:2:-1:0", 1)
        journal.remember_copied("1:3:-1:0")
    journal.remember("1:4:-1:0", 1)

    assert Journal(str(tmp_path)).attempts == {"1:4:-1:0": 1}


def test_message_that_failed_last_is_forgotten_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.pulsarconsumer.app.journal._REMEMBERED", 2)
    journal = Journal(str(tmp_path))
    for identity, attempts in (("a", 1), ("b", 1), ("a", 2), ("c", 1), ("c", 2)):
        journal.remember(identity, attempts)

    assert Journal(str(tmp_path)).attempts == {"a": 2, "c": 2}
