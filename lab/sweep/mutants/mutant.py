"""Mutant: a change of our own code, made in the forked process of a trial and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.sweep.modes import Mode


@dataclass(frozen=True, slots=True)
class Mutant:
    """A code change, and the bug that it causes.

    Attributes:
        id: Its name.
        operator: Operator that is tried with it.
        workload: Workload that is tried.
        modes: Faults that are tried, after a run without any.
        bug: Where a bug of that kind was published, or how we found our own.
        summary: What the changed code does, in a few words.
        change: Makes the change.
    """

    id: str
    operator: str
    workload: str
    modes: tuple[Mode, ...]
    bug: str
    summary: str
    change: Callable[[], None]


def swap(owner: Any, name: str, value: Any) -> Any:
    """Put another value in the place of an attribute and return the previous one.

    Raises:
        AttributeError: There is no such attribute: the code changed and the mutant must follow.
    """
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before
