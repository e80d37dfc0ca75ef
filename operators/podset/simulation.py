"""A model of the API server and of writers with outdated views, for tests of the planner.

The model implements only the guarantees on which the planner relies: names are locks, each write
has a revision, a deletion names a UID, and a pod on a node terminates before it disappears. A
writer models a process of the operator: its view lags behind, but contains its own writes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from libs.common.conditions import render_time
from libs.common.kinds import Manifest, build_object, is_deleting, uid_of, version_of
from libs.common.ownership import build_owner_reference, controller_of, controller_uid
from libs.common.plan import Create, Delete, Step
from operators.podset.api.v1 import PodSet
from operators.podset.controller import PODSET
from operators.podset.reconcile import Desired, Observed, Plan, build_desired, plan_podset
from operators.podset.shrink import shrink_pod
from operators.podset.status import build_status
from operators.podset.view import PodView, parse_pod

SET_UID: Final = "set-uid"
START: Final = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)

TEMPLATE: Final[dict[str, Any]] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
"""A template that the selector `app=web` matches."""


def build_podset(name: str = "web", **spec: Any) -> PodSet:
    """Build a PodSet in the namespace `default`, as the API server would return it."""
    manifest = build_object(
        PODSET, name, "default", metadata={"uid": SET_UID, "generation": 1}, spec=spec
    )
    return PodSet.parse(manifest)


def build_owner(name: str = "web", uid: str = SET_UID) -> Manifest:
    """Build the controller reference to a PodSet."""
    return build_owner_reference(PODSET, {"metadata": {"name": name, "uid": uid}})


def desire(name: str = "web", **spec: Any) -> Desired:
    """Compute the desired state from a spec."""
    return build_desired(build_podset(name, **spec), build_owner(name))


class Taken(Exception):
    """A pod with this name already exists."""


class Stale(Exception):
    """The pod has changed since the patch was planned."""


@dataclass(slots=True)
class Cluster:
    """The actual state: pods by name, and the history of their changes."""

    now: datetime = START
    pods: dict[str, Manifest] = field(default_factory=dict)
    history: list[tuple[str, Manifest]] = field(default_factory=list)
    revision: int = 0

    def create(self, manifest: Manifest) -> Manifest:
        """Create a pod, or raise `Taken` if its name is in use."""
        name = manifest["metadata"]["name"]
        if name in self.pods:
            raise Taken(name)
        pod = copy.deepcopy(manifest)
        pod["metadata"] |= {
            "uid": f"uid-{self.revision + 1}",
            "creationTimestamp": render_time(self.now),
        }
        pod.setdefault("status", {"phase": "Pending"})
        return self._record("ADDED", pod)

    def change(self, name: str, change: Callable[[Manifest], object]) -> Manifest:
        """Change a pod in place, as a kubelet or a user does."""
        pod = copy.deepcopy(self.pods[name])
        change(pod)
        return self._record("MODIFIED", pod)

    def delete(self, name: str, uid: str) -> Manifest | None:
        """Delete one incarnation; a pod that runs on a node terminates first."""
        pod = self.pods.get(name)
        if pod is None or uid_of(pod) != uid:
            return None
        ended = pod["status"]["phase"] in ("Succeeded", "Failed")
        if not pod["spec"].get("nodeName") or ended:
            self.vanish(name)
            return None
        if is_deleting(pod):
            return pod
        moment = render_time(self.now)
        return self.change(name, lambda pod: pod["metadata"].update(deletionTimestamp=moment))

    def vanish(self, name: str) -> None:
        """Remove a pod permanently."""
        pod = self.pods.pop(name)
        self.revision += 1
        gone = copy.deepcopy(pod)
        gone["metadata"]["resourceVersion"] = str(self.revision)
        self.history.append(("DELETED", gone))

    def bind(self, name: str) -> None:
        """Bind a pod to a node."""
        self.change(name, lambda pod: pod.update(spec={**pod["spec"], "nodeName": "node"}))

    def run(self, name: str, *, ready: bool = True) -> None:
        """Set a pod to running, ready or not."""
        self.bind(name)
        condition = {
            "type": "Ready",
            "status": str(ready),
            "lastTransitionTime": render_time(self.now),
        }
        status = {"phase": "Running", "conditions": [condition]}
        self.change(name, lambda pod: pod.update(status=status))

    def end(self, name: str, phase: str = "Failed") -> None:
        """End a pod now."""
        terminated = {"reason": "Error", "finishedAt": render_time(self.now)}
        status = {"phase": phase, "containerStatuses": [{"state": {"terminated": terminated}}]}
        self.change(name, lambda pod: pod.update(status=status))

    def later(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += timedelta(seconds=seconds)

    def views(self, set_name: str = "web") -> list[PodView]:
        """Return the pods that the PodSet controls."""
        return [
            parse_pod(pod, set_name) for pod in self.pods.values() if controller_uid(pod) == SET_UID
        ]

    def active(self) -> list[str]:
        """Return the names of the active pods of the PodSet, without pods of another `app`."""
        return sorted(
            pod.name
            for pod in self.views()
            if pod.is_active and _labels(self.pods[pod.name]).get("app") == "web"
        )

    def _record(self, event: str, pod: Manifest) -> Manifest:
        self.revision += 1
        pod["metadata"]["resourceVersion"] = str(self.revision)
        self.pods[pod["metadata"]["name"]] = pod
        self.history.append((event, copy.deepcopy(pod)))
        return pod


class Process:
    """One process of the operator: an outdated view, and the writes planned from it."""

    def __init__(self, cluster: Cluster, desired: Desired) -> None:
        """Start with a complete listing."""
        self.cluster = cluster
        self.desired = desired
        self.view: dict[str, Manifest] = {}
        self.seen = len(cluster.history)
        for pod in cluster.pods.values():
            self._put(pod)
        self.deleted: set[str] = set()

    def deliver(self, count: int | None = None) -> None:
        """Deliver the next events of the watch to the view; None delivers all of them."""
        end = len(self.cluster.history) if count is None else self.seen + count
        for event, pod in self.cluster.history[self.seen : end]:
            self._put(pod) if event != "DELETED" else self._remove(pod)
        self.seen = min(end, len(self.cluster.history))

    def observe(self) -> Observed:
        """Read the view."""
        selector = self.desired.podset.spec.selector
        mine = [pod for pod in self.view.values() if controller_uid(pod) == SET_UID]
        fits = [pod for pod in mine if selector is None or selector.matches(_labels(pod))]
        orphans = [
            pod
            for pod in self.view.values()
            if controller_of(pod) is None
            and selector is not None
            and selector.matches(_labels(pod))
            and parse_pod(pod, "web").is_active
        ]
        return Observed(
            pods=tuple(parse_pod(pod, "web") for pod in fits),
            released=tuple(pod for pod in mine if pod not in fits and not is_deleting(pod)),
            orphans=tuple(orphans),
            lookup=self.view.get,
        )

    def plan(self) -> Plan:
        """Plan from the view."""
        return plan_podset(self.desired, self.observe(), self.cluster.now)

    def status(self) -> Manifest:
        """Build the status from the view."""
        return build_status(self.desired, self.observe(), self.cluster.now)

    def reconcile(self, *, crash_after: int | None = None, lose: Collection[int] = ()) -> int:
        """Plan once, execute the steps and return the number of planned steps.

        Args:
            crash_after: Number of steps after which the process crashes. Its view must not be used
                afterwards.
            lose: Indexes of steps whose response is lost; their outcome is read at the end.
        """
        plan = self.plan()
        lost: list[str] = []
        # A failed step skips all steps after it.
        for number, step in enumerate(plan.steps):
            if number == crash_after:
                return len(plan.steps)
            try:
                answer = self._take(step)
            except Taken:
                # As in the writer: after a name conflict, read the pod that has the name.
                live = self.cluster.pods[step.key.name]
                self._put(live)
                if controller_uid(live) != SET_UID:
                    break
                continue
            except Stale:
                break
            if number in lose:
                lost.append(step.key.name)
            elif answer is not None:
                self._put(answer)
            elif isinstance(step, Delete):
                self._mark_deleted(step.key.name, step.uid)
        for name in lost:
            self._look_up(name)
        return len(plan.steps)

    def _take(self, step: Step) -> Manifest | None:
        if isinstance(step, Create):
            return self.cluster.create(step.manifest)
        if isinstance(step, Delete):
            return self.cluster.delete(step.key.name, step.uid)
        pod = self.cluster.pods.get(step.key.name)
        assert not hasattr(step, "manifest"), "nothing is applied"
        if pod is None or uid_of(pod) != step.uid:
            raise Stale
        version = getattr(step, "resource_version", "")
        if version and version != pod["metadata"]["resourceVersion"]:
            raise Stale
        (operation,) = step.operations
        owners = list(operation.get("value", []))
        return self.cluster.change(
            step.key.name, lambda pod: pod["metadata"].update(ownerReferences=owners)
        )

    def _look_up(self, name: str) -> None:
        live = self.cluster.pods.get(name)
        if live is not None:
            self._put(live)
        elif name in self.view:
            self._mark_deleted(name, uid_of(self.view[name]))

    def _put(self, pod: Manifest) -> None:
        name, held = pod["metadata"]["name"], self.view.get(pod["metadata"]["name"])
        if uid_of(pod) in getattr(self, "deleted", ()):
            return
        if held is None or version_of(held) < version_of(pod):
            self.view[name] = shrink_pod(copy.deepcopy(pod))

    def _remove(self, pod: Manifest) -> None:
        held = self.view.get(pod["metadata"]["name"])
        if held is not None and uid_of(held) == uid_of(pod):
            self._mark_deleted(pod["metadata"]["name"], uid_of(pod))

    def _mark_deleted(self, name: str, uid: str) -> None:
        self.deleted.add(uid)
        if name in self.view and uid_of(self.view[name]) == uid:
            del self.view[name]


def start(replicas: int, *, ready: bool = True, **spec: Any) -> tuple[Cluster, Process]:
    """Start a PodSet whose pods all run on a node."""
    cluster = Cluster()
    process = Process(cluster, desire(replicas=replicas, template=TEMPLATE, **spec))
    process.reconcile()
    for name in cluster.active():
        cluster.run(name, ready=ready)
    process.deliver()
    return cluster, process


def _labels(pod: Manifest) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}
