"""Find the trial that owns an object, including cluster-scoped objects. Pure.

Trials run concurrently on one API server. An object in a namespace belongs to the trial with that
name. A cluster-scoped object belongs to the trial whose name is in its own name, or in the name of
an object to which it refers. A workload names such objects by `User.scoped`, or by
`User.short_name` if the names are too long. The proxy shows an operator only the objects of its
trial.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from libs.common.kinds import Manifest

_LEFT_OUT = frozenset({"managedFields"})


def belongs(manifest: Manifest, trial: str) -> bool:
    """Return whether an object belongs to a trial."""
    metadata = manifest.get("metadata") or {}
    namespace = metadata.get("namespace")
    if namespace:
        return bool(namespace == trial)
    kept = {name: value for name, value in metadata.items() if name not in _LEFT_OUT}
    text = json.dumps([kept, manifest.get("spec")])
    return _pattern_of(trial).search(text) is not None


def leave_out_others(listing: Manifest, trial: str) -> Manifest:
    """Return a list without the objects that do not belong to a trial."""
    items = [each for each in listing.get("items") or () if belongs(each, trial)]
    return {**listing, "items": items}


@lru_cache(maxsize=256)
def _pattern_of(trial: str) -> re.Pattern[str]:
    # Trials are numbered, so the name of trial 1 must not match the name of trial 10.
    names = f"(?:{re.escape(trial)}|{short_name(trial)})"
    return re.compile(rf"(?<![a-z0-9-]){names}(?![0-9])")


def short_name(trial: str) -> str:
    """Return the short name of a trial, which contains its unique number."""
    return f"trial{trial.rpartition('-')[2]}"
