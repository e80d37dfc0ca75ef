"""Scenarios of writes that name an object by more than its name, for the differential test."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.parity import Compare, Recorder, Scenario, name_of
from libs.common.testing.fakeapi.parity_builtin_test import build_pod
from libs.common.testing.fakeapi.parity_custom_test import build_gadget, serve
from libs.common.testing.fakeapi.rest import APPLY, JSON_PATCH, MERGE_PATCH

_APPLIED: dict[str, Any] = {"content_type": APPLY, "fieldManager": "alpha", "force": "true"}


def _name(manifest: Manifest, **metadata: str) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


async def _custom_identity(r: Recorder) -> None:
    base = await serve(r)
    path = f"{base}/g"
    spec, status = build_gadget(spec={"size": 1}), build_gadget(status={"replicas": 1})
    made = await r.send("create", "POST", base, spec)
    await r.send("apply uid", "PATCH", path, _name(spec, uid="x"), **_APPLIED)
    absent = _name(build_gadget("no", spec={"size": 1}), uid="x")
    await r.send("apply uid absent", "PATCH", f"{base}/no", absent, blurred=True, **_APPLIED)
    # No precondition at all: the status lands on whatever has the name.
    other = _name(status, uid="x")
    await r.send("apply status uid", "PATCH", f"{path}/status", other, **_APPLIED)
    merged: Manifest = {"metadata": {"uid": "x"}, "status": {"replicas": 4}}
    await r.send("merge status uid", "PATCH", f"{path}/status", merged, content_type=MERGE_PATCH)
    stale = _name(status, resourceVersion=made.metadata["resourceVersion"])
    await r.send("apply status stale", "PATCH", f"{path}/status", stale, **_APPLIED)
    held = (await r.rest.get(path)).metadata["resourceVersion"]
    fresh = _name(status, resourceVersion=held)
    await r.send("apply status held", "PATCH", f"{path}/status", fresh, **_APPLIED)
    live = _name((await r.rest.get(path)).body, uid="x")
    await r.send("put status uid", "PUT", f"{path}/status", live, blurred=True)
    test = [
        {"op": "test", "path": "/metadata/uid", "value": "x"},
        {"op": "add", "path": "/status", "value": {"replicas": 7}},
    ]
    await r.send("json status uid", "PATCH", f"{path}/status", test, content_type=JSON_PATCH)


async def _pod_identity(r: Recorder) -> None:
    path = r.path("pods", "p")
    await r.send("create", "POST", r.path("pods"), build_pod())
    await r.send("apply uid", "PATCH", path, _name(build_pod(), uid="x"), **_APPLIED)
    status = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "x"}}
    status["status"] = {"phase": "Failed"}
    await r.send("apply status uid", "PATCH", f"{path}/status", status, **_APPLIED)
    merged = {"metadata": {"uid": "x"}, "status": {"phase": "Failed"}}
    await r.send("merge status uid", "PATCH", f"{path}/status", merged, content_type=MERGE_PATCH)


async def _json_patches(r: Recorder) -> None:
    """Show how JSON patches of the real server differ from RFC 6902."""
    path = r.path("pods", "p")
    await r.send("create", "POST", r.path("pods"), build_pod())
    labels, finalizers = "/metadata/labels", "/metadata/finalizers"
    cases: dict[str, list[Manifest]] = {
        "replace absent": [{"op": "replace", "path": f"{labels}/absent", "value": "x"}],
        "replace below absent": [{"op": "replace", "path": "/metadata/annotations/a", "value": ""}],
        "test absent": [{"op": "test", "path": f"{labels}/zz", "value": None}],
        "test nothing": [{"op": "test", "path": f"{labels}/zz"}],
        "test below absent": [{"op": "test", "path": "/metadata/annotations/a", "value": None}],
        "add at end": [
            {"op": "add", "path": finalizers, "value": ["a.b/1", "a.b/2"]},
            {"op": "add", "path": f"{finalizers}/-1", "value": "a.b/3"},
        ],
        "replace last": [{"op": "replace", "path": f"{finalizers}/-1", "value": "a.b/4"}],
        "test list": [{"op": "test", "path": finalizers, "value": ["a.b/1", "a.b/2", "a.b/4"]}],
        "remove last": [{"op": "remove", "path": f"{finalizers}/-1"}],
        "remove before first": [{"op": "remove", "path": f"{finalizers}/-9"}],
        "replace after last": [{"op": "replace", "path": f"{finalizers}/2", "value": "q.r/s"}],
        "no path": [{"op": "remove"}],
    }
    for label, operations in cases.items():
        await r.send(label, "PATCH", path, operations, content_type=JSON_PATCH)


@pytest.mark.apiserver
@pytest.mark.parametrize("scenario", [_custom_identity, _pod_identity, _json_patches], ids=name_of)
async def test_the_fake_answers_as_the_real_server_does(
    scenario: Scenario, compare: Compare
) -> None:
    await compare(scenario)
