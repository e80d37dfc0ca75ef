"""How pods of an older template are replaced, a few at a time.

Budgets are the same as for a Deployment: at most `maxSurge` pods beyond the wanted number exist, at
most `maxUnavailable` of the wanted number are missing. Pods of an older template that do not work
anyway go first, and pods of the new template that do not come up stop the update.
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
        replaces: Whether pods of an older template are replaced at all.
        surge: Pods beyond the wanted number that may exist.
        unavailable: Pods of the wanted number that may be missing.
        partition: Pods that keep an older template.
    """

    replaces: bool = False
    surge: int = 0
    unavailable: int = 0
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Rollout:
    """The progress of an update.

    Attributes:
        outdated: Pods that count and are of another template.
        pending: How many of them are still to be replaced.
        target: Number of pods to have at this moment: the wanted ones and the surge.
    """

    outdated: tuple[PodView, ...]
    pending: int
    target: int


def parse_budget(spec: PodSetSpec) -> Budget:
    """Read the update strategy of a set.

    Raises:
        TerminalError: A percentage is none.
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
    # Without any room an update could not begin. More new pods than are wanted are of no use, and
    # every reconcile would look at that many slots.
    unavailable = unavailable if surge or unavailable else 1
    return Budget(True, min(surge, spec.replicas), unavailable, partition)


def parse_share(value: int | str, total: int, field: str, *, up: bool) -> int:
    """Turn a number or a percentage into a number of pods.

    Args:
        value: Such as `3` or `25%`.
        total: What the percentage is of.
        field: Where the value stands, for the error.
        up: Whether a fraction is rounded up.

    Raises:
        TerminalError: The value is neither.
    """
    if isinstance(value, int) and value >= 0:
        return value
    digits = str(value).removesuffix("%")
    is_share = isinstance(value, str) and value.endswith("%")
    if not is_share or not digits.isdecimal() or int(digits) > _WHOLE:
        message = f"{field}: {value!r} is neither a number from 0 nor a percentage such as '25%'"
        raise TerminalError(Reason.INVALID_SPEC, message, field=field)
    parts = int(digits) * total
    return -(-parts // _WHOLE) if up else parts // _WHOLE


def observe_rollout(
    pods: Sequence[PodView], replicas: int, template_hash: str, budget: Budget
) -> Rollout:
    """Compare the pods that count with the template.

    Args:
        pods: Pods that count.
        replicas: Wanted number of pods.
        template_hash: Hash of the template.
        budget: Bounds of the update.
    """
    outdated = tuple(pod for pod in pods if pod.template_hash != template_hash)
    pending = max(0, len(outdated) - budget.partition) if budget.replaces else 0
    return Rollout(outdated, pending, replicas + min(budget.surge, pending))


def plan_replacements(
    pods: Sequence[PodView],
    available: frozenset[str],
    replicas: int,
    rollout: Rollout,
    budget: Budget,
    now: datetime,
) -> list[PodView]:
    """Choose the pods of an older template to delete now.

    Args:
        pods: Pods that count.
        available: Names of those that are available.
        replicas: Wanted number of pods.
        rollout: How far the update is.
        budget: Bounds of the update.
        now: Time from which ages are measured.
    """
    if not rollout.pending:
        return []
    needed = replicas - budget.unavailable
    old = {pod.name for pod in rollout.outdated}
    new_unavailable = sum(pod.name not in old and pod.name not in available for pod in pods)
    # New pods that do not come up use the room, so that a broken template breaks no more.
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
