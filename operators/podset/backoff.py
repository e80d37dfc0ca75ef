"""Back-off of failed pods: when ended pods are replaced, and which of them are kept.

Everything is derived from existing pods, so a restart of the operator loses nothing. An ended pod
keeps its name, and therefore its slot, until it is deleted. The annotation `attempt` of the
replacement records the number of successive early failures; the status of the ended pod contains
the time at which it ended. The only exception: if the operator crashes after it deleted an ended
pod and before it created the replacement, the count is lost and the next back-off is too short.

Vacancies are filled in the order in which they occur. So with V vacancies, the V pods that ended
last have not been replaced yet. All earlier ended pods have a replacement and are history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from operators.podset.api.v1 import PodBackoff
from operators.podset.view import PodView, seconds_of


@dataclass(frozen=True, slots=True)
class Failure:
    """One ended pod that has not been replaced yet.

    Attributes:
        retry_at: Earliest time of its replacement, in seconds since 1970.
        next_attempt: Value of the annotation `attempt` of its replacement.
    """

    pod: PodView
    retry_at: float
    next_attempt: int


@dataclass(frozen=True, slots=True)
class Vacancies:
    """The missing pods of a PodSet, and how to replace them.

    Attributes:
        fresh: Number of pods to create that replace no ended pod.
        due: Ended pods to replace now.
        waiting: Ended pods in back-off, ordered by the time of their replacement.
        history: Ended pods that have been replaced, the most recent first.
    """

    fresh: int
    due: tuple[Failure, ...]
    waiting: tuple[Failure, ...]
    history: tuple[PodView, ...]

    def obsolete(self, limit: int) -> list[PodView]:
        """Return the ended pods to delete so that at most `limit` are kept as history."""
        ended = [*(failure.pod for failure in self.due), *self.history]
        return sorted(ended, key=_last_ended, reverse=True)[limit:]


def plan_vacancies(
    ended: Sequence[PodView],
    vacancies: int,
    now: float,
    hashes: Collection[str],
    policy: PodBackoff,
) -> Vacancies:
    """Decide which vacancies are filled now, and which ended pods are still in back-off.

    Args:
        ended: Pods that ended and are not being deleted.
        vacancies: Number of missing pods.
        now: Seconds since 1970.
        hashes: Hashes of the templates in use; a pod of another template is replaced immediately.
        policy: Delays of the back-off.
    """
    newest_first = sorted(ended, key=_last_ended, reverse=True)
    failures = [
        build_failure(pod, now, hashes, policy) for pod in newest_first[: max(vacancies, 0)]
    ]
    waiting = [failure for failure in failures if failure.retry_at > now]
    return Vacancies(
        fresh=max(vacancies, 0) - len(failures),
        due=tuple(failure for failure in failures if failure.retry_at <= now),
        waiting=tuple(sorted(waiting, key=lambda failure: failure.retry_at)),
        history=tuple(newest_first[max(vacancies, 0) :]),
    )


def build_failure(pod: PodView, now: float, hashes: Collection[str], policy: PodBackoff) -> Failure:
    """Determine when an ended pod may be replaced.

    A pod that ran for `maxSeconds` did not fail early, and the failure of a pod with another
    template says nothing about the current template. In both cases the pod is replaced without
    delay and the count of failures is reset.
    """
    ended, created = seconds_of(pod.ended) or 0.0, seconds_of(pod.created) or 0.0
    if ended > now:
        # The node, whose clock is ahead, reported the time of the end; the API server set the time
        # of creation. Using the latter neither blocks the slot until `now` catches up with the
        # node's clock, nor treats a pod that only seems to have run for long as a late failure.
        ended = created
    if pod.template_hash not in hashes or ended - created >= policy.max_seconds:
        return Failure(pod, ended, 0)
    return Failure(pod, ended + delay_after(pod.attempt, policy), pod.attempt + 1)


def delay_after(attempt: int, policy: PodBackoff) -> int:
    """Return the seconds between the end of a pod and its replacement.

    Args:
        attempt: Number of earlier pods in a row that failed early; 0 means no delay.
        policy: Delays of the back-off.
    """
    if attempt == 0:
        return 0
    # After 30 doublings the delay exceeds any allowed maxSeconds; the bound keeps the shift small,
    # because the attempt comes from an annotation that users can edit.
    return min(policy.base_seconds << min(attempt - 1, 30), policy.max_seconds)


def _last_ended(pod: PodView) -> tuple[str, str]:
    return (pod.ended, pod.uid)
