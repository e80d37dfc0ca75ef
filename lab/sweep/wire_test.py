from __future__ import annotations

import json

import pytest

from lab.sweep.wire import APPLY_TYPE, Call, parse_call, parse_frame, parse_json

BODY = json.dumps({"metadata": {"name": "web-pod-0"}}).encode()
POD = "/api/v1/namespaces/ns/pods"
SET = "/apis/batch.example.com/v1/namespaces/ns/podsets"


@pytest.mark.parametrize(
    ("method", "path", "query", "content_type", "call"),
    [
        ("POST", POD, {}, "", Call("create", "", "pods", "ns", "web-pod-0")),
        ("DELETE", f"{POD}/a", {}, "", Call("delete", "", "pods", "ns", "a")),
        ("GET", POD, {}, "", Call("list", "", "pods", "ns")),
        ("GET", f"{POD}/a", {}, "", Call("get", "", "pods", "ns", "a")),
        ("GET", POD, {"watch": "true"}, "", Call("watch", "", "pods", "ns")),
        ("PUT", f"{POD}/a", {}, "", Call("update", "", "pods", "ns", "a")),
        (
            "PATCH",
            f"{SET}/web/status",
            {},
            APPLY_TYPE,
            Call("apply", "batch.example.com", "podsets", "ns", "web", "status"),
        ),
        (
            "PATCH",
            f"{SET}/web",
            {},
            "application/json-patch+json",
            Call("patch", "batch.example.com", "podsets", "ns", "web"),
        ),
        ("GET", "/api/v1/namespaces/ns", {}, "", Call("get", "", "namespaces", "", "ns")),
    ],
)
def test_request_is_read(
    method: str, path: str, query: dict[str, str], content_type: str, call: Call
) -> None:
    assert parse_call(method, path, query, content_type, BODY) == call


@pytest.mark.parametrize("path", ["/api/v1", "/apis", "/version", "/apis/apps/v1", "/"])
def test_discovery_is_about_no_object(path: str) -> None:
    assert parse_call("GET", path, {}, "", b"") is None


@pytest.mark.parametrize(
    ("call", "series"),
    [
        (Call("create", "", "pods"), "write"),
        (Call("list", "", "pods"), "read"),
        (Call("update", "coordination.k8s.io", "leases"), "lease"),
        (Call("create", "events.k8s.io", "events"), "event"),
        (Call("create", "authorization.k8s.io", "selfsubjectaccessreviews"), "read"),
    ],
)
def test_requests_are_counted_in_series(call: Call, series: str) -> None:
    assert call.series == series


def test_apply_needs_the_right_to_patch() -> None:
    assert Call("apply", "", "pods").rbac_verb == "patch"


def test_broken_bodies_and_frames_are_empty() -> None:
    assert parse_json(b"{") == {}
    assert parse_json(b'"text"') == {}
    assert parse_json(b'[{"op": "test"}]') == {"json-patch": [{"op": "test"}]}
    assert parse_frame(b'{"type": "ADDED", "object": {"kind": "Pod"}}') == (
        "ADDED",
        {"kind": "Pod"},
    )
    assert parse_frame(b"") == ("", {})
