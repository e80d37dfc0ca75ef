"""Which pods go first when the set shrinks: the order of the ReplicaSet controller.

Its rules, each of which decides between pods that all rules before it left equal: pods on no node
before pods on one; Pending before Unknown before Running; not ready before ready; low deletion cost
first; many pods of the set on the same node before few; ready for a short time before long; many
restarts before few, first of containers and then of sidecars; young before old. Times are compared
by the logarithm of the age, so that among pods of a similar age no batch goes as a whole.

Two things are added. Names in `spec.podsToDelete` come before everything else. And where ReplicaSet
draws lots by UID, the highest slot goes, so that a set tends to keep its low slots.
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
    """Sort pods so that those to delete first come first.

    Args:
        pods: Pods that count.
        now: Time from which ages are measured.
        preferred: Names that go before all others.
        outdated: Names of pods that an update replaces anyway; they go next.
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
        time: Start of the age; an empty text counts as this moment.
        now: Seconds since 1970.
    """
    start = seconds_of(time)
    age = int((now - start) * _NANOSECONDS) if start is not None else 0
    return age.bit_length() - 1 if age > 0 else -1
