"""Whether a set makes progress towards its spec, judged by its pods and its own conditions; pure.

No time is stored: progress shows in the times of the pods. So a restart of the operator, or another
leader, comes to the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from libs.common.conditions import parse_time
from operators.podset.api.v1 import ConditionType, Reason
from operators.podset.reconcile import Assessment, Desired


def find_time_left(
    desired: Desired, facts: Assessment, current: Sequence[Mapping[str, Any]], now: datetime
) -> float | None:
    """Return the seconds until a set without further progress exceeds its deadline.

    Progress is a pod that is created or becomes ready, and a change of the spec. Ready pods that
    wait for `minReadySeconds` count as progress as well.

    Args:
        desired: What the spec asks for.
        facts: How the pods compare with it.
        current: Conditions that the set shows.
        now: The time.

    Returns:
        The seconds, not positive once the deadline is exceeded; None if nothing is waited for yet.
    """
    deadline = desired.podset.spec.progress_deadline_seconds
    held = next((each for each in current if each.get("type") == ConditionType.PROGRESSING), None)
    if held is None or held.get("observedGeneration") != desired.podset.metadata.generation:
        return None
    working = held.get("status") == "True"
    exceeded = held.get("reason") == Reason.PROGRESS_DEADLINE_EXCEEDED
    if not (working or exceeded) or facts.available_after is not None:
        return None
    # Times of the API have one form and compare as text.
    times = [pod.created for pod in facts.active]
    times += [pod.ready_since for pod in facts.active if pod.is_ready]
    if working:
        times.append(str(held.get("lastTransitionTime") or ""))
    latest = max(times, default="")
    return deadline - (now - parse_time(latest)).total_seconds() if latest else None
