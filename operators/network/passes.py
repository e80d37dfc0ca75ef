"""What reconciles of Networks and Firewalls have in common: take steps and report them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from libs.common.errors import ForeignObject
from libs.common.plan import Outcome, Patch, Step
from libs.common.runtime import Context
from operators.network.metrics import REPAIRS, WRITES


async def take_steps(
    ctx: Context, batches: Sequence[Sequence[Step]], *, reason: str, repaired: str
) -> Outcome:
    """Take the steps of a plan, and tell people and metrics of what changed.

    Args:
        ctx: The pass.
        batches: Steps, those that close before those that open.
        reason: Reason of the Event.
        repaired: Reason of the Event about an object that somebody else had changed.
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
    ctx.log.info("Changing children", steps=[str(step) for step in outcome.done])
    return outcome


def explain_refusal[Reason: StrEnum](
    outcome: Outcome, *, taken: Reason, refused: Reason
) -> tuple[Reason, str] | None:
    """Tell why a step failed, and the words for people; None when none did.

    Args:
        outcome: What became of the steps.
        taken: Reason for a name that somebody else's object has.
        refused: Reason for everything else.
    """
    if not outcome.failures:
        return None
    failure = outcome.failures[0]
    reason = taken if isinstance(failure.error, ForeignObject) else refused
    return reason, failure.message
