"""Rolling update: replaces pods of an older template step by step.

The limits are the same as for a Deployment: at most `maxSurge` pods exist in addition to
spec.replicas, and at most `maxUnavailable` of spec.replicas are unavailable. Unavailable pods of an
older template are replaced first. If pods of the new template do not become available, the update
stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from libs.common.errors import TerminalError
from operators.podset.api.v1 import PodSetSpec, Reason
from operators.podset.ranking import rank_for_deletion
from operators.podset.view import PodView

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of an update, in pods.

    Attributes:
        replaces: Whether the operator replaces pods of an older template (not with OnDelete).
        surge: Number of pods that may exist in addition to spec.replicas.
        partition: Number of pods that keep an older template.
        paused: Whether pods of an older template are left alone for now.
    """

    replaces: bool = False
    surge: int = 0
    unavailable: int = 0
    partition: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """The progress of an update.

    Attributes:
        pending: Number of these pods that must still be replaced.
        target: Number of pods that should exist now: spec.replicas plus the surge.
    """

    outdated: tuple[PodView, ...]
    pending: int
    target: int


def parse_budget(spec: PodSetSpec) -> Budget:
    """Compute the limits from the update strategy of a PodSet.

    Raises:
        TerminalError: A value is neither a number nor a percentage.
    """
    rolling = spec.update_strategy.rolling
    if rolling is None:
        return Budget()
    field, limits = rolling
    prefix = f"spec.updateStrategy.{field}"
    surge = parse_share(limits.max_surge, spec.replicas, f"{prefix}.maxSurge", up=True)
    unavailable = parse_share(
        limits.max_unavailable, spec.replicas, f"{prefix}.maxUnavailable", up=False
    )
    partition = parse_share(limits.partition, spec.replicas, f"{prefix}.partition", up=True)
    # If neither surge nor unavailable pods were allowed, an update could not begin. A surge of more
    # than spec.replicas would be useless, and every reconcile would look up that many slots.
    unavailable = unavailable if surge or unavailable else 1
    paused = spec.paused
    return Budget(True, min(surge, spec.replicas), unavailable, partition, paused)


def parse_share(value: int | str, total: int, field: str, *, up: bool) -> int:
    """Convert a number or a percentage to a number of pods.

    Args:
        value: For example `3` or `25%`.
        total: Number of which the percentage is taken.
        field: Field path of the value, for the error message.
        up: Whether to round up; otherwise the result is rounded down.

    Raises:
        TerminalError: The value is neither.
    """
    if isinstance(value, int) and value >= 0:
        return value
    digits = str(value).removesuffix("%")
    is_share = isinstance(value, str) and value.endswith("%")
    if not is_share or not digits.isdecimal() or int(digits) > _WHOLE:
        message = f"{field}: {value!r} must be a number of at least 0 or a percentage such as '25%'"
        raise TerminalError(Reason.INVALID_SPEC, message, field=field)
    parts = int(digits) * total
    return -(-parts // _WHOLE) if up else parts // _WHOLE


def observe_rollout(
    pods: Sequence[PodView], replicas: int, template_hash: str, budget: Budget
) -> Rollout:
    """Compare the active pods with the template."""
    outdated = tuple(pod for pod in pods if pod.template_hash != template_hash)
    pending = max(0, len(outdated) - budget.partition) if budget.replaces else 0
    surge = 0 if budget.paused else min(budget.surge, pending)
    return Rollout(outdated, pending, replicas + surge)


def plan_replacements(
    pods: Sequence[PodView],
    available: frozenset[str],
    replicas: int,
    rollout: Rollout,
    budget: Budget,
    now: datetime,
) -> list[PodView]:
    """Choose the pods of an older template to delete now."""
    if not rollout.pending or budget.paused:
        return []
    needed = replicas - budget.unavailable
    old = {pod.name for pod in rollout.outdated}
    new_unavailable = sum(pod.name not in old and pod.name not in available for pod in pods)
    # New pods that are not available use up maxUnavailable, so that a broken template makes no
    # further pods unavailable.
    room = min(rollout.pending, len(pods) - needed - new_unavailable)
    spare = len(available) - needed
    chosen: list[PodView] = []
    ranked = rank_for_deletion(rollout.outdated, now)
    for pod in sorted(ranked, key=lambda pod: pod.name in available):
        if len(chosen) >= room:
            break
        if pod.name in available:
            if spare <= 0:
                break
            spare -= 1
        chosen.append(pod)
    return chosen
