"""The waiting keys of one namespace in a work queue, ordered by priority."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from libs.common.kinds import Key

PRIORITY_LIVE: Final = 0
"""Priority of live changes."""
PRIORITY_RESYNC: Final = -100
"""Priority of the first listing and of resyncs, like controller-runtime's `LowPriority`."""
PRIORITY_EXPEDITE: Final = 100
"""Priority of changes that somebody waits for, such as a deletion."""


def _cost_of(priority: int) -> float:
    """Return the cost of a key: of twelve keys, the priorities get eight, three and one."""
    if priority >= PRIORITY_EXPEDITE:
        return 1 / 8
    return 1 / 3 if priority >= PRIORITY_LIVE else 1.0


class _Level:
    """The keys of one priority.

    If the priority of a key is raised, its entry remains in the line as a stale entry, which is
    skipped later: removing it would take time proportional to the length of the line.
    """

    __slots__ = ("count", "line", "spent")

    def __init__(self, spent: float) -> None:
        self.line: deque[Key] = deque()
        self.count = 0  # Number of entries that are not stale.
        self.spent = spent


class NamespaceQueue:
    """The waiting keys of one namespace.

    Each priority accumulates a cost for its keys, which is higher for less urgent keys, and the
    priority with the lowest cost is next. An empty priority gains no credit.
    """

    __slots__ = ("_levels", "_spent")

    def __init__(self) -> None:
        """Start empty."""
        self._levels: dict[int, _Level] = {}
        self._spent = 0.0

    @property
    def empty(self) -> bool:
        """Whether no key waits."""
        return not self._levels

    def append(self, key: Key, priority: int) -> None:
        """Add a key at the end of its line."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level(self._spent)
        level.line.append(key)
        level.count += 1

    def leave(self, priority: int) -> None:
        """Mark the entry of a key at a priority as stale."""
        self._drop_one(priority)

    def take(self, waiting: Mapping[Key, int]) -> tuple[Key, int]:
        """Take the next key.

        Args:
            waiting: Current priority of each key; entries with another priority are stale.
        """
        # Ties go to the more urgent priority.
        priority = min(self._levels, key=lambda each: (self._levels[each].spent, -each))
        level = self._levels[priority]
        key = level.line.popleft()
        while waiting.get(key) != priority:
            key = level.line.popleft()
        self._spent = level.spent
        level.spent += _cost_of(priority)
        self._drop_one(priority)
        return key, priority

    def _drop_one(self, priority: int) -> None:
        level = self._levels[priority]
        level.count -= 1
        if not level.count:
            del self._levels[priority]
