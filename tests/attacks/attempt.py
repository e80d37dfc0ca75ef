"""Attempt: what somebody tries, what must come of it, and who can do the same thing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.attacks.stage import Stage

type Act = Callable[[Stage], Awaitable[str]]
"""Try something; return the outcome in the words of the page."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of the table.

    Attributes:
        id: Short name in the output of the tests.
        who: Who tries it.
        what: What is tried.
        outcome: What must come of it.
        control: Who or what the same attempt succeeds for, which shows that it can succeed.
        attack: Tries it.
        prove: Tries the control.
        success: The outcome of the control.
    """

    id: str
    who: str
    what: str
    outcome: str
    control: str
    attack: Act
    prove: Act
    success: str = "succeeds"
