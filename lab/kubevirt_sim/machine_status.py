"""The status of a machine, from its instance and from what it said before. Pure.

It follows `updateStatus` and `syncConditions` of KubeVirt's VM controller. What an instance has
reported stays in the status of a machine that is off: generations and all conditions but `Ready`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from lab.kubevirt_sim.printable import StatusInputs, find_printable_status
from lab.kubevirt_sim.revisions import generation_of, observed_generation
from lab.kubevirt_sim.rollout import Rollout
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from libs.common.conditions import find_condition
from libs.common.kinds import Manifest
from libs.common.reading import holds_at, maps_at, text_at

_OWN: Final = frozenset({"Ready", "Failure", "RestartRequired"})
"""Conditions that a machine does not copy from its instance."""


def build_status(inputs: StatusInputs, change: Rollout | None, now: datetime) -> Manifest:
    """Build the status of a machine.

    Args:
        inputs: The machine and what its status depends on.
        change: What the change of its template comes to; None if that is not known.
        now: Time.
    """
    vm, vmi = inputs.vm, inputs.vmi
    held = dict(vm.get("status") or {})
    ready = find_condition(vmi, "Ready") if vmi is not None else None
    status = {
        **held,
        "created": vmi is not None,
        "ready": ready is not None and ready.get("status") == "True",
        "printableStatus": str(find_printable_status(inputs)),
        "conditions": merge_conditions(
            held.get("conditions") or (), _build_conditions(inputs, ready, change), now
        ),
    }
    generation = observed_generation(vmi) if vmi is not None else None
    if generation is not None:
        # Both are left as they are once the instance is gone.
        status["observedGeneration"] = generation
        status["desiredGeneration"] = generation_of(vm)
    if vmi is not None or text_at(held, "runStrategy"):
        # A machine that has never run has none.
        status["runStrategy"] = inputs.strategy
    for name in ("created", "ready"):
        if not status[name]:
            # They are optional booleans of the Go type, which are left out when false.
            del status[name]
    return status


def _build_conditions(
    inputs: StatusInputs, ready: Mapping[str, Any] | None, change: Rollout | None
) -> list[Manifest]:
    source = inputs.vm if inputs.vmi is None else inputs.vmi
    rest = [
        dict(item)
        for item in maps_at(source, "status", "conditions")
        if item.get("type") not in _OWN
    ]
    return [
        _build_ready(inputs.vmi, ready),
        *rest,
        *_build_failure(change),
        *_build_restart(inputs, change),
    ]


def _build_ready(vmi: Mapping[str, Any] | None, ready: Mapping[str, Any] | None) -> Manifest:
    if vmi is None:
        return build_condition("Ready", False, "VMINotExists", "VMI does not exist")
    if ready is None:
        text = "VMI is missing the Ready condition"
        return build_condition("Ready", False, "VMIConditionMissing", text)
    return {name: value for name, value in ready.items() if "Time" not in name}


def _build_failure(change: Rollout | None) -> list[Manifest]:
    if change is None or change.failure is None:
        return []
    return [build_condition("Failure", True, *change.failure)]


def _build_restart(inputs: StatusInputs, change: Rollout | None) -> list[Manifest]:
    """Build `RestartRequired`, which lasts until the next start or until it is untrue."""
    if inputs.starting:
        return []
    if change is not None:
        text = change.restart
        return [build_condition("RestartRequired", True, message=text)] if text else []
    held = find_condition(inputs.vm, "RestartRequired")
    return [dict(held)] if held is not None and holds_at(inputs.vm, "RestartRequired") else []
