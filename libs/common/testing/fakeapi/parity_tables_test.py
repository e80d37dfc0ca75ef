"""Scenarios of what `kubectl get` asks for: tables, and the documents of OpenAPI."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.extract import trim
from libs.common.testing.fakeapi.parity import Compare, Recorder, Scenario, name_of
from libs.common.testing.fakeapi.parity_builtin_test import (
    APPS,
    LEASES,
    build_claim,
    build_map,
    build_pod,
)
from libs.common.testing.fakeapi.parity_custom_test import API, build_gadget, serve
from libs.common.testing.fakeapi.rest import MERGE_PATCH

TABLE: Final = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
"""What kubectl accepts."""
_AGE: Final = re.compile(r"\d+(ms|s|m|h|d)(\d+s)?")
_METHODS: Final = ("get", "post", "put", "patch", "delete")
_GADGET: Final = "com.example.parity.v1.Gadget"
_TRIES: Final = 300
_PAUSE: Final = 0.2
_NOW: Final = "2026-01-01T00:00:00Z"


async def show(r: Recorder, label: str, path: str, **query: Any) -> None:
    """Record a table."""
    reply = await r.rest.get(path, accept=TABLE, **query)
    r.record(label, {"status": reply.status, "body": _blur(reply.body)})


def _blur(table: Manifest) -> Manifest:
    """Return a table without ages, and without the texts of its columns."""
    # The version of the whole store, which the real server itself changes now and then.
    out = {**table, "metadata": {**table.get("metadata", {}), "resourceVersion": ""}}
    out["columnDefinitions"] = [
        {name: value for name, value in column.items() if name != "description"}
        for column in table.get("columnDefinitions") or ()
    ]
    out["rows"] = [_blur_row(row) for row in table.get("rows") or ()]
    return out


def _blur_row(row: Manifest) -> Manifest:
    """Return a row without its ages and the fields that other scenarios compare."""
    obj = row.get("object")
    if obj is not None:
        metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
        obj = {**obj, "metadata": metadata}
    return {**row, "cells": _blur_cells(row["cells"]), "object": obj}


def _blur_cells(cells: Sequence[Any]) -> list[Any]:
    return ["<age>" if isinstance(c, str) and _AGE.fullmatch(c) else c for c in cells]


def _state(name: str, *, ready: bool = False, restarts: int = 0, **state: Any) -> Manifest:
    """Build the status of a container."""
    status = {"name": name, "ready": ready, "restartCount": restarts, "image": "i", "imageID": ""}
    return {**status, "state": state}


_RUNNING: Final[Manifest] = {"running": {"startedAt": _NOW}}
_PODS: Final[dict[str, Manifest]] = {
    "pending": {},
    "creating": {"containerStatuses": [_state("main", waiting={"reason": "ContainerCreating"})]},
    "running": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "containerStatuses": [_state("main", ready=True, **_RUNNING)],
        "conditions": [{"type": "Ready", "status": "True"}],
    },
    "crashed": {
        "phase": "Running",
        "containerStatuses": [
            _state("main", restarts=3, waiting={"reason": "CrashLoopBackOff"}),
        ],
    },
    "ended": {
        "phase": "Succeeded",
        "containerStatuses": [_state("main", terminated={"exitCode": 0, "reason": "Completed"})],
    },
    "failed": {
        "phase": "Failed",
        "containerStatuses": [_state("main", terminated={"exitCode": 2})],
    },
    "killed": {
        "phase": "Failed",
        "containerStatuses": [_state("main", terminated={"exitCode": 2, "signal": 9})],
    },
    "evicted": {"phase": "Failed", "reason": "Evicted"},
    "gated": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    },
    "init": {"initContainerStatuses": [_state("first", **_RUNNING)]},
    "init-failed": {
        "initContainerStatuses": [
            _state("first", restarts=1, terminated={"exitCode": 1, "reason": "Error"})
        ]
    },
    "init-waiting": {
        "initContainerStatuses": [_state("first", waiting={"reason": "ImagePullBackOff"})]
    },
}


async def _pods(r: Recorder) -> None:
    base = r.path("pods")
    for name, status in _PODS.items():
        pod = build_pod(name)
        if name.startswith("init"):
            pod["spec"]["initContainers"] = [{"name": "first", "image": "i"}]
        if name == "running":
            pod["spec"]["readinessGates"] = [{"conditionType": "example.com/gate"}]
        await r.rest.create(base, pod)
        if status:
            change = {"status": status}
            await r.rest.patch(f"{base}/{name}/status", change)
        await show(r, name, f"{base}/{name}")
    await r.rest.create(base, build_pod("bound", nodeName="n1"))
    await r.rest.delete(f"{base}/bound")
    await show(r, "deleted", f"{base}/bound", includeObject="None")
    await r.rest.delete(f"{base}/bound", gracePeriodSeconds="0")


async def _forms(r: Recorder) -> None:
    base = r.path("configmaps")
    for name in ("a", "b", "c"):
        await r.rest.create(base, build_map(name, x="1"))
    await show(r, "list", base)
    await show(r, "none", base, includeObject="None")
    await show(r, "object", base, includeObject="Object")
    await show(r, "page", base, limit="2")
    await show(r, "selected", base, fieldSelector="metadata.name=b")
    await show(r, "absent", f"{base}/absent")
    await show(r, "empty", r.path("secrets"))
    version = (await r.rest.get(f"{base}/c")).metadata["resourceVersion"]
    async with r.rest.watch(base, accept=TABLE, resourceVersion=version) as events:
        await r.rest.patch(f"{base}/c", {"data": {"y": "2"}})
        await r.rest.delete(f"{base}/c")
        for _ in range(2):
            type_, table = await events.next()
            r.record("watch", {"event": type_, "object": _blur(table)})


def list_objects(namespace: str) -> list[tuple[str, Manifest]]:
    """List objects of usual kinds with the collections that they go to."""
    template: Manifest = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j"}]},
    }
    selector = {
        "matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "y", "operator": "In", "values": ["1", "2"]}],
    }
    template["metadata"]["labels"]["y"] = "1"
    workload: Manifest = {"replicas": 2, "selector": selector, "template": template}
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subjects = [
        {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"},
        {"kind": "ServiceAccount", "name": "bot", "namespace": "default"},
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    goal = {"type": "Utilization", "averageUtilization": 70}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": goal}}]
    limits = {"minReplicas": 2, "maxReplicas": 3}
    scaler = {"scaleTargetRef": target, "metrics": metrics, **limits}
    rbac = "apis/rbac.authorization.k8s.io/v1"
    event = {
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
        "reason": "Made",
        "message": "made it",
        "type": "Normal",
        "firstTimestamp": _NOW,
        "lastTimestamp": _NOW,
        "count": 2,
        "source": {"component": "kubelet", "host": "n"},
    }
    return [
        ("api/v1/secrets", {"data": {"a": "YQ=="}}),
        ("api/v1/persistentvolumeclaims", build_claim()),
        (
            "api/v1/services",
            {"spec": {"clusterIP": "None", "ports": ports, "selector": {"a": "b"}}},
        ),
        ("api/v1/serviceaccounts", {}),
        ("api/v1/events", event),
        (f"{APPS}/deployments", {"spec": workload}),
        (f"{APPS}/replicasets", {"spec": workload}),
        (f"{APPS}/statefulsets", {"spec": {**workload, "serviceName": "s"}}),
        (f"{LEASES}/leases", {"spec": {"holderIdentity": "me"}}),
        ("apis/autoscaling/v2/horizontalpodautoscalers", {"spec": scaler}),
        ("apis/policy/v1/poddisruptionbudgets", {"spec": {"maxUnavailable": "50%"}}),
        ("apis/networking.k8s.io/v1/networkpolicies", {"spec": {"podSelector": {}}}),
        (f"{rbac}/roles", {"rules": []}),
        (f"{rbac}/rolebindings", {"roleRef": role, "subjects": subjects}),
    ]


async def _kinds(r: Recorder) -> None:
    for place, body in list_objects(r.namespace):
        api, _, plural = place.rpartition("/")
        base = r.path(plural, api=api)
        made = await r.rest.create(base, {**body, "metadata": {"name": "x"}})
        assert made.status == 201, made
        await show(r, plural, f"{base}/x")
    await show(r, "namespace", f"/api/v1/namespaces/{r.namespace}")


async def _cluster_kinds(r: Recorder) -> None:
    node_status = {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}
    source = {"hostPath": {"path": "/x"}, "accessModes": ["ReadWriteOnce"]}
    volume = {**source, "capacity": {"storage": "1Gi"}, "storageClassName": "s"}
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage = "apis/storage.k8s.io/v1"
    objects: list[tuple[str, Manifest]] = [
        ("api/v1/nodes", {"metadata": {"labels": labels}, "spec": {"unschedulable": True}}),
        ("api/v1/persistentvolumes", {"spec": volume}),
        (f"{storage}/storageclasses", {"metadata": {"annotations": default}, "provisioner": "p"}),
        ("apis/rbac.authorization.k8s.io/v1/clusterroles", {"rules": []}),
    ]
    for place, body in objects:
        name = r.namespace
        body = {**body, "metadata": {**body.get("metadata", {}), "name": name}}
        made = await r.rest.create(f"/{place}", body)
        assert made.status == 201, made
        if place.endswith("nodes"):
            change = {"status": node_status}
            await r.rest.patch(f"/{place}/{name}/status", change, MERGE_PATCH)
        await show(r, place, f"/{place}/{name}")
        await r.rest.delete(f"/{place}/{name}")


_PRINTED: Final[list[Manifest]] = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "description": "How."},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
    },
    {"name": "Tags", "type": "string", "jsonPath": ".spec.tags", "priority": 1},
    {"name": "Each", "type": "string", "jsonPath": ".spec.tags[*]", "priority": 1},
    {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]"},
    {"name": "Options", "type": "string", "jsonPath": ".spec.options"},
    {"name": "Note", "type": "string", "jsonPath": r".metadata.annotations.example\.com/note"},
    {"name": "Text", "type": "integer", "jsonPath": ".spec.mode"},
    {"name": "Number", "type": "number", "jsonPath": ".spec.size"},
    {"name": "When", "type": "date", "jsonPath": ".spec.mode"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Absent", "type": "string", "jsonPath": ".status.selector"},
]


_SHOWN: Final = "shown.example.com"
"""A group of its own, because another test compares all kinds of the group of the others."""


async def _custom(r: Recorder) -> None:
    plain = await serve(r)
    spec: Manifest = {"size": 3, "tags": ["a", "b"], "options": {"k": "v"}}
    await r.rest.create(plain, build_gadget(spec=spec))
    await show(r, "age only", plain)
    printed = await serve(r, plural="shown", kind="Shown", group=_SHOWN, printed=_PRINTED)
    gadget = {**build_gadget(kind="Shown", spec=spec), "apiVersion": f"{_SHOWN}/v1"}
    gadget["metadata"]["annotations"] = {"example.com/note": "hi"}
    await r.rest.create(printed, gadget)
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    await r.rest.patch(f"{printed}/g/status", {"status": {"conditions": conditions}})
    await r.rest.create(printed, {**gadget, "metadata": {"name": "h"}, "spec": {"size": 0}})
    reply = await r.rest.get(printed, accept=TABLE)
    texts = [each["description"] for each in reply.body["columnDefinitions"]]
    r.record("descriptions", texts)
    await show(r, "printed", printed)


async def _default_class(r: Recorder) -> None:
    claims, classes = r.path("persistentvolumeclaims"), "/apis/storage.k8s.io/v1/storageclasses"
    notes = {"storageclass.kubernetes.io/is-default-class": "true"}
    metadata: Manifest = {"name": r.namespace, "annotations": notes}
    await r.rest.create(classes, {"metadata": metadata, "provisioner": "p"})
    await r.send("claim", "POST", claims, build_claim())
    own = build_claim("own")
    own["spec"]["storageClassName"] = ""
    await r.send("own class", "POST", claims, own)
    await r.rest.delete(f"{classes}/{r.namespace}")


async def _full_fields(r: Recorder) -> None:
    core, new = r.path("events"), r.path("events", api="apis/events.k8s.io/v1")
    target = {"kind": "Pod", "name": "p", "namespace": r.namespace}
    event: Manifest = {"metadata": {"name": "old"}, "involvedObject": target}
    await r.rest.create(core, event)
    event = {
        "metadata": {"name": "new"},
        "regarding": target,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "A",
        "reason": "B",
        "type": "Normal",
        "reportingController": "c.io/c",
        "reportingInstance": "i",
    }
    await r.rest.create(new, event)
    node = f"/api/v1/nodes/{r.namespace}"
    info = {"nodeInfo": {"osImage": "x"}, "conditions": [{"type": "Ready", "status": "True"}]}
    await r.rest.create("/api/v1/nodes", {"metadata": {"name": r.namespace}, "status": info})
    for label, path in (
        ("core old", f"{core}/old"),
        ("core new", f"{core}/new"),
        ("new old", f"{new}/old"),
        ("new new", f"{new}/new"),
        ("made node", node),
    ):
        body = (await r.rest.get(path)).body
        nulls = sorted(name for name, value in body.items() if value is None)
        r.record(label, {"nulls": nulls, "body": {**body, "spec": {}}})
    await r.rest.patch(f"{node}/status", {"status": {"nodeInfo": {"osImage": "y"}}})
    r.record("node", (await r.rest.get(node)).body["status"])
    await r.rest.delete(node)


async def _reviews(r: Recorder) -> None:
    authentication = "/apis/authentication.k8s.io/v1"
    reply = await r.rest.create(f"{authentication}/selfsubjectreviews", {})
    user = reply.body["status"]["userInfo"]
    r.record("who", [reply.status, reply.body["kind"], sorted(set(user) & {"username", "groups"})])
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    body = {"spec": {"namespace": r.namespace}}
    reply = await r.rest.create(reviews, body)
    status = reply.body["status"]
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    r.record("rules", [reply.status, sorted(status), everything in status["resourceRules"]])


async def _openapi(r: Recorder) -> None:
    await serve(r)
    path = f"/openapi/v3/{API}"
    await r.until_found(path)
    document: Manifest = {}
    for _ in range(_TRIES):
        document = (await r.rest.get(path)).body
        if _GADGET in document.get("components", {}).get("schemas", {}):
            break
        await asyncio.sleep(_PAUSE)
    r.record("schema", trim(document["components"]["schemas"][_GADGET]))
    for place, operations in document["paths"].items():
        if "/gadgets" in place:
            methods = {name: each for name, each in operations.items() if name in _METHODS}
            r.record(place, {name: _describe(each) for name, each in methods.items()})
    root = (await r.rest.get("/openapi/v3")).body["paths"]
    r.record("root", [name for name in sorted(root) if name in (API, APPS, "api/v1")])


def _describe(operation: Manifest) -> list[Any]:
    decisive = {"dryRun", "fieldManager", "fieldValidation", "force"}
    names = sorted(decisive & {each["name"] for each in operation.get("parameters", ())})
    kind = operation.get("x-kubernetes-group-version-kind")
    return [operation.get("x-kubernetes-action"), kind, names]


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "scenario",
    [
        _pods,
        _forms,
        _kinds,
        _cluster_kinds,
        _custom,
        _reviews,
        _full_fields,
        _default_class,
        _openapi,
    ],
    ids=name_of,
)
async def test_the_fake_answers_as_the_real_server_does(
    scenario: Scenario, compare: Compare
) -> None:
    await compare(scenario)
