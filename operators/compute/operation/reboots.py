"""Reboot and SoftReboot. Pure.

A SoftReboot asks the guest to reboot and waits for a sign of it. The request cannot be bound to one
run: it goes to the guest that runs when it arrives. So the request is recorded before it is sent,
and is sent again only if no sign of a reboot was observed in time. A sign is that the guest agent
was disconnected and has connected again, or that there is another run.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from operators.compute.api.operation import Facts, Operation, OperationReason
from operators.compute.api.tasks import SoftReboot, TimeoutAction
from operators.compute.operation.observed import (
    NextAction,
    Observed,
    Target,
    fail,
    is_done,
    proceed,
    succeed,
    wait,
)
from operators.compute.operation.requests import (
    ASK,
    RESTART,
    WAIT_RUNNING,
    build_restart,
    explain_wait,
    refuse_stopped,
)
from operators.compute.operation.resources import set_directive


def reboot(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    """End the run by its UID; the machine then starts again."""
    facts = operation.observed.facts
    match operation.observed.step:
        case "Baseline":
            if not target.powered or not target.run_uid:
                return refuse_stopped(target)
            # Recorded before any action, so that only this run is ended, even after a crash.
            return proceed(RESTART, facts=Facts(vmi_uid=target.run_uid))
        case "Restart":
            directive = build_restart(operation, facts.vmi_uid or "")
            if is_done(target.answer(directive)):
                return proceed(WAIT_RUNNING)
            what = explain_wait(target, f"waiting for run {facts.vmi_uid} to end")
            return wait(what, *set_directive(target, directive))
        case _:
            if target.running and target.run_uid != facts.vmi_uid:
                return succeed("the machine runs again")
            return wait(explain_wait(target, "waiting for the machine to run again"))


def soft_reboot(
    operation: Operation, target: Target, observed: Observed, now: datetime
) -> NextAction:
    """Ask the guest to reboot; if it does not and the spec requests it, end its run."""
    facts = operation.observed.facts
    match operation.observed.step:
        case "Baseline":
            if not target.powered or not target.run_uid:
                return refuse_stopped(target)
            seen = Facts(vmi_uid=target.run_uid, agent_since=target.agent_since)
            return proceed(ASK, facts=seen)
        case "Ask":
            if facts.asked_at is None:
                return _ask(facts, asked_at=now)
            return _look_for_signs(operation, target, now)
        case _:
            return reboot(operation, target, observed, now)


def refuse_reboot(message: str) -> NextAction:
    """Record that KubeVirt refused the request."""
    return fail(
        OperationReason.NOT_REBOOTED,
        f"KubeVirt rejected the request to reboot the guest: {message}",
    )


def _ask(facts: Facts, **changes: Any) -> NextAction:
    asked = facts.model_copy(update=changes)
    return NextAction({"facts": asked}, message="asking the guest to reboot", asks_guest=True)


def _look_for_signs(operation: Operation, target: Target, now: datetime) -> NextAction:
    facts = operation.observed.facts
    if target.run_uid != facts.vmi_uid:
        if target.running:
            return succeed("the machine runs again, in a new run")
        return wait(explain_wait(target, "waiting for the machine to run again"))
    if facts.agent_since is None:
        message = (
            "the guest was asked to reboot; without a guest agent its reboot cannot be verified"
        )
        return NextAction(_outcome_unverified(), message=message, again=True)
    if target.agent_since is None and facts.agent_lost_at is None:
        lost = facts.model_copy(update={"agent_lost_at": now})
        return NextAction({"facts": lost}, message="the guest is rebooting", again=True)
    back = target.agent_since is not None
    if back and (facts.agent_lost_at is not None or target.agent_since != facts.agent_since):
        return succeed("the guest has rebooted: its agent responds again")
    return _wait_or_insist(operation, now)


def _wait_or_insist(operation: Operation, now: datetime) -> NextAction:
    facts = operation.observed.facts
    wanted = operation.spec.soft_reboot or SoftReboot()
    signs = (facts.asked_at, facts.asked_again_at, facts.agent_lost_at)
    last = max(sign for sign in signs if sign is not None)
    left = (last + timedelta(seconds=wanted.wait_seconds) - now).total_seconds()
    if left > 0:
        gone = facts.agent_lost_at is not None
        what = (
            "waiting for the guest to come back" if gone else "waiting for the guest to shut down"
        )
        return NextAction(message=what, look_again=left)
    if facts.agent_lost_at is None and facts.asked_again_at is None:
        return _ask(facts, asked_again_at=now)
    if wanted.on_timeout is TimeoutAction.REBOOT:
        return proceed(RESTART, "the guest does not reboot by itself; ending its run")
    message = f"the guest showed no sign of a reboot in {wanted.wait_seconds} s; try a Reboot"
    return fail(OperationReason.NOT_REBOOTED, message)


def _outcome_unverified() -> dict[str, Any]:
    turn = succeed("")
    return {**turn.changes, "reason": str(OperationReason.UNVERIFIED)}
