"""Actions: what is reported about the steps of a plan."""

from __future__ import annotations

from enum import StrEnum

from libs.common.actions import Action, batches_of, done_of, refusals_of
from libs.common.errors import Forbidden
from libs.common.kinds import POD, Key
from libs.common.plan import Delete, Outcome, StepFailure


class _Reason(StrEnum):
    FIRST = "First"
    SECOND = "Second"
    THIRD = "Third"


FIRST, SECOND, THIRD = (
    Action(Delete(POD, Key("default", reason.lower()), "1"), reason) for reason in _Reason
)


def test_actions_are_told_by_what_became_of_their_step() -> None:
    error = Forbidden(403, "Forbidden", "exceeded quota")
    outcome = Outcome(
        done=(FIRST.step,), failures=(StepFailure(SECOND.step, error),), skipped=(THIRD.step,)
    )
    actions = (FIRST, SECOND, THIRD)
    assert batches_of(actions) == [[FIRST.step], [SECOND.step], [THIRD.step]]
    assert done_of(actions, outcome) == [FIRST]
    assert refusals_of(actions, outcome) == {_Reason.SECOND: "exceeded quota"}


def test_steps_that_are_equal_are_told_apart() -> None:
    twin = Action(Delete(POD, Key("default", "first"), "1"), _Reason.SECOND)
    assert done_of((FIRST, twin), Outcome(done=(twin.step,))) == [twin]


def test_an_error_without_a_message_is_told_by_its_text() -> None:
    outcome = Outcome(failures=(StepFailure(FIRST.step, TimeoutError("no response in 10 s")),))
    assert refusals_of((FIRST,), outcome) == {_Reason.FIRST: "no response in 10 s"}
