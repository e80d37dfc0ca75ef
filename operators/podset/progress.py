"""Progress deadline: the time until a PodSet without progress exceeds its deadline. Pure.

No time is stored: progress is derived from the timestamps of pods and conditions. So the result is
the same after a restart of the operator or a change of the leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from libs.common.conditions import parse_time
from operators.podset.api.v1 import ConditionType, Reason
from operators.podset.reconcile import Assessment, Desired


def is_progressing(condition: Mapping[str, Any]) -> bool:
    """Return whether the condition Progressing is True."""
    return condition.get("status") == "True"


def find_time_left(
    desired: Desired, facts: Assessment, current: Sequence[Mapping[str, Any]], now: datetime
) -> float | None:
    """Return the seconds until a PodSet without further progress exceeds its deadline.

    Progress means that a pod is created or becomes ready, or that the spec changes. Ready pods that
    wait for `minReadySeconds` count as progress as well.

    Args:
        desired: Desired state.
        facts: Difference between the actual and the desired state.
        current: Current conditions of the PodSet.
        now: The time.

    Returns:
        The seconds, zero or negative if the deadline is exceeded; None if no deadline is running.
    """
    deadline = desired.podset.spec.progress_deadline_seconds
    held = next((each for each in current if each.get("type") == ConditionType.PROGRESSING), None)
    if held is None or held.get("observedGeneration") != desired.podset.metadata.generation:
        return None
    working = is_progressing(held)
    exceeded = held.get("reason") == Reason.PROGRESS_DEADLINE_EXCEEDED
    if not (working or exceeded) or facts.available_after is not None:
        return None
    # All times of the API have the same format, so they can be compared as text.
    times = [pod.created for pod in facts.active]
    times += [pod.ready_since for pod in facts.active if pod.is_ready]
    if working:
        times.append(str(held.get("lastTransitionTime") or ""))
    latest = max(times, default="")
    if not latest:
        # A set without pods has made no progress since it exceeded its deadline.
        return 0.0 if exceeded else None
    return deadline - (now - parse_time(latest)).total_seconds()
