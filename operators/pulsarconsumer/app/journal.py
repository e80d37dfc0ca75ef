"""A record of the messages that are being handled, which survives a crash of the process.

It is stored in a volume of the pod, so the next container of the pod reads it: a crash counts as an
attempt at the message, and messages that wait in memory for their next attempt keep their number of
attempts. Ids are written for calls that take long, and for some time after a crash for all calls.
Writing each id always would cost more than receiving the message.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson
import structlog

_SLOT: Final = 64
_SLOTS: Final = 1024
_RUNNING: Final = b"running"
_ENDED: Final = b"ended\0\0"
_COPIED_SECONDS: Final = 600.0
"""Time for which a message that a copy replaced is known; later, its cursor was moved back."""
_REMEMBERED: Final = 20_000
"""Maximum number of messages whose attempts are remembered."""
_COUNTED: Final = 1000
"""Maximum number of messages whose crashes are counted."""

log = structlog.get_logger("journal")


class Journal:
    """Identities of messages that are being handled, in a file; thread-safe."""

    def __init__(self, folder: str) -> None:
        """Read the journal of the previous process, and start a new one.

        Args:
            folder: Folder of the files; empty disables the journal.
        """
        self.crashes: dict[str, int] = {}
        """Number of crashes while a message was handled, by identity of the message.

        Counts are kept even after the message was finished, because the broker may not have
        received the acknowledgment before the next crash.
        """
        self.unsettled: set[str] = set()
        """Those of these messages that were not redelivered yet."""
        self.interrupted: tuple[str, ...] = ()
        """Identities of messages at which the last process crashed."""
        self.attempts: dict[str, int] = {}
        """Number of attempts that failed in earlier processes, by identity of the message."""
        self.copied: list[str] = []
        """Identities of messages that a copy replaced in earlier processes, minutes ago."""
        self.careful = False
        """Whether the identity of each message is written before it is handled."""
        self.has_entries = False
        """Whether ids can be written."""
        self._lock = threading.Lock()
        self._slots: dict[int, int] = {}
        self._free = list(range(_SLOTS - 1, 0, -1))
        self._map: mmap.mmap | None = None
        self._failures = -1
        self._is_failing = False
        self._lines = 0
        self._known: dict[str, int] = {}
        if folder:
            try:
                self._open(Path(folder))
            except (OSError, ValueError) as err:
                log.warning("Crashes of the handler will not be counted", error=str(err))

    def begin(self, thread: int, identity: str) -> None:
        """Write the identity of the message that a thread handles."""
        if self._map is None:
            return
        with self._lock:
            if thread not in self._slots:
                if not self._free:
                    return
                self._slots[thread] = self._free.pop()
                self.has_entries = True
            start = self._slots[thread] * _SLOT
            self._map[start : start + _SLOT] = identity.encode()[:_SLOT].ljust(_SLOT, b"\0")

    def end(self, thread: int) -> None:
        """Remove the identity that a thread has written."""
        with self._lock:
            slot = self._slots.pop(thread, None)
            if slot is not None and self._map is not None:
                self._map[slot * _SLOT : (slot + 1) * _SLOT] = bytes(_SLOT)
                self._free.append(slot)
            self.has_entries = bool(self._slots)

    def settle(self, identity: str) -> int:
        """Return the number of crashes at a message in earlier processes, and reset it."""
        if identity not in self.unsettled:
            return 0
        self.unsettled.discard(identity)
        return self.crashes[identity]

    def remember(self, identity: str, attempts: int) -> None:
        """Record the number of failed attempts at a message; the broker counts only some."""
        with self._lock:
            if self._failures < 0:
                return
            with self._tolerant():
                if self.crashes.pop(identity, None):
                    self._save()  # The number of attempts includes the crashes from now on.
                self._append(identity, attempts)

    def remember_copied(self, identity: str) -> None:
        """Record that a copy has replaced a message, which is acknowledged next."""
        with self._lock:
            if self._failures >= 0:
                with self._tolerant():
                    self._append(identity, -int(time.time()))

    def close(self) -> None:
        """Record a regular exit of the process; ids of unfinished messages are kept."""
        if self._map is not None:
            self._map[: len(_ENDED)] = _ENDED

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Continue without a record if none can be written, for example on a full volume."""
        try:
            yield
        except OSError as err:
            if not self._is_failing:
                log.warning("Attempts cannot be written", error=str(err))
            self._is_failing = True
        else:
            self._is_failing = False

    def _open(self, folder: Path) -> None:
        path, self._counts = folder / "in-flight", folder / "crashes.json"
        self._attempts = folder / "attempts"
        folder.mkdir(parents=True, exist_ok=True)
        size = _SLOT * _SLOTS
        before = path.read_bytes() if path.exists() else b""
        if self._counts.exists():
            self.crashes = _parse_counts(self._counts.read_text())
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._map[: len(_RUNNING)] = _RUNNING
        found = [before[at : at + _SLOT].rstrip(b"\0") for at in range(_SLOT, len(before), _SLOT)]
        self.interrupted = tuple(each.decode(errors="replace") for each in found if each)
        for identity in self.interrupted:
            self.crashes[identity] = self.crashes.get(identity, 0) + 1
            log.warning("The process ended while it handled a message", message=identity)
        if self._attempts.exists():
            self._known = _parse_attempts(self._attempts.read_text(errors="replace"))
        since = time.time() - _COPIED_SECONDS
        self.attempts = {identity: count for identity, count in self._known.items() if count > 0}
        self.copied = [identity for identity, count in self._known.items() if -count >= since]
        self._write_attempts()
        self.careful = before.startswith(_RUNNING)
        if any(found):
            self._save()
        self.unsettled = set(self.crashes)

    def _append(self, identity: str, count: int) -> None:
        self._known.pop(identity, None)
        self._known[identity] = count  # As the newest.
        os.write(self._failures, _render(identity, count).encode())
        self._lines += 1
        if self._lines > 2 * _REMEMBERED:
            self._write_attempts()

    def _write_attempts(self) -> None:
        """Replace the file by the newest attempts, and continue at its end."""
        self._known = dict(list(self._known.items())[-_REMEMBERED:])
        partial = self._attempts.with_suffix(".partial")
        partial.write_text("".join(_render(*each) for each in self._known.items()))
        partial.rename(self._attempts)
        before = self._failures
        self._failures = os.open(self._attempts, os.O_WRONLY | os.O_APPEND)
        if before >= 0:
            os.close(before)
        self._lines = len(self._known)

    def _save(self) -> None:
        counts = dict(list(self.crashes.items())[-_COUNTED:])
        partial = self._counts.with_suffix(".partial")
        partial.write_text(json.dumps(counts))
        partial.rename(self._counts)


def _render(identity: str, count: int) -> str:
    """Return a line: an identity and the number of attempts, or 0 and the time of its copy."""
    return f"{identity} {count}\n" if count > 0 else f"{identity} 0 {-count}\n"


def _parse_attempts(text: str) -> dict[str, int]:
    """Return the attempts by identity; for copied messages, the negative time of the copy."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        identity, *counts = line.split(" ")
        # A killed process may have left an incomplete line.
        if all(each.isascii() and each.isdigit() and len(each) < 12 for each in counts):
            match [int(each) for each in counts]:
                case [0]:
                    count = -int(time.time())  # Earlier releases did not write the time.
                case [0, copied_at]:
                    count = -copied_at
                case [count]:
                    pass
                case _:
                    continue
            found.pop(identity, None)
            found[identity] = count
    return found


def _parse_counts(text: str) -> dict[str, int]:
    counts = orjson.loads(text)
    if not isinstance(counts, Mapping):
        return {}
    return {str(identity): count for identity, count in counts.items() if isinstance(count, int)}
