"""Scenarios that the fake and a real API server must answer alike."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.parity import Compare, Recorder, Scenario, name_of
from libs.common.testing.fakeapi.rest import (
    APPLY,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
)

APPS = "apis/apps/v1"
LEASES = "apis/coordination.k8s.io/v1"


def build_map(name: str = "m", **data: str) -> Manifest:
    """Build a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def build_pod(name: str = "p", **spec: Any) -> Manifest:
    """Build a Pod."""
    containers = [{"name": "main", "image": "nginx:1", "ports": [{"containerPort": 80}]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, **spec},
    }


def build_claim(name: str = "c") -> Manifest:
    """Build a PersistentVolumeClaim."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


async def _writes(r: Recorder) -> None:
    path = r.path("configmaps", "m")
    made = await r.send("create", "POST", r.path("configmaps"), build_map(a="1"))
    await r.send("create again", "POST", r.path("configmaps"), build_map(a="1"))
    await r.send("get", "GET", path)
    await r.send("get absent", "GET", r.path("configmaps", "absent"))
    await r.send("replace same", "PUT", path, made.body)
    await r.send("replace", "PUT", path, {**made.body, "data": {"a": "2"}})
    await r.send("replace stale", "PUT", path, {**made.body, "data": {"a": "3"}})
    await r.send("replace blind", "PUT", path, build_map(a="4"))
    other_uid = {**build_map(), "metadata": {"name": "m", "uid": "x"}}
    await r.send("replace other uid", "PUT", path, other_uid)
    await r.send("replace absent", "PUT", r.path("configmaps", "absent"), build_map("absent"))
    await r.send("replace other name", "PUT", path, build_map("other"))
    await r.send("create with version", "POST", r.path("configmaps"), made.body)
    await r.send("create bad name", "POST", r.path("configmaps"), build_map("Bad_Name"))
    await r.send("create nameless", "POST", r.path("configmaps"), {"data": {}})
    wrong = {"metadata": {"name": "x"}, "kind": "Secret", "apiVersion": "v1"}
    await r.send("create wrong kind", "POST", r.path("configmaps"), wrong)
    await r.send("create dry", "POST", r.path("configmaps"), build_map("dry"), dryRun="All")
    await r.send("get dry", "GET", r.path("configmaps", "dry"))
    await r.send("no such kind", "GET", r.path("things"))
    await r.send("no namespace", "POST", "/api/v1/namespaces/nowhere/configmaps", build_map())


async def _patches(r: Recorder) -> None:
    path = r.path("configmaps", "m")
    await r.send("create", "POST", r.path("configmaps"), build_map(a="1", b="2"))

    async def patch(label: str, body: Any, kind: str, **query: Any) -> None:
        await r.send(label, "PATCH", path, body, content_type=kind, **query)

    await patch("merge", {"data": {"a": None, "c": "3"}}, MERGE_PATCH)
    await patch("merge same", {"data": {"c": "3"}}, MERGE_PATCH)
    await patch("merge stale", {"metadata": {"resourceVersion": "1"}}, MERGE_PATCH)
    await patch("merge uid", {"metadata": {"uid": "other"}}, MERGE_PATCH)
    await patch("merge wrong type", {"data": {"c": 3}}, MERGE_PATCH, blurred=True)
    good = {"op": "test", "path": "/data/b", "value": "2"}
    bad = {"op": "test", "path": "/data/b", "value": "9"}
    change = {"op": "replace", "path": "/data/b", "value": "7"}
    await patch("json", [good, change], JSON_PATCH)
    await patch("json test fails", [bad, change], JSON_PATCH)
    await patch("json test absent", [{**bad, "path": "/data/zz"}, change], JSON_PATCH)
    await patch("json remove absent", [{"op": "remove", "path": "/data/zz"}], JSON_PATCH)
    await patch("json no list", {"op": "remove"}, JSON_PATCH)
    await patch("strategic", {"metadata": {"labels": {"x": "y"}}}, STRATEGIC_PATCH)
    await patch("unknown type", {}, "application/json")
    await r.send("absent", "PATCH", r.path("configmaps", "no"), {}, content_type=MERGE_PATCH)


async def _pods(r: Recorder) -> None:
    path = r.path("pods", "p")
    await r.send("create", "POST", r.path("pods"), build_pod())
    await r.send("empty", "POST", r.path("pods"), {"metadata": {"name": "x"}, "spec": {}})
    image = {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}
    await r.send("image", "PATCH", path, image, content_type=STRATEGIC_PATCH)
    frozen = {"spec": {"hostname": "x"}}
    await r.send("frozen", "PATCH", path, frozen, content_type=MERGE_PATCH, blurred=True)
    status = {"status": {"phase": "Running"}, "metadata": {"labels": {"via": "status"}}}
    await r.send("status", "PATCH", f"{path}/status", status, content_type=MERGE_PATCH)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await r.send("condition", "PATCH", f"{path}/status", ready, content_type=STRATEGIC_PATCH)
    both = {"spec": {"activeDeadlineSeconds": 100}, "status": {"phase": "Failed"}}
    await r.send("main path", "PATCH", path, both, content_type=MERGE_PATCH)
    version = (await r.rest.get(path)).metadata["resourceVersion"]
    async with r.rest.watch(r.path("pods"), resourceVersion=version) as frames:
        await r.send("delete", "DELETE", path)
        await r.frames("deleted", frames, 2)
    bound = build_pod("bound", nodeName="n1")
    await r.send("create bound", "POST", r.path("pods"), bound)
    await r.send("delete bound", "DELETE", r.path("pods", "bound"))
    await r.send("delete bound again", "DELETE", r.path("pods", "bound"))
    version = (await r.rest.get(r.path("pods", "bound"))).metadata["resourceVersion"]
    async with r.rest.watch(r.path("pods"), resourceVersion=version) as frames:
        await r.send("delete now", "DELETE", r.path("pods", "bound"), gracePeriodSeconds="0")
        await r.frames("deleted now", frames, 1)
    await r.send("gone", "GET", r.path("pods", "bound"))


async def _deletion(r: Recorder) -> None:
    held = {**build_map("held"), "metadata": {"name": "held", "finalizers": ["a.b/c"]}}
    path = r.path("configmaps", "held")
    made = await r.send("create", "POST", r.path("configmaps"), held)
    wrong_uid = {"preconditions": {"uid": "other"}}
    await r.send("wrong uid", "DELETE", path, wrong_uid)
    stale = {"preconditions": {"resourceVersion": "1"}}
    await r.send("wrong version", "DELETE", path, stale, blurred=True)
    uid = {"preconditions": {"uid": made.metadata["uid"]}}
    async with r.rest.watch(
        r.path("configmaps"), resourceVersion=made.metadata["resourceVersion"]
    ) as frames:
        await r.send("delete", "DELETE", path, uid)
        again = await r.send("delete again", "DELETE", path)
        more = {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}
        await r.send("add finalizer", "PATCH", path, more, content_type=MERGE_PATCH)
        await r.send("edit", "PATCH", path, {"data": {"x": "y"}}, content_type=MERGE_PATCH)
        free = [{"op": "remove", "path": "/metadata/finalizers"}]
        await r.send("free", "PATCH", path, free, content_type=JSON_PATCH)
        await r.frames("watch", frames, 3)
    assert again.status == 200
    await r.send("gone", "GET", path)
    await r.send("delete absent", "DELETE", path)
    await r.send("create plain", "POST", r.path("configmaps"), build_map("plain"))
    await r.send("delete plain", "DELETE", r.path("configmaps", "plain"))
    for policy in ("Foreground", "Orphan"):
        name = policy.lower()
        await r.send(policy, "POST", r.path("configmaps"), build_map(name))
        options = {"propagationPolicy": policy}
        await r.send(f"delete {policy}", "DELETE", r.path("configmaps", name), options)
    bad = {**build_map("b"), "metadata": {"name": "b", "finalizers": ["nope"]}}
    await r.send("bad finalizer", "POST", r.path("configmaps"), bad)
    await r.send("bad policy", "DELETE", path, {"propagationPolicy": "Nonsense"})
    await r.send("claim", "POST", r.path("persistentvolumeclaims"), build_claim())
    await r.send("delete claim", "DELETE", r.path("persistentvolumeclaims", "c"))


async def _lists(r: Recorder) -> None:
    base = r.path("configmaps")
    for name, labels in (("a", {"t": "1"}), ("b", {"t": "2", "u": ""}), ("c", {})):
        body = build_map(name)
        body["metadata"]["labels"] = labels
        await r.send("create", "POST", base, body)
    for selector in ("t=1", "t!=1", "t in (1,2)", "t notin (1)", "u", "!t", "t=1,u"):
        await r.send(selector, "GET", base, labelSelector=selector)
    await r.send("bad labels", "GET", base, labelSelector="t in 1")
    await r.send("name", "GET", base, fieldSelector="metadata.name=b")
    await r.send("not name", "GET", base, fieldSelector="metadata.name!=b")
    await r.send("bad field", "GET", base, fieldSelector="data.x=1")
    first = await r.send("page", "GET", base, limit="2")
    more: Any = {"continue": first.metadata["continue"]}
    await r.send("create later", "POST", base, build_map("bb"))
    await r.send("page two", "GET", base, limit="2", **more)
    await r.send("page selected", "GET", base, limit="1", labelSelector="t")
    lost: Any = {"continue": "nonsense"}
    await r.send("bad token", "GET", base, blurred=True, **lost)
    version = first.metadata["resourceVersion"]
    for match in ("Exact", "NotOlderThan"):
        query: Any = {"resourceVersion": version, "resourceVersionMatch": match}
        await r.send(match, "GET", base, **query)
    await r.send("match alone", "GET", base, resourceVersionMatch="Exact")
    bad: Any = {"resourceVersion": "0", "resourceVersionMatch": "Exact"}
    await r.send("exact zero", "GET", base, **bad)
    meta = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    await r.send("metadata list", "GET", base, accept=meta)
    one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    await r.send("metadata", "GET", f"{base}/a", accept=one)
    await r.send("bad version", "GET", base, resourceVersion="abc")
    await r.send("delete some", "DELETE", base, labelSelector="t=1")
    await r.send("left", "GET", base)


async def _watches(r: Recorder) -> None:
    base = r.path("configmaps")
    made = await r.send(
        "create", "POST", base, {**build_map("a"), "metadata": {"name": "a", "labels": {"t": "1"}}}
    )
    version = made.metadata["resourceVersion"]
    async with r.rest.watch(base, resourceVersion=version, labelSelector="t=1") as frames:
        for value in ("2", "3", "1"):
            body = {"metadata": {"labels": {"t": value}}}
            await r.send(f"label {value}", "PATCH", f"{base}/a", body, content_type=MERGE_PATCH)
        await r.send("delete", "DELETE", f"{base}/a")
        await r.frames("selected", frames, 3)
    await r.send("create b", "POST", base, build_map("b"))
    async with r.rest.watch(base) as frames:
        await r.frames("from nothing", frames, 1)
    query: Any = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with r.rest.watch(base, **query) as frames:
        await r.frames("initial", frames, 1)
        type_, obj = await frames.next()
        r.record("initial end", [type_, obj["metadata"].get("annotations"), sorted(obj)])
    await r.send("no match", "GET", base, watch="true", sendInitialEvents="true")
    meta = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    response = await r.rest.send("GET", base, watch="true", timeoutSeconds="1", accept=meta)
    r.record("metadata watch", response.body)


async def _leases_and_events(r: Recorder) -> None:
    leases = r.path("leases", api=LEASES)
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    await r.send("put lease", "PUT", f"{leases}/l", lease)
    await r.send("blind put", "PUT", f"{leases}/l", lease)
    renew = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 1}}
    await r.send("renew", "PATCH", f"{leases}/l", renew, content_type=MERGE_PATCH)
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Create",
        "reason": "Created",
        "type": "Normal",
        "note": "made it",
        "reportingController": "test.io/controller",
        "reportingInstance": "i",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": r.namespace},
    }
    events = r.path("events", api="apis/events.k8s.io/v1")
    await r.send("event", "POST", events, event)
    await r.send("core event", "GET", r.path("events", "e.1"))
    by_name = "involvedObject.name=p"
    await r.send("core events", "GET", r.path("events"), fieldSelector=by_name)
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}
    await r.send("series", "PATCH", f"{events}/e.1", series, content_type=MERGE_PATCH)
    for path in ("/apis/coordination.k8s.io", "/apis/events.k8s.io/v1", "/nowhere"):
        await r.send("discovery", "GET", path)


async def _small_kinds(r: Recorder) -> None:
    await r.send("claim", "POST", r.path("persistentvolumeclaims"), build_claim())
    grow = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    claim = r.path("persistentvolumeclaims", "c")
    await r.send("grow", "PATCH", claim, grow, content_type=MERGE_PATCH, blurred=True)
    empty = {**build_claim("d"), "spec": {}}
    await r.send("empty claim", "POST", r.path("persistentvolumeclaims"), empty)
    secret: Manifest = {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "immutable": True}
    await r.send("secret", "POST", r.path("secrets"), secret)
    change = {"data": {"a": "Yw=="}}
    await r.send("frozen", "PATCH", r.path("secrets", "s"), change, content_type=MERGE_PATCH)
    unknown = {"metadata": {"name": "u"}, "data": {}, "nonsense": 1}
    await r.send("unknown", "POST", r.path("configmaps"), unknown)
    strict = {"metadata": {"name": "v"}, "nonsense": 1}
    await r.send("strict", "POST", r.path("configmaps"), strict, fieldValidation="Strict")
    service = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    await r.send("headless", "POST", r.path("services"), service)
    slice_ = {
        "metadata": {"name": "e"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 1}],
    }
    slices = r.path("endpointslices", api="apis/discovery.k8s.io/v1")
    await r.send("slice", "POST", slices, slice_)
    policy = {"metadata": {"name": "n"}, "spec": {"podSelector": {}}}
    policies = r.path("networkpolicies", api="apis/networking.k8s.io/v1")
    await r.send("policy", "POST", policies, policy)
    budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1}}
    await r.send("budget", "POST", r.path("poddisruptionbudgets", api="apis/policy/v1"), budget)


async def _queries(r: Recorder) -> None:
    base = r.path("configmaps")
    await r.send("create", "POST", base, build_map())
    for name, text in (("timeoutSeconds", "300.0"), ("limit", "x"), ("limit", "-1")):
        query: Any = {name: text}
        await r.send(f"{name} {text}", "GET", base, **query)
    await r.send("watch", "GET", base, watch="true", timeoutSeconds="1.5")
    for name in ("dryRun", "fieldValidation"):
        some: Any = {name: "Some"}
        await r.send(f"create {name}", "POST", base, build_map("x"), **some)
        await r.send(f"patch {name}", "PATCH", f"{base}/m", {}, content_type=MERGE_PATCH, **some)
        await r.send(f"put {name}", "PUT", f"{base}/m", build_map(), **some)
    await r.send("force", "PATCH", f"{base}/m", {}, content_type=MERGE_PATCH, force="true")
    await r.send("put all", "PUT", base, build_map())
    await r.send("post one", "POST", f"{base}/m", build_map())
    await r.send("status", "GET", f"{base}/m/status")
    await r.send("empty", "POST", base, b"", blurred=True)
    await r.send("broken", "POST", base, b"{", blurred=True)
    options: Any = {"content_type": APPLY, "fieldManager": "a", "blurred": True}
    await r.send("broken yaml", "PATCH", f"{base}/m", b"a: [", **options)
    await r.send("list", "POST", base, b"[1]", blurred=True)


async def _metadata(r: Recorder) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": True}
    cases: dict[str, Manifest] = {
        "label key": {"labels": {"a b": "c"}},
        "label prefix": {"labels": {"A_/b": "c"}},
        "label value": {"labels": {"a": "b c"}},
        "long label": {"labels": {"a": "b" * 64}},
        "long label key": {"labels": {"a" * 64: "b"}},
        "number": {"labels": {"a": 1}},
        "annotation key": {"annotations": {"a b": "c"}},
        "annotations": {"annotations": {"a": "x" * 300_000}},
        "no owner": {"ownerReferences": [{"kind": "A"}]},
        "two controllers": {"ownerReferences": [owner, {**owner, "name": "b", "uid": "2"}]},
        "two owners": {"ownerReferences": [owner, {**owner, "uid": "2", "controller": False}]},
        "long name": {"name": "x" * 254},
        "generated": {"generateName": "x-", "name": "y"},
        "unknown": {"nonsense": 1},
        "empty namespace": {"namespace": ""},
    }
    for label, metadata in cases.items():
        body = {**build_map(), "metadata": {"name": label.replace(" ", "-"), **metadata}}
        await r.send(label, "POST", r.path("configmaps"), body, blurred=label == "number")
    await r.send("bad namespace", "POST", "/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    await r.send("no namespace", "POST", "/api/v1/namespaces", {"metadata": {"name": "A_b"}})


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "scenario",
    [
        _queries,
        _metadata,
        _writes,
        _patches,
        _pods,
        _deletion,
        _lists,
        _watches,
        _leases_and_events,
        _small_kinds,
    ],
    ids=name_of,
)
async def test_the_fake_answers_as_the_real_server_does(
    scenario: Scenario, compare: Compare
) -> None:
    await compare(scenario)
