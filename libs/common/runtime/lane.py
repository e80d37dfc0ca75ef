"""Lane: the keys of one namespace that wait in a work queue, taken by priority."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from libs.common.kinds import Key

PRIORITY_LIVE: Final = 0
"""Changes that were just seen."""
PRIORITY_RESYNC: Final = -100
"""First listing and resync, as controller-runtime's `LowPriority`."""
PRIORITY_EXPEDITE: Final = 100
"""What somebody waits for, such as a deletion."""


def _cost_of(priority: int) -> float:
    """Return what one key costs its priority: of twelve keys, eight, three and one are taken."""
    if priority >= PRIORITY_EXPEDITE:
        return 1 / 8
    return 1 / 3 if priority >= PRIORITY_LIVE else 1.0


class _Level:
    """The keys of one priority.

    A key that was raised to another priority stays in the line as a stale entry, which is skipped
    when its turn comes: finding it there would cost more the longer the line is.
    """

    __slots__ = ("count", "line", "spent")

    def __init__(self, spent: float) -> None:
        self.line: deque[Key] = deque()
        self.count = 0  # Entries that are not stale.
        self.spent = spent


class Lane:
    """The waiting keys of one namespace.

    Each priority pays for the keys that are taken of it, the less urgent more, and the one that
    has paid least is next. A priority that had nothing to take saves nothing up.
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
        """Note that a key does not wait at a priority any more; its entry is stale."""
        self._drop_one(priority)

    def take(self, waiting: Mapping[Key, int]) -> tuple[Key, int]:
        """Take the next key.

        Args:
            waiting: The priority at which each key waits; an entry with another one is stale.
        """
        # Of equal ones the more urgent.
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
