"""Status of an Operation. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import Manifest
from operators.compute.api.operation import (
    FINAL_PHASES,
    Operation,
    OperationCondition,
    OperationPhase,
    OperationReason,
    OperationStatus,
    OperationStep,
    StepState,
)
from operators.compute.operation.observed import NextAction


def build_operation_status(
    operation: Operation, turn: NextAction, *, now: datetime, refusal: str = ""
) -> Manifest:
    """Build the status after a turn.

    Args:
        operation: The Operation before the turn.
        turn: Decision of the turn.
        now: Time for steps and conditions that change.
        refusal: Error message of the API server for a failed step; empty for none.
    """
    held = operation.observed
    changes = {name: value for name, value in turn.changes.items() if name != "message"}
    message = refusal or turn.message or held.message
    status = held.model_copy(update={**changes, "message": message})
    status = status.model_copy(update={"phase": status.phase or OperationPhase.PENDING})
    if status.step != held.step:
        steps = _follow_steps(status, held, now)
        status = status.model_copy(update={"step_started_at": now, "steps": steps})
    if status.phase in FINAL_PHASES and held.phase not in FINAL_PHASES:
        status = _close(status, now)
    generation = operation.metadata.generation
    manifest = status.model_copy(update={"observed_generation": generation}).to_manifest()
    current = [condition.to_manifest() for condition in held.conditions]
    manifest["conditions"] = build_conditions(
        current, _evaluate(status), generation=generation, now=now
    )
    return manifest


def render_duration(duration: timedelta) -> str:
    """Render a duration as Kubernetes does: `45s`, `1m30s`, `2h5m`."""
    seconds = max(int(duration.total_seconds()), 0)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"


def _follow_steps(
    status: OperationStatus, held: OperationStatus, now: datetime
) -> list[OperationStep]:
    """End the current step and begin the next one."""
    failed = status.phase is OperationPhase.ROLLING_BACK or status.outcome in (
        OperationPhase.FAILED,
        OperationPhase.CANCELLED,
    )
    state = StepState.FAILED if failed else StepState.DONE
    steps = [_end(step, state, now) for step in held.steps]
    if status.step is not None and all(step.name != status.step for step in steps):
        steps.append(OperationStep(name=status.step, state=StepState.RUNNING, started_at=now))
    return steps


def _end(step: OperationStep, state: StepState, now: datetime) -> OperationStep:
    if step.state is not StepState.RUNNING:
        return step
    return step.model_copy(update={"state": state, "finished_at": now})


def _close(status: OperationStatus, now: datetime) -> OperationStatus:
    steps = [_end(step, StepState.DONE, now) for step in status.steps]
    begun = status.started_at
    duration = None if begun is None else render_duration(now - begun)
    return status.model_copy(update={"steps": steps, "duration": duration})


def _evaluate(status: OperationStatus) -> list[Condition]:
    message, reason = status.message, status.reason or ""
    phase = status.phase
    succeeded = phase is OperationPhase.SUCCEEDED
    failed = phase in (OperationPhase.FAILED, OperationPhase.CANCELLED)
    # Tools show the message of the condition from which they learn about the failure.
    failure = message if failed else ""
    accepted = status.started_at is not None
    if phase in FINAL_PHASES:
        why = reason or str(phase)
    elif phase is OperationPhase.ROLLING_BACK:
        why = str(OperationReason.ROLLING_BACK)
    else:
        why = str(OperationReason.IN_PROGRESS if accepted else OperationReason.QUEUED)
    queued = OperationReason.ACCEPTED if accepted else OperationReason.QUEUED
    return [
        Condition(OperationCondition.READY, "True" if succeeded else "False", why, message),
        Condition(OperationCondition.ACCEPTED, "True" if accepted else "False", queued),
        Condition(OperationCondition.COMPLETE, "True" if succeeded else "False", why),
        Condition(OperationCondition.FAILED, "True" if failed else "False", why, failure),
        Condition(OperationCondition.STALLED, "True" if failed else "False", why, failure),
    ]
