"""Memory limits of containers, as pods have them; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.common.kinds import Manifest
from libs.common.reading import map_at, quantity_at


def read_limit(spec: Mapping[str, Any], container: Mapping[str, Any]) -> int:
    """Return the limit of a container or of its pod, whichever is lower, in bytes; 0 for none."""
    limits = [quantity_at(each, "resources", "limits", "memory") for each in (spec, container)]
    return int(min(filter(None, limits), default=0))


def pick_limit(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Manifest:
    """Reduce the resources of a container or pod to its memory limit.

    The status has the limit that holds, the specification the limit that is wanted.
    """
    for source in (status or {}, spec):
        if limit := map_at(source, "resources", "limits").get("memory"):
            return {"resources": {"limits": {"memory": limit}}}
    return {}
