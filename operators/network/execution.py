"""Execution of plans for Networks and Firewalls: writes, Events, metrics and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from libs.common.errors import ForeignObject
from libs.common.plan import Outcome, Patch, Step
from libs.common.runtime import Context
from operators.network.metrics import REPAIRS, WRITES


async def execute_steps(
    ctx: Context, batches: Sequence[Sequence[Step]], *, reason: str, repaired: str
) -> Outcome:
    """Execute the steps of a plan, and record Events and metrics for the changes.

    Args:
        ctx: Context of the reconcile.
        batches: Steps; policies that deny traffic come before policies that allow it.
        reason: Reason of the Event.
        repaired: Reason of the Event for an object that another client had changed.
    """
    outcome = await ctx.execute(*batches)
    if not outcome.changed:
        return outcome
    ctx.metrics.counter(WRITES).labels(ctx.kind.kind).inc(outcome.changed)
    patches = [step for step in outcome.done if isinstance(step, Patch)]
    for step in patches:
        ctx.metrics.counter(REPAIRS).labels(step.kind.kind).inc()
        ctx.event(
            "Warning",
            repaired,
            f"Corrected {step.kind.kind} {step.key}, which another client had changed",
        )
    if outcome.changed > len(patches):
        ctx.event("Normal", reason, "Updated policies and attachments")
    ctx.log.info("Changed children", steps=[str(step) for step in outcome.done])
    return outcome


def explain_refusal[Reason: StrEnum](
    outcome: Outcome, *, taken: Reason, refused: Reason
) -> tuple[Reason, str] | None:
    """Return reason and message of the first failed step; None if no step failed.

    Args:
        outcome: Outcome of the steps.
        taken: Reason if an object of another owner has the name.
        refused: Reason for all other errors.
    """
    if not outcome.failures:
        return None
    failure = outcome.failures[0]
    reason = taken if isinstance(failure.error, ForeignObject) else refused
    return reason, failure.message
