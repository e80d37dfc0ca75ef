"""The status that kstatus computes, by which Flux and other tools wait for custom resources.

The rules are the rules of kstatus for unknown kinds. `kstatus_cases.json` has cases with
the results of the module github.com/fluxcd/cli-utils v1.2.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from libs.common.conditions import READY, conditions_of

type Status = Literal["Current", "InProgress", "Failed", "Terminating"]


def compute_status(manifest: Mapping[str, Any]) -> Status:
    """Return the status of a custom resource; without any sign to the contrary it is Current."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    generation, observed = metadata.get("generation"), status.get("observedGeneration")
    if None not in (generation, observed) and generation != observed:
        return "InProgress"
    conditions = conditions_of(manifest)
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if condition["type"] == "Reconciling" else "Failed"
    for condition in conditions:
        if condition["type"] == READY and condition["status"] in ("True", "False", "Unknown"):
            return "Current" if condition["status"] == "True" else "InProgress"
    return "Current"
