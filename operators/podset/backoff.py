"""When pods that ended are replaced, and which of them are kept.

Everything is derived from existing pods, so nothing is lost at a restart. A pod that ended keeps
its name, and so its slot, until it is deleted. The number of successive early failures is recorded
on the replacement (annotation `attempt`); the time of the end is in the status of the pod. Only a
crash between the deletion of such a pod and the creation of its replacement loses one count: one
attempt is too early.

As many of the ended pods as there are vacancies wait to be replaced: those that ended last, since
vacancies are filled in the order in which they came up. The others were replaced already: they are
history.
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
        pod: The pod.
        retry_at: When it may be replaced, in seconds since 1970.
        next_attempt: What its replacement has to carry.
    """

    pod: PodView
    retry_at: float
    next_attempt: int


@dataclass(frozen=True, slots=True)
class Vacancies:
    """The free slots of a set, and how to fill them.

    Attributes:
        fresh: Number of pods to create that replace no ended pod.
        due: Ended pods to replace now.
        waiting: Ended pods whose replacement has to wait, the first one to come first.
        history: Ended pods that were replaced already, the last one to end first.
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
    """Decide which vacancies are filled now and which ended pods have to wait.

    Args:
        ended: Pods that ended and are not being deleted.
        vacancies: Pods that are missing.
        now: Seconds since 1970.
        hashes: Hashes of the templates in use; a pod of another template is replaced immediately.
        policy: Delays.
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
    """Work out when an ended pod may be replaced.

    A pod that lived for `maxSeconds` did not fail early, and a pod of another template says
    nothing about this one: both are replaced without delay, and counting starts again.
    """
    ended, created = seconds_of(pod.ended) or 0.0, seconds_of(pod.created) or 0.0
    if ended > now:
        # The time of the end comes from the clock of the node, which is ahead. The time of creation
        # comes from the clock of the API server: so the slot is neither blocked for as long as the
        # node's clock is ahead, nor refilled without delay for pods that only seem to have run for
        # long.
        ended = created
    if pod.template_hash not in hashes or ended - created >= policy.max_seconds:
        return Failure(pod, ended, 0)
    return Failure(pod, ended + delay_after(pod.attempt, policy), pod.attempt + 1)


def delay_after(attempt: int, policy: PodBackoff) -> int:
    """Return the seconds between the end of a pod and its replacement.

    Args:
        attempt: How many pods before it failed early; the first failure costs nothing.
        policy: Delays.
    """
    if attempt == 0:
        return 0
    # Beyond thirty doublings every delay is the longest one; the shift is kept small.
    return min(policy.base_seconds << min(attempt - 1, 30), policy.max_seconds)


def _last_ended(pod: PodView) -> tuple[str, str]:
    return (pod.ended, pod.uid)
