"""Actions: steps together with the Event to record once they are taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from libs.common.errors import Conflict
from libs.common.plan import Outcome, Step

NEXT_SECONDS: Final = 0.05
"""Seconds until the next reconcile after deletions that completed immediately: no watch event
reports those."""


@dataclass(frozen=True, slots=True)
class Action:
    """A step, and the Event to record once it is taken.

    Attributes:
        reason: Reason of the event, and of a refusal.
        note: Note of the event; empty for a step that needs no event.
        warning: Whether the event has type Warning.
    """

    step: Step
    reason: StrEnum
    note: str = ""
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Teardown:
    """The next actions for an object that is being deleted.

    Attributes:
        actions: Actions to take, one after the other.
        done: Whether nothing is left to do, so that the finalizer can be removed.
        reason: What the deletion waits for, as a reason.
        message: What the deletion waits for, as a sentence.
    """

    actions: tuple[Action, ...] = ()
    done: bool = False
    reason: str = "Terminating"
    message: str = ""


def batches_of(actions: Iterable[Action]) -> list[list[Step]]:
    """Return the steps one after the other, as `Context.execute` takes them."""
    return [[action.step] for action in actions]


def refusals_of(actions: Iterable[Action], outcome: Outcome) -> dict[StrEnum, str]:
    """Return the errors of the API server for failed steps, by the reason of their action.

    Conflicts are omitted: the object changed since it was read, and the next reconcile resolves
    this.
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
    """Return the actions whose step was taken or had no effect, in their order."""
    done = {id(step) for step in outcome.done}
    return [action for action in actions if id(action.step) in done]
