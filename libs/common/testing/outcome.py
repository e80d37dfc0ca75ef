"""The results of a run of an operator, so that two runs can be compared."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.common.kinds import EVENT, LEASE, Manifest
from libs.common.labels import APPLIED_HASH
from libs.common.testing.fakeapi import FakeApi, Request

_NOISE: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "generation",
        "observedGeneration",
        APPLIED_HASH,  # It covers the UID of the owner.
    }
)
_TIMES: Final = frozenset({"lastTransitionTime", "startTime", "ownerUid"})


@dataclass(frozen=True)
class Run:
    """The result of a run.

    Attributes:
        state: Objects by kind and key, without what differs from run to run.
        creates: How often each object was created.
        deletes: How often each object was deleted.
        writes: Writes that changed something.
    """

    state: dict[str, Manifest]
    creates: Counter[str]
    deletes: Counter[str]
    writes: list[Request]


def normalize(manifest: Mapping[str, Any]) -> Manifest:
    """Drop what differs between two runs that did the same."""
    cleaned: Manifest = _strip(copy.deepcopy(dict(manifest)))
    return cleaned


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _strip(member)
            for name, member in value.items()
            if name not in _NOISE and name not in _TIMES
        }
    if isinstance(value, list):
        return [_strip(member) for member in value]
    return value


def is_of_the_operator(request: Request) -> bool:
    """Return whether a request is a write of the operator to what it manages."""
    return (
        request.writes
        and request.kind not in (LEASE, EVENT)
        and request.user_agent.startswith("slipway-")
    )


def writes_of_the_operator(api: FakeApi, mark: int) -> list[Request]:
    """Return the writes of the operator since a mark that changed something."""
    return [each for each in api.writes(mark) if is_of_the_operator(each) and each.changed]


def count_names(requests: Sequence[Request], verb: str) -> Counter[str]:
    """Count the requests of a verb by the object that they name."""
    names = Counter[str]()
    for each in requests:
        if each.verb == verb:
            name = each.key.name or (each.body or {}).get("metadata", {}).get("name", "")
            names[f"{each.kind} {name}"] += 1
    return names
