"""Stale lists: a new process is shown what existed before the last write of the previous one it.

The API server itself serves the past: a list at an exact resource version, and a watch from there
that catches up. A client that asks for the newest list has no right to be treated so; an operator
should do no harm even then.

A process may list a resource more than once before it watches: kopf learns a version by a list that
selects nothing, then the runtime lists the objects. All of these lists must be from the same past
state; otherwise the list with the objects would be current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LATE_SECONDS: Final = 0.4
"""Seconds after which a watch catches up with a stale list."""
_SELECTORS: Final = ("fieldSelector", "labelSelector")


@dataclass
class StaleLists:
    """The lists of a trial that return stale data; none do before `begin`."""

    _version: int = 0
    _process: int = 0
    _listed: dict[tuple[int, str], set[tuple[str, ...]]] = field(default_factory=dict)
    _over: set[tuple[int, str]] = field(default_factory=set)

    def begin(self, version: int, process: int) -> None:
        """Show the state at a resource version to all processes after the given one."""
        self._version, self._process = version, process

    def turn_back(self, process: int, path: str, query: Mapping[str, str]) -> dict[str, str]:
        """Return parameters for the query of a list; none if it shows the current state.

        Until a path is watched, the first list of it with each selection shows the past. Later
        pages of a list always have the version of its first page.

        Args:
            process: Number of the process that sends the request.
            path: Path on the API server.
            query: Query of the request.
        """
        place = (process, path)
        if not self._version or process <= self._process or place in self._over:
            return {}
        selection = tuple(query.get(name, "") for name in _SELECTORS)
        listed = self._listed.setdefault(place, set())
        if selection in listed:
            return {}
        listed.add(selection)
        return {"resourceVersion": str(self._version), "resourceVersionMatch": "Exact"}

    async def catch_up(self, process: int, path: str) -> None:
        """Delay a watch after a stale list; from then on, lists show the current state."""
        if (process, path) in self._listed:
            await asyncio.sleep(LATE_SECONDS)
            self._over.add((process, path))
