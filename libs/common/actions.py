"""Actions: steps with what to tell people once they are taken; pure, as the steps are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from libs.common.errors import Conflict
from libs.common.plan import Outcome, Step

NEXT_SECONDS: Final = 0.05
"""Seconds until what follows on deletions that were over immediately: no event reports those."""


@dataclass(frozen=True, slots=True)
class Action:
    """One step, and what to tell people once it is taken.

    Attributes:
        step: The write.
        reason: Reason of the event, and of a refusal.
        note: Sentence of the event; empty for a step that nobody needs to hear of.
        warning: Whether people should worry.
    """

    step: Step
    reason: StrEnum
    note: str = ""
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """Say what to do for an object that is being deleted.

    Attributes:
        actions: Taken one after the other.
        done: Whether nothing is left to do, so that the object may go.
        reason: What it waits for.
        message: The same for people.
    """

    actions: tuple[Action, ...] = ()
    done: bool = False
    reason: str = "Terminating"
    message: str = ""


def batches_of(actions: Iterable[Action]) -> list[list[Step]]:
    """Return the steps one after the other, as `Context.execute` takes them."""
    return [[action.step] for action in actions]


def refusals_of(actions: Iterable[Action], outcome: Outcome) -> dict[StrEnum, str]:
    """Return what the API server said to steps that failed, by the reason of their action.

    A conflict is left out. It says that the object changed since it was read, and is over with the
    next reconciliation.
    """
    messages = {
        id(failure.step): failure.message
        for failure in outcome.failures
        if not isinstance(failure.error, Conflict)
    }
    return {
        action.reason: messages[id(action.step)]
        for action in actions
        if id(action.step) in messages
    }


def done_of[A: Action](actions: Iterable[A], outcome: Outcome) -> list[A]:
    """Return the actions whose step was taken or held already, in their order."""
    done = {id(step) for step in outcome.done}
    return [action for action in actions if id(action.step) in done]
