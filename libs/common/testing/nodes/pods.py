"""Pods and nodes as a scheduler and a kubelet see them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from libs.common.kinds import NODE, Manifest, build_object, key_of
from libs.common.reading import int_at, map_at, maps_at, text_at, text_map_at
from libs.common.testing.fakeapi.discovery import VERSION

HOSTNAME: Final = "kubernetes.io/hostname"
_UNPULLABLE: Final = ".invalid"
"""Registries of this top-level domain never exist (RFC 2606)."""
_CAPACITY: Final = {
    "cpu": "8",
    "memory": "16Gi",
    "pods": "250",
    "ephemeral-storage": "100Gi",
}


def build_node(name: str, number: int) -> Manifest:
    """Build a node with everything that a kubelet says of itself."""
    system = {"os": "linux", "arch": "amd64"}
    labels = {f"kubernetes.io/{key}": value for key, value in system.items()}
    return build_object(
        NODE,
        name,
        metadata={"labels": {HOSTNAME: name, **labels}},
        spec={"podCIDR": f"10.244.{number}.0/24", "podCIDRs": [f"10.244.{number}.0/24"]},
    )


def build_node_status(name: str, number: int, now: str) -> Manifest:
    """Build the status of a node that is ready."""
    conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    addresses = {"InternalIP": host_address(number), "Hostname": name}
    return {
        "capacity": _CAPACITY,
        "allocatable": _CAPACITY,
        "addresses": [{"type": key, "address": value} for key, value in addresses.items()],
        "conditions": [
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": "simulated",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for type_, status, reason in conditions
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": name,
            "containerRuntimeVersion": "simulated://1",
            "kernelVersion": "simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": VERSION["gitVersion"],
            "machineID": name,
            "operatingSystem": "linux",
            "osImage": "simulated",
            "systemUUID": name,
        },
    }


def host_address(number: int) -> str:
    """Return the address of a node."""
    return f"192.0.2.{number + 1}"


def pick_node(pod: Manifest, nodes: Sequence[Manifest], pods: Iterable[Manifest]) -> str:
    """Return the node with the fewest pods among those that a pod fits on; empty if none does."""
    wanted = text_map_at(pod, "spec", "nodeSelector")
    load = {key_of(node).name: 0 for node in nodes if _takes(node, wanted)}
    for other in pods:
        place = text_at(other, "spec", "nodeName")
        if place in load:
            load[place] += 1
    return min(load, key=lambda name: (load[name], name), default="")


def _takes(node: Manifest, wanted: Mapping[str, str]) -> bool:
    labels = text_map_at(node, "metadata", "labels")
    if map_at(node, "spec").get("unschedulable"):
        return False
    return all(labels.get(name) == value for name, value in wanted.items())


def is_finished(pod: Manifest) -> bool:
    """Return whether a pod has ended for good."""
    return text_at(pod, "status", "phase") in ("Succeeded", "Failed")


def grace_of(pod: Manifest, longest: float) -> float:
    """Return the seconds that the containers of a deleted pod take to stop."""
    grace = int_at(pod, "metadata", "deletionGracePeriodSeconds")
    return longest if grace is None else min(grace, longest)


def find_unpullable(pod: Manifest) -> str:
    """Return an image of a pod that cannot be pulled; empty if all can."""
    for container in (*_containers(pod, "initContainers"), *_containers(pod, "containers")):
        registry = text_at(container, "image").partition("/")[0].partition(":")[0]
        if registry.endswith(_UNPULLABLE):
            return text_at(container, "image")
    return ""


def build_status(pod: Manifest, now: str, *, address: str, host: str, started: bool) -> Manifest:
    """Build the status of a pod on a node; unchanged if the pod shows it already.

    Args:
        pod: The pod.
        now: Time of changes.
        address: Address of the pod.
        host: Address of its node.
        started: Whether its containers should run by now.
    """
    broken = find_unpullable(pod)
    running = started and not broken
    held = map_at(pod, "status")
    status: Manifest = {
        **held,
        "phase": "Running" if running else "Pending",
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": held.get("startTime") or now,
        "conditions": _conditions(pod, now, running=running, broken=broken),
        "containerStatuses": [
            _container(each, held, now, running=running, broken=broken)
            for each in _containers(pod, "containers")
        ],
    }
    if running:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    if initial := _containers(pod, "initContainers"):
        status["initContainerStatuses"] = [
            _init_container(each, held, now, running=running) for each in initial
        ]
    return status


def unschedulable_status(pod: Manifest, message: str, now: str) -> Manifest:
    """Build the status of a pod that fits on no node."""
    condition = _condition(pod, "PodScheduled", False, now, "Unschedulable", message)
    return {**map_at(pod, "status"), "phase": "Pending", "conditions": [condition]}


def _containers(pod: Manifest, where: str) -> list[Mapping[str, Any]]:
    return maps_at(pod, "spec", where)


def _conditions(pod: Manifest, now: str, *, running: bool, broken: str) -> list[Manifest]:
    gates = {each["conditionType"] for each in maps_at(pod, "spec", "readinessGates")}
    held = {each["type"]: dict(each) for each in maps_at(pod, "status", "conditions")}
    open_gates = all(held.get(gate, {}).get("status") == "True" for gate in gates)
    why = "" if running else "ContainersNotReady"
    text = f"image {broken} cannot be pulled" if broken else ""
    ready_why = why or ("" if open_gates else "ReadinessGatesNotReady")
    own = [
        _condition(pod, "PodReadyToStartContainers", True, now),
        _condition(pod, "Initialized", True, now),
        _condition(pod, "Ready", running and open_gates, now, ready_why, text),
        _condition(pod, "ContainersReady", running, now, why, text),
        _condition(pod, "PodScheduled", True, now),
    ]
    known = {each["type"] for each in own}
    return [*own, *(each for name, each in held.items() if name not in known)]


def _condition(
    pod: Manifest, type_: str, value: bool, now: str, reason: str = "", message: str = ""
) -> Manifest:
    status = str(value)
    held = next((e for e in maps_at(pod, "status", "conditions") if e["type"] == type_), {})
    since = held.get("lastTransitionTime") if held.get("status") == status else None
    condition: Manifest = {"type": type_, "status": status, "lastProbeTime": None}
    condition["lastTransitionTime"] = since or now
    if "observedGeneration" in held:
        condition["observedGeneration"] = held["observedGeneration"]
    return condition | {
        key: text for key, text in (("reason", reason), ("message", message)) if text
    }


def _container(
    container: Mapping[str, Any],
    held: Mapping[str, Any],
    now: str,
    *,
    running: bool,
    broken: str,
) -> Manifest:
    before = _find(held, "containerStatuses", container)
    state: Manifest = {"waiting": {"reason": "ContainerCreating"}}
    if running:
        since = text_at(before, "state", "running", "startedAt") or now
        state = {"running": {"startedAt": since}}
    elif broken and container["image"] == broken:
        text = f'Back-off pulling image "{broken}": its registry does not exist'
        state = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
    return _status(container, before, state, ready=running)


def _init_container(
    container: Mapping[str, Any], held: Mapping[str, Any], now: str, *, running: bool
) -> Manifest:
    before = _find(held, "initContainerStatuses", container)
    if container.get("restartPolicy") == "Always" or not running:
        reason: Manifest = {"waiting": {"reason": "PodInitializing"}}
        since = text_at(before, "state", "running", "startedAt") or now
        state: Manifest = {"running": {"startedAt": since}} if running else reason
        return _status(container, before, state, ready=running)
    ended = text_at(before, "state", "terminated", "finishedAt") or now
    times = {"startedAt": ended, "finishedAt": ended}
    state = {"terminated": {"exitCode": 0, "reason": "Completed", **times}}
    return _status(container, before, state, ready=True)


def _find(held: Mapping[str, Any], where: str, container: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (each for each in maps_at(held, where) if each["name"] == container["name"])
    return next(found, {})


def _status(
    container: Mapping[str, Any], before: Mapping[str, Any], state: Manifest, *, ready: bool
) -> Manifest:
    return {
        **before,
        "name": container["name"],
        "image": container["image"],
        "imageID": f"simulated://{container['image']}" if ready else "",
        "restartCount": before.get("restartCount", 0),
        "ready": ready,
        "started": ready,
        "state": state,
    }
