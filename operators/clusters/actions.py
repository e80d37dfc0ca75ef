"""Steps with what to tell people once they are taken; pure, shared by the kinds of the operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from libs.common.plan import Outcome, Step


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


def batches_of(actions: Iterable[Action]) -> list[list[Step]]:
    """Return the steps one after the other, as `Context.execute` takes them."""
    return [[action.step] for action in actions]


def refusals_of(actions: Sequence[Action], outcome: Outcome) -> dict[StrEnum, str]:
    """Return what the API server said to steps that failed, by the reason of their action."""
    errors = {id(failure.step): failure.error for failure in outcome.failures}
    return {
        action.reason: str(getattr(error, "message", "") or error)
        for action in actions
        if (error := errors.get(id(action.step))) is not None
    }


def done_of(actions: Iterable[Action], outcome: Outcome) -> list[Action]:
    """Return the actions whose step was taken or held already, in their order."""
    done = {id(step) for step in outcome.done}
    return [action for action in actions if id(action.step) in done]
