"""Objects for tests over HTTP, and the actions of users, kubelets and other clients on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from libs.common.conditions import find_condition, render_time
from libs.common.kinds import EVENT, POD, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from operators.podset.controller import PODSET

WEB: Final = Key("default", "web")
TEMPLATE: Final[Manifest] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
SELECTOR: Final[Manifest] = {"matchLabels": {"app": "web"}}


def build_podset(name: str = "web", **spec: Any) -> Manifest:
    """Build a PodSet as a user would apply it."""
    return build_object(PODSET, name, "default", spec=spec)


def build_pod(name: str, owner: Manifest | None = None, **labels: str) -> Manifest:
    """Build a pod that the operator did not create."""
    metadata: Manifest = {"name": name, "namespace": "default", "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": TEMPLATE["spec"]}


def names(api: FakeApi) -> list[str]:
    """Return the names of all pods."""
    return [pod["metadata"]["name"] for pod in api.objects(POD)]


def writes(api: FakeApi, mark: int) -> list[str]:
    """Return the writes since a mark, without Events, whose order is not deterministic."""
    return [str(each) for each in api.writes(since=mark) if each.kind != EVENT]


def make_ready(api: FakeApi, name: str) -> None:
    """Set a pod to running and ready, as its kubelet does."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
    api.patch_status(POD, ("default", name), {"phase": "Running", "conditions": [ready]})


def fail_pod(api: FakeApi, name: str, moment: datetime | None = None) -> None:
    """Set a pod to failed, now or at a given time, as its kubelet does."""
    finished = render_time(moment or datetime.now(UTC))
    terminated = {"reason": "Error", "exitCode": 1, "finishedAt": finished}
    container = {"name": "main", "state": {"terminated": terminated}, "restartCount": 0}
    container |= {"ready": False, "image": "busybox", "imageID": ""}
    api.patch_status(POD, ("default", name), {"phase": "Failed", "containerStatuses": [container]})


def condition(api: FakeApi, name: str, key: Key = WEB) -> tuple[str, str]:
    """Return status and reason of a condition of a PodSet."""
    found = find_condition(api.get(PODSET, key), name)
    assert found is not None
    return found["status"], found["reason"]
