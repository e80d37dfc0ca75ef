"""Order in which a scale-down deletes pods, which follows the ReplicaSet controller.

Each rule of the ReplicaSet controller breaks the ties of the rules before it:

1. pods without a node before pods on a node;
2. Pending before Unknown before Running;
3. not ready before ready;
4. lower deletion cost first;
5. more pods of the PodSet on the same node first;
6. ready for a shorter time first;
7. more restarts first, of containers and then of sidecars;
8. younger before older.

Times are compared by the logarithm of the age, so that pods of a similar age tie and a scale-down
does not delete all pods of one batch.

Three rules are added. Names in `spec.podsToDelete` come before everything else, and pods that an
update will replace anyway come next. Where ReplicaSet breaks the last tie by UID, the pod with the
highest slot is deleted first, so that a PodSet tends to keep its low slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from operators.podset.view import PodView, seconds_of

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_NANOSECONDS: Final = 1_000_000_000

type _Rank = tuple[bool, bool, bool, int, bool, int, int, int, int, int, int, int, str]


def rank_for_deletion(
    pods: Sequence[PodView],
    now: datetime,
    *,
    preferred: Collection[str] = (),
    outdated: Collection[str] = (),
) -> list[PodView]:
    """Sort pods by the order in which a scale-down deletes them.

    Args:
        pods: Active pods.
        now: Time from which ages are measured.
        preferred: Names of pods to delete before all others.
        outdated: Names of pods that an update will replace anyway; they come next.
    """
    on_node = Counter(pod.node for pod in pods)
    seconds = now.timestamp()
    names, old = frozenset(preferred), frozenset(outdated)

    def rank(pod: PodView) -> _Rank:
        return (
            pod.name not in names,
            pod.name not in old,
            bool(pod.node),
            _PHASES.get(pod.phase, 1),
            pod.is_ready,
            pod.deletion_cost,
            -on_node[pod.node] if pod.node else 0,
            log_age(pod.ready_since, seconds) if pod.is_ready else 0,
            -pod.restarts,
            -pod.sidecar_restarts,
            log_age(pod.created, seconds),
            -pod.slot if pod.slot is not None else 0,
            pod.uid,
        )

    return sorted(pods, key=rank)


def log_age(time: str, now: float) -> int:
    """Return the binary logarithm of an age in nanoseconds, rounded down; -1 for none.

    Args:
        time: Start of the age; an empty text means now.
        now: Seconds since 1970.
    """
    start = seconds_of(time)
    age = int((now - start) * _NANOSECONDS) if start is not None else 0
    return age.bit_length() - 1 if age > 0 else -1
