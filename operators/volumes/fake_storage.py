"""Actions of users, kubelets and provisioners on volumes, for tests over HTTP."""

from __future__ import annotations

from typing import Any

from libs.common.conditions import find_condition
from libs.common.kinds import EVENT, POD, PVC, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from operators.volumes.samples import (
    build_foreign_claim,
    build_statefulset_owner,
)

DATA = Key("default", "data")
"""Key of the DemoVolume of most tests, and of its claim."""


def build(name: str = "data", /, **spec: Any) -> Manifest:
    """Build a DemoVolume of 10 GiB with further fields in its spec."""
    spec = {"size": 10, "storageClassName": "standard", **spec}
    return build_object(DEMO_VOLUME, name, "default", spec=spec)


def take_name(api: FakeApi, *, owned: bool = False, controller: bool = True) -> Manifest:
    """Create the claim `data` as another client, with or without an owner."""
    claim = build_foreign_claim()
    claim["metadata"] = {"name": "data", "namespace": "default"}
    if owned:
        owner = api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "db", "namespace": "default"},
                "spec": {
                    "serviceName": "db",
                    "selector": {"matchLabels": {"app": "db"}},
                    "template": {
                        "metadata": {"labels": {"app": "db"}},
                        "spec": {"containers": [{"name": "c", "image": "i"}]},
                    },
                },
            }
        )
        uid = owner["metadata"]["uid"]
        reference = {**build_statefulset_owner(), "uid": uid, "controller": controller}
        claim["metadata"]["ownerReferences"] = [reference]
    return api.create(claim)


def bind(api: FakeApi, capacity: str = "10Gi", key: Key = DATA) -> None:
    """Bind a claim to a volume, as a provisioner does; call it again to grow the volume."""
    api.patch(PVC, key, {"spec": {"volumeName": f"pv-{key.name}"}})
    api.patch_status(PVC, key, {"phase": "Bound", "capacity": {"storage": capacity}})


def protect(api: FakeApi, key: Key = DATA) -> None:
    """Add the finalizer with which Kubernetes protects a claim in use."""
    api.patch(PVC, key, {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}})


def unprotect(api: FakeApi, key: Key = DATA) -> None:
    """Remove the finalizer that protects a claim in use."""
    api.patch(PVC, key, {"metadata": {"finalizers": None}})


def run_pod(api: FakeApi, name: str = "web-0", claim: str = "data") -> None:
    """Run a pod that mounts a claim."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    api.create(
        build_object(
            POD,
            name,
            "default",
            spec={"containers": [{"name": "c", "image": "i"}], "volumes": [volume]},
        )
    )
    api.bind(("default", name))


def end_pod(api: FakeApi, name: str = "web-0") -> None:
    """Delete a pod and end its grace period."""
    api.delete(POD, ("default", name))
    api.finish_termination(POD, ("default", name))


def condition(api: FakeApi, condition_type: str, key: Key = DATA) -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = find_condition(api.get(DEMO_VOLUME, key), condition_type)
    assert found is not None, f"condition {condition_type} does not exist"
    return found["status"], found["reason"]


def warnings(api: FakeApi) -> list[tuple[str, str]]:
    """Return reason and first two words of each Event of type Warning, the oldest first."""
    events = [event for event in api.objects(EVENT) if event["type"] == "Warning"]
    events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [(event["reason"], " ".join(event["note"].split()[:2])) for event in events]


def status(api: FakeApi, key: Key = DATA) -> Manifest:
    """Return the status of a DemoVolume."""
    shown: Manifest = api.get(DEMO_VOLUME, key)["status"]
    return shown
