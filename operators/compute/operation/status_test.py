"""What tools that wait for an Operation see in its conditions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import Manifest
from libs.common.testing.kstatus import Status, compute_status
from operators.compute.api.operation import Operation, OperationPhase, OperationReason
from operators.compute.operation.observed import NextAction
from operators.compute.operation.status import build_operation_status
from operators.compute.samples import build_operation


def enter(phase: OperationPhase, reason: OperationReason, message: str) -> Manifest:
    """Return an Operation that has just entered a phase."""
    operation = build_operation("Resize")
    operation["metadata"] |= {"uid": "u1", "generation": 1}
    turn = NextAction({"phase": phase, "reason": reason}, message=message)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    status = build_operation_status(Operation.parse(operation), turn, now=now)
    return {**operation, "status": status}


@pytest.mark.parametrize(
    ("phase", "seen"),
    [
        (OperationPhase.PENDING, "InProgress"),
        (OperationPhase.RUNNING, "InProgress"),
        (OperationPhase.ROLLING_BACK, "InProgress"),
        (OperationPhase.SUCCEEDED, "Current"),
        (OperationPhase.FAILED, "Failed"),
        (OperationPhase.CANCELLED, "Failed"),
    ],
)
def test_wait_ends_when_the_operation_has_ended(phase: OperationPhase, seen: Status) -> None:
    """A wait that ended during a rollback would let the next task find a stopped machine."""
    assert compute_status(enter(phase, OperationReason.ROLLED_BACK, "why")) == seen


@pytest.mark.parametrize("type", ["Ready", "Failed", "Stalled"])
def test_each_condition_by_which_tools_see_the_failure_says_why(type: str) -> None:
    operation = enter(OperationPhase.FAILED, OperationReason.SIZE_NOT_FOUND, "there is no large")
    condition = find_condition(operation, type)

    assert condition is not None
    assert (condition["reason"], condition["message"]) == ("SizeNotFound", "there is no large")
