"""Scenarios of server-side apply to built-in kinds, for the differential test."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.parity import Compare, Recorder, Scenario, name_of
from libs.common.testing.fakeapi.parity_builtin_test import APPS, build_map, build_pod
from libs.common.testing.fakeapi.rest import APPLY, MERGE_PATCH


async def _appliers(r: Recorder) -> None:
    path = r.path("configmaps", "m")

    async def apply(label: str, manager: str, body: Any, **query: Any) -> None:
        query = {"fieldManager": manager, **query}
        await r.send(label, "PATCH", path, body, content_type=APPLY, **query)

    await apply("create", "alpha", build_map(a="1", b="2"))
    await apply("same", "alpha", build_map(a="1", b="2"))
    await apply("conflict", "beta", build_map(a="9"))
    await apply("conflicts", "beta", build_map(a="9", b="9"))
    await apply("share", "beta", build_map(b="2", c="3"))
    await apply("drop shared", "alpha", build_map(a="1"))
    await apply("force", "beta", build_map(a="9"), force="true")
    await apply("empty", "alpha", build_map())
    await apply("empty same", "alpha", build_map())
    edit = {"data": {"a": "edited"}, "metadata": {"labels": {"x": "y"}}}
    await r.send("edit", "PATCH", path, edit, content_type=MERGE_PATCH, fieldManager="editor")
    await apply("against edit", "beta", build_map(a="9"))
    await apply("dry", "beta", build_map(a="8"), dryRun="All", force="true")
    await apply("no manager", "", build_map())
    await apply("unknown field", "beta", {**build_map(), "nonsense": 1})
    await apply("wrong type", "beta", {**build_map(), "data": {"a": 1}}, force="true")
    await apply("other name", "beta", build_map("other"))
    await apply("no kind", "beta", {"metadata": {"name": "m"}})
    stale = {**build_map(a="9"), "metadata": {"name": "m", "resourceVersion": "1"}}
    await apply("stale", "beta", stale, force="true")
    await apply(
        "managed",
        "beta",
        {**build_map(), "metadata": {"name": "m", "managedFields": [{"manager": "x"}]}},
    )
    clear: Manifest = {"metadata": {"managedFields": [{}]}}
    await r.send("forget", "PATCH", path, clear, content_type=MERGE_PATCH)
    await apply("after", "gamma", build_map(a="7"))
    path = r.path("configmaps", "bare")
    await apply("empty first", "alpha", build_map("bare"))
    await apply("empty again", "alpha", build_map("bare"))
    await apply("empty second", "beta", build_map("bare"))


async def _applied_pods(r: Recorder) -> None:
    path = r.path("pods", "p")

    async def apply(label: str, manager: str, body: Any, sub: str = "", **query: Any) -> None:
        query = {"fieldManager": manager, **query}
        await r.send(label, "PATCH", path + sub, body, content_type=APPLY, **query)

    await apply("create", "alpha", build_pod())
    await apply("same", "alpha", build_pod())
    changed = build_pod()
    changed["spec"]["containers"][0]["image"] = "nginx:2"
    await apply("image", "alpha", changed)
    await apply("frozen", "alpha", build_pod(hostname="x"), blurred=True)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"}
    owned: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "finalizers": ["a.b/c"], "ownerReferences": [owner]},
    }
    await apply("own", "beta", owned)
    owned["metadata"]["finalizers"] = ["d.e/f"]
    await apply("other finalizer", "gamma", owned)
    await apply("disown", "beta", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    status = {
        **owned,
        "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    await apply("status", "kubelet", status, "/status")
    # The status is dropped, but the real server writes the new time of the apply if a second has
    # passed since the last one.
    failed = {**changed, "status": {"phase": "Failed"}}
    await apply("status through main", "alpha", failed, unversioned=True)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": build_pod()["spec"]}
    deployment: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    where = r.path("deployments", "d", api=APPS)
    options: Any = {"content_type": APPLY, "fieldManager": "alpha"}
    await r.send("deployment", "PATCH", where, deployment, **options)
    await r.send("scale", "GET", f"{where}/scale")
    three = {"spec": {"replicas": 3}}
    await r.send("scale up", "PATCH", f"{where}/scale", three, content_type=MERGE_PATCH)
    await r.send("scaled", "GET", where)
    negative = {"spec": {"replicas": -1}}
    await r.send("scale below", "PATCH", f"{where}/scale", negative, content_type=MERGE_PATCH)
    deployment["spec"]["replicas"] = 5
    await r.send("apply replicas", "PATCH", where, deployment, **options)
    await r.send("scale owned", "PATCH", f"{where}/scale", three, content_type=MERGE_PATCH)
    await r.send("scaled owned", "GET", where)
    await r.send("apply scaled", "PATCH", where, deployment, **options)
    await r.send(
        "created deployment",
        "POST",
        r.path("deployments", api=APPS),
        {**deployment, "metadata": {"name": "e"}},
    )


@pytest.mark.apiserver
@pytest.mark.parametrize("scenario", [_appliers, _applied_pods], ids=name_of)
async def test_the_fake_answers_as_the_real_server_does(
    scenario: Scenario, compare: Compare
) -> None:
    await compare(scenario)
