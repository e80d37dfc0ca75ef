"""Applies that changed nothing, so that they are not sent again before something changes."""

from __future__ import annotations

from typing import Final

import orjson

from libs.common.kinds import Manifest, uid_of
from libs.common.labels import APPLIED_HASH
from libs.common.naming import short_hash

_LIMIT: Final = 10_000


class UnchangedApplies:
    """The applies that changed nothing, although the live object differs from the desired state.

    The server may normalize a value in a way that the comparison does not know, or drop a field,
    and admission may add an item to a list, such as a sidecar container.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._states: dict[str, tuple[str, str]] = {}

    def add(self, live: Manifest, desired: Manifest) -> None:
        """Record that applying the desired state to the live object changed nothing."""
        uid = uid_of(live)
        self._states.pop(uid, None)
        self._states[uid] = _describe(live, desired)
        if len(self._states) > _LIMIT:
            # Drop the oldest entry; in the worst case the apply is sent again.
            del self._states[next(iter(self._states))]

    def contains(self, live: Manifest, desired: Manifest) -> bool:
        """Return whether this apply changed nothing, and the object did not change since then."""
        return self._states.get(uid_of(live)) == _describe(live, desired)


def _describe(live: Manifest, desired: Manifest) -> tuple[str, str]:
    """Return a text that changes with everything that an apply can set, and the desired state.

    The generation stands for the spec, so a change of the status makes no difference. For kinds
    without a generation, the resource version stands for everything.
    """
    metadata = live["metadata"]
    version = "generation" if metadata.get("generation") else "resourceVersion"
    names = ("labels", "annotations", "ownerReferences", "finalizers", version)
    fields = {name: metadata.get(name) for name in names}
    state = short_hash(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode())
    return state, str(desired["metadata"]["annotations"][APPLIED_HASH])
