"""Scheduler and kubelet of the pods that the simulator runs itself. Pure.

A pod is put on a node, its containers run after a while, and its address comes from the range of
the node. What ends a pod is the end of its guest, or its deletion. A silent node does nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lab.kubevirt_sim.behavior import SIMULATED_NODE, Guest, is_silent
from lab.kubevirt_sim.instance import Watch
from lab.kubevirt_sim.launcher import HOSTNAME, UNPAUSED, is_finished
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from lab.kubevirt_sim.timing import Timing
from libs.common.conditions import find_condition, render_time
from libs.common.kinds import Manifest, is_deleting, uid_of
from libs.common.reading import holds_at, map_at, maps_at, text_at, text_map_at

ADDRESSES: Final = "sim.slipway.dev/addresses"
"""Annotation on a simulated node: the range that its pods get addresses from."""
_FIRST_HOST: Final = 2


@dataclass(frozen=True, slots=True)
class PodPlan:
    """The plan for a pod.

    Attributes:
        bind: Node to put it on; empty for none.
        status: Status from now on; None to leave it.
        finish: Whether a deleted pod is gone now.
        wait: Seconds until another look; None for none.
    """

    bind: str = ""
    status: Manifest | None = None
    finish: bool = False
    wait: float | None = None


def plan_pod(
    pod: Manifest,
    node: Manifest,
    pods: Sequence[Manifest],
    guest: Guest,
    timing: Timing,
    left: Watch,
    now: datetime,
) -> PodPlan:
    """Plan one step of a pod that is on a node.

    Args:
        pod: A pod of the simulator's scheduler.
        node: Its node.
        pods: All pods of the simulator's scheduler on the node.
        guest: How the guest behaves that it holds.
        timing: How long things take.
        left: Returns the remaining time of a step.
        now: Time.
    """
    if is_silent(node):
        return PodPlan()
    if is_deleting(pod):
        return PodPlan(finish=True)
    if is_finished(pod):
        return PodPlan()
    return _run(pod, node, pods, guest, timing, left, now)


def build_ended_status(pod: Manifest, now: datetime, *, well: bool) -> Manifest:
    """Build the status of a pod whose containers have ended."""
    status = pod.get("status") or {}
    code, reason = (0, "Completed") if well else (1, "Error")
    ended = {"exitCode": code, "reason": reason, "finishedAt": render_time(now)}
    container = _container(pod)
    conditions = [
        build_condition("PodScheduled", True),
        build_condition("Initialized", True, "PodCompleted" if well else ""),
        build_condition("ContainersReady", False, "PodCompleted" if well else "PodFailed"),
        build_condition("Ready", False, "PodCompleted" if well else "PodFailed"),
    ]
    return {
        **status,
        "phase": "Succeeded" if well else "Failed",
        "containerStatuses": [{**container, "ready": False, "state": {"terminated": ended}}],
        "conditions": merge_conditions(status.get("conditions") or (), conditions, now),
    }


def fits(
    pod: Mapping[str, Any],
    node: Mapping[str, Any],
    pods: Sequence[Manifest],
    places: Sequence[Sequence[str]],
) -> bool:
    """Return whether a pod may be put on a node."""
    if any(node["metadata"]["name"] not in names for names in places):
        return False
    labels = text_map_at(node, "metadata", "labels")
    wanted = text_map_at(pod, "spec", "nodeSelector")
    if SIMULATED_NODE not in labels or map_at(node, "spec").get("unschedulable") is True:
        return False
    if is_silent(node) or any(labels.get(name) != value for name, value in wanted.items()):
        return False
    here = [
        other
        for other in pods
        if text_at(other, "spec", "nodeName") == node["metadata"]["name"] and not is_finished(other)
    ]
    terms = map_at(pod, "spec", "affinity", "podAntiAffinity").get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return not any(_has_anti_affinity(term, other, pod) for term in terms or () for other in here)


def _has_anti_affinity(term: Mapping[str, Any], other: Manifest, pod: Mapping[str, Any]) -> bool:
    if term.get("topologyKey") != HOSTNAME or uid_of(other) == uid_of(pod):
        return False
    wanted = text_map_at(term, "labelSelector", "matchLabels")
    labels = text_map_at(other, "metadata", "labels")
    return bool(wanted) and all(labels.get(name) == value for name, value in wanted.items())


def plan_placement(
    pod: Manifest,
    nodes: Sequence[Manifest],
    pods: Sequence[Manifest],
    places: Sequence[Sequence[str]],
    guest: Guest,
    timing: Timing,
    left: Watch,
    now: datetime,
) -> PodPlan:
    """Plan where a pod without a node goes: to the fitting node with the fewest pods.

    Args:
        pod: A pod of the simulator's scheduler.
        nodes: All nodes.
        pods: All pods of the simulator's scheduler.
        places: For each of its volumes that not all nodes can use, the nodes that can.
        guest: How the guest behaves that it holds.
        timing: How long things take.
        left: Returns the remaining time of a step.
        now: Time.
    """
    wait = left("schedule", timing.schedule)
    if wait:
        return PodPlan(wait=wait)
    fitting = (
        [] if guest.unschedulable else [node for node in nodes if fits(pod, node, pods, places)]
    )
    if fitting:
        return PodPlan(bind=min(fitting, key=lambda node: _load(node, pods))["metadata"]["name"])
    status = pod.get("status") or {}
    text = f"0/{len(nodes)} nodes are available"
    conditions = merge_conditions(
        status.get("conditions") or (),
        [build_condition("PodScheduled", False, "Unschedulable", text)],
        now,
    )
    wanted = {**status, "phase": "Pending", "conditions": conditions}
    return PodPlan(status=wanted if wanted != status else None)


def _load(node: Mapping[str, Any], pods: Sequence[Manifest]) -> tuple[int, str]:
    name = node["metadata"]["name"]
    load = sum(
        1 for pod in pods if text_at(pod, "spec", "nodeName") == name and not is_finished(pod)
    )
    return load, name


def _run(
    pod: Manifest,
    node: Manifest,
    pods: Sequence[Manifest],
    guest: Guest,
    timing: Timing,
    left: Watch,
    now: datetime,
) -> PodPlan:
    status = pod.get("status") or {}
    if guest.image:
        waiting = {"waiting": {"reason": guest.image, "message": "injected"}}
        container = {**_container(pod), "ready": False, "state": waiting}
        wanted = {**status, "phase": "Pending", "containerStatuses": [container]}
        wanted["conditions"] = _conditions(pod, now, running=False)
        return PodPlan(status=wanted if wanted != status else None)
    if text_at(status, "phase") != "Running":
        wait = left("start", timing.start_pod)
        if wait:
            return PodPlan(wait=wait)
    address = text_at(status, "podIP") or find_address(node, pods)
    wanted = {
        **status,
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": _host_address(node),
        "startTime": text_at(status, "startTime") or render_time(now),
        "conditions": _conditions(pod, now, running=True),
    }
    if text_at(status, "phase") != "Running":
        state = {"running": {"startedAt": render_time(now)}}
        container = {**_container(pod), "ready": True, "started": True, "state": state}
        wanted["containerStatuses"] = [container]
    return PodPlan(status=wanted if wanted != status else None)


def _conditions(pod: Manifest, now: datetime, *, running: bool) -> list[Manifest]:
    held = (pod.get("status") or {}).get("conditions") or ()
    gate = find_condition(pod, UNPAUSED)
    ready = running and holds_at(pod, UNPAUSED)
    why = "" if ready else "ReadinessGatesNotReady" if running else "ContainersNotReady"
    wanted = [
        build_condition("PodScheduled", True),
        build_condition("Initialized", True),
        build_condition("ContainersReady", running, "" if running else "ContainersNotReady"),
        build_condition("Ready", ready, why),
        *([gate] if gate is not None else []),
    ]
    return merge_conditions(held, wanted, now)


def find_address(node: Manifest, pods: Sequence[Manifest]) -> str:
    """Return the lowest address of a node's range that no pod has."""
    network = ipaddress.ip_network(
        text_at(node, "metadata", "annotations", ADDRESSES) or "10.200.0.0/24"
    )
    taken = {text_at(pod, "status", "podIP") for pod in pods if not is_finished(pod)}
    hosts = (network[index] for index in range(_FIRST_HOST, network.num_addresses - 1))
    return next((str(host) for host in hosts if str(host) not in taken), "")


def _host_address(node: Mapping[str, Any]) -> str:
    addresses = maps_at(node, "status", "addresses")
    return next((text_at(each, "address") for each in addresses), "")


def _container(pod: Mapping[str, Any]) -> Manifest:
    found = maps_at(pod, "status", "containerStatuses")
    image = next((text_at(each, "image") for each in maps_at(pod, "spec", "containers")), "")
    base = {"name": "compute", "image": image, "imageID": "", "restartCount": 0}
    return {**base, **(found[0] if found else {})}
