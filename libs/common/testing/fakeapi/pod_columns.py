"""What `kubectl get pods` shows of a pod: readiness, state, restarts, and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.reading import map_at, maps_at, text_at

_NONE: Final = "<none>"


@dataclass(slots=True)
class _Summary:
    """The containers of a pod, counted."""

    reason: str
    ready: int = 0
    restarts: int = 0
    sidecar_restarts: int = 0
    last_restart: str = ""
    last_sidecar_restart: str = ""
    initializing: bool = False


def list_pod_cells(pod: Manifest, render_age: Callable[[str], str]) -> list[Any]:
    """Return the cells of a pod after its name."""
    spec, status = map_at(pod, "spec"), map_at(pod, "status")
    summary = _Summary(_pod_reason(pod))
    sidecars = {
        each["name"]
        for each in maps_at(spec, "initContainers")
        if each.get("restartPolicy") == "Always"
    }
    _count_init(summary, pod, sidecars)
    if not summary.initializing or _is_true(pod, "Initialized"):
        _count_main(summary, pod)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts += f" ({render_age(summary.last_restart)} ago)"
    total = len(maps_at(spec, "containers")) + len(sidecars)
    return [
        f"{summary.ready}/{total}",
        summary.reason,
        restarts,
        render_age(text_at(pod, "metadata", "creationTimestamp")),
        next((text_at(each, "ip") for each in maps_at(status, "podIPs")), _NONE),
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _count_gates(pod),
    ]


def list_row_conditions(pod: Manifest) -> list[Manifest]:
    """Return the conditions of the row of a pod: whether it has ended, and how."""
    phase = text_at(pod, "status", "phase")
    texts = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
    if phase not in texts:
        return []
    ended = {"type": "Completed", "status": "True", "reason": phase, "message": texts[phase]}
    return [ended]


def _pod_reason(pod: Manifest) -> str:
    status = map_at(pod, "status")
    for condition in maps_at(status, "conditions"):
        gated = condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        if gated:
            return "SchedulingGated"
    return str(status.get("reason") or status.get("phase", ""))


def _count_init(summary: _Summary, pod: Manifest, sidecars: set[str]) -> None:
    total = len(maps_at(pod, "spec", "initContainers"))
    for index, container in enumerate(maps_at(pod, "status", "initContainerStatuses")):
        restarts, ended = container.get("restartCount", 0), _last_end(container)
        summary.restarts += restarts
        summary.last_restart = max(summary.last_restart, ended)
        sidecar = container["name"] in sidecars
        if sidecar:
            summary.sidecar_restarts += restarts
            summary.last_sidecar_restart = max(summary.last_sidecar_restart, ended)
        terminated = map_at(container, "state", "terminated")
        waiting = text_at(container, "state", "waiting", "reason")
        if terminated and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if terminated:
            summary.reason = f"Init:{_ended_reason(terminated)}"
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{index}/{total}"
        summary.initializing = True
        return


def _count_main(summary: _Summary, pod: Manifest) -> None:
    summary.restarts = summary.sidecar_restarts
    summary.last_restart = summary.last_sidecar_restart
    running = False
    for container in reversed(maps_at(pod, "status", "containerStatuses")):
        summary.restarts += container.get("restartCount", 0)
        summary.last_restart = max(summary.last_restart, _last_end(container))
        state = map_at(container, "state")
        waiting, terminated = text_at(state, "waiting", "reason"), map_at(state, "terminated")
        if waiting:
            summary.reason = waiting
        elif terminated:
            summary.reason = _ended_reason(terminated)
        elif container.get("ready") and "running" in state:
            running = True
            summary.ready += 1
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if _is_true(pod, "Ready") else "NotReady"


def _last_end(container: Mapping[str, Any]) -> str:
    return text_at(container, "lastState", "terminated", "finishedAt")


def _ended_reason(terminated: Mapping[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_true(pod: Manifest, condition: str) -> bool:
    found = maps_at(pod, "status", "conditions")
    return any(each["type"] == condition and each["status"] == "True" for each in found)


def _count_gates(pod: Manifest) -> str:
    gates = maps_at(pod, "spec", "readinessGates")
    if not gates:
        return _NONE
    return f"{sum(_is_true(pod, each['conditionType']) for each in gates)}/{len(gates)}"
