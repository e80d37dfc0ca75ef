"""Scenarios with custom kinds, for the differential test."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.parity import Compare, Recorder, Scenario, name_of
from libs.common.testing.fakeapi.rest import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

GROUP = "parity.example.com"
API = f"apis/{GROUP}/v1"
_PLAIN_GROUP = "plain.example.com"
_DEFAULTED_GROUP = "defaulted.example.com"
_CONDITION: Manifest = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "message": {"type": "string"},
    },
}
SCHEMA: Manifest = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 10},
                "mode": {"type": "string", "enum": ["Fast", "Slow"], "default": "Fast"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 1},
                "tags": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": 3,
                    "x-kubernetes-list-type": "set",
                },
                "args": {"type": "array", "items": {"type": "string"}},
                "ports": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["port"],
                        "properties": {
                            "port": {"type": "integer"},
                            "protocol": {"type": "string", "default": "TCP"},
                            "note": {"type": "string"},
                        },
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                },
                "options": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "amount": {"x-kubernetes-int-or-string": True},
                "nested": {
                    "type": "object",
                    "default": {},
                    "properties": {"depth": {"type": "integer", "default": 1}},
                },
                "maybe": {"type": "string", "nullable": True},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
                "observedGeneration": {"type": "integer", "minimum": 0},
                "conditions": {
                    "type": "array",
                    "items": _CONDITION,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
            },
        },
    },
}


def build_crd(
    plural: str,
    kind: str,
    group: str,
    subresources: Manifest,
    status_default: Manifest | None,
    printed: Sequence[Manifest] = (),
) -> Manifest:
    """Build the CRD of a scenario."""
    schema = copy.deepcopy(SCHEMA)
    if status_default is not None:
        schema["properties"]["status"]["default"] = status_default
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": list(printed),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


SCALE: Manifest = {
    "specReplicasPath": ".spec.size",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


async def serve(
    r: Recorder,
    *,
    plural: str = "gadgets",
    kind: str = "Gadget",
    group: str = GROUP,
    subresources: Manifest | None = None,
    status_default: Manifest | None = None,
    printed: Sequence[Manifest] = (),
) -> str:
    """Serve the custom kind, which may be there already; return its collection."""
    subresources = subresources or {"status": {}, "scale": SCALE}
    crd = build_crd(plural, kind, group, subresources, status_default, printed)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await r.rest.send("POST", crds, crd)
    base = r.path(plural, api=f"apis/{group}/v1")
    await r.until_found(base)
    return base


def build_gadget(name: str = "g", *, kind: str = "Gadget", **parts: Any) -> Manifest:
    """Build a custom object."""
    metadata = {"name": name}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **parts}


async def _custom_writes(r: Recorder) -> None:
    base = await serve(r)
    path = f"{base}/g"
    made = await r.send(
        "create", "POST", base, build_gadget(spec={"size": 1}, status={"replicas": 9})
    )
    await r.send("create again", "POST", base, build_gadget(spec={"size": 1}))
    nameless = {"metadata": {"name": "x"}, "spec": {"size": 1}}
    await r.send("no kind", "POST", base, nameless, blurred=True)
    await r.send("replace blind", "PUT", path, build_gadget(spec={"size": 1}))
    await r.send("replace same", "PUT", path, made.body)
    changed = await r.send("replace", "PUT", path, {**made.body, "spec": {"size": 2}})
    await r.send("replace stale", "PUT", path, {**made.body, "spec": {"size": 3}})
    status = {**changed.body, "status": {"replicas": 2}, "spec": {"size": 7}}
    status["metadata"] = {**changed.metadata, "labels": {"via": "status"}}
    await r.send("replace status", "PUT", f"{path}/status", status)
    both = {"spec": {"size": 3}, "status": {"replicas": 8}, "metadata": {"labels": {"a": "b"}}}
    await r.send("merge", "PATCH", path, both, content_type=MERGE_PATCH)
    await r.send("merge status", "PATCH", f"{path}/status", both, content_type=MERGE_PATCH)
    await r.send("strategic", "PATCH", path, {}, content_type=STRATEGIC_PATCH)
    await r.send(
        "label", "PATCH", path, {"metadata": {"labels": {"c": "d"}}}, content_type=MERGE_PATCH
    )
    test = [{"op": "test", "path": "/metadata/uid", "value": "x"}]
    await r.send("json test", "PATCH", path, test, content_type=JSON_PATCH)
    await r.send("scale", "GET", f"{path}/scale")
    await r.send(
        "scale up", "PATCH", f"{path}/scale", {"spec": {"replicas": 5}}, content_type=MERGE_PATCH
    )
    await r.send(
        "scale down", "PATCH", f"{path}/scale", {"spec": {"replicas": -1}}, content_type=MERGE_PATCH
    )
    await r.send("scaled", "GET", path)
    await r.send("no subresource", "GET", f"{path}/nothing")
    await r.send("list", "GET", base)
    await r.send(
        "hold", "PATCH", path, {"metadata": {"finalizers": ["a.b/c"]}}, content_type=MERGE_PATCH
    )
    await r.send("delete", "DELETE", path)
    await r.send("delete again", "DELETE", path)
    await r.send("edit", "PATCH", path, {"spec": {"size": 4}}, content_type=MERGE_PATCH)
    more = {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}
    await r.send("more finalizers", "PATCH", path, more, content_type=MERGE_PATCH)
    uid = {"metadata": {"uid": "other"}}
    await r.send("other uid", "PATCH", path, uid, content_type=MERGE_PATCH)
    await r.send(
        "free", "PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH
    )
    await r.send("gone", "GET", path)
    await r.send("create plain", "POST", base, build_gadget("h", spec={"size": 1}))
    await r.send("delete plain", "DELETE", f"{base}/h")
    await r.send("discovery", "GET", f"/{API}")


_REFUSED: dict[str, Any] = {
    "no size": {},
    "text size": {"size": "x"},
    "half size": {"size": 1.5},
    "small": {"size": -1},
    "big": {"size": 11},
    "mode": {"size": 1, "mode": "Other"},
    "pattern": {"size": 1, "name": "AB"},
    "long": {"size": 1, "name": "abcdefgh"},
    "short": {"size": 1, "name": ""},
    "many tags": {"size": 1, "tags": ["a", "b", "c", "d"]},
    "twice": {"size": 1, "tags": ["a", "a"]},
    "same ports": {"size": 1, "ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
    "no port": {"size": 1, "ports": [{"note": "x"}]},
    "options": {"size": 1, "options": {"a": 1}},
    "amount": {"size": 1, "amount": True},
    "null size": {"size": None},
    "list for map": {"size": 1, "nested": []},
    "several": {"size": -1, "mode": "x", "name": "AB"},
}
_ACCEPTED: dict[str, Any] = {
    "pruned": {"size": 1, "unknown": {"a": 1}, "nested": {"x": 1}},
    "free": {"size": 1, "free": {"a": [1, {"b": None}]}},
    "null": {"size": 1, "maybe": None, "mode": None},
    "amounts": {"size": 1, "amount": "5%", "ports": [{"port": 1}], "whole": {"a": "b"}},
    "float": {"size": 2.0},
}


async def _validation(r: Recorder) -> None:
    base = await serve(r)
    for label, spec in _REFUSED.items():
        several = label == "several"
        await r.send(label, "POST", base, build_gadget(spec=spec), blurred=several)
    await r.send("no spec", "POST", base, build_gadget())
    await r.send("bad spec", "POST", base, build_gadget(spec="x"))
    for label, spec in _ACCEPTED.items():
        await r.send(label, "POST", base, build_gadget(label, spec=spec))
    strict = build_gadget("strict", spec={"size": 1, "unknown": 1})
    await r.send("strict", "POST", base, strict, fieldValidation="Strict")
    await r.send("bad name", "POST", base, build_gadget("Bad_Name", spec={"size": 1}))
    await r.send(
        "bad edit", "PATCH", f"{base}/pruned", {"spec": {"size": 99}}, content_type=MERGE_PATCH
    )
    bad_status = {"status": {"conditions": [{"type": "Ready", "status": "Nope"}]}}
    await r.send(
        "bad status", "PATCH", f"{base}/pruned/status", bad_status, content_type=MERGE_PATCH
    )
    options: Any = {"content_type": APPLY, "fieldManager": "alpha"}
    for label, spec in (
        ("unknown", {"size": 1, "unknown": 1}),
        ("type", {"size": "x"}),
        ("range", {"size": 99}),
    ):
        await r.send(
            f"apply {label}", "PATCH", f"{base}/a", build_gadget("a", spec=spec), **options
        )


async def _custom_appliers(r: Recorder) -> None:
    base = await serve(r)

    async def apply(label: str, manager: str, sub: str = "", **parts: Any) -> None:
        options: Any = {"content_type": APPLY, "fieldManager": manager}
        if parts.pop("force", False):
            options["force"] = "true"
        await r.send(label, "PATCH", f"{base}/g{sub}", build_gadget(**parts), **options)

    await apply("create", "alpha", spec={"size": 1, "tags": ["a"], "options": {"x": "1"}})
    await apply("same", "alpha", spec={"size": 1, "tags": ["a"], "options": {"x": "1"}})
    await apply("set", "beta", spec={"size": 1, "tags": ["b"], "options": {"y": "2"}})
    await apply("atomic", "beta", spec={"size": 1, "args": ["x"], "whole": {"a": "1"}})
    await apply("atomic conflict", "gamma", spec={"size": 1, "args": ["y"], "whole": {"b": "2"}})
    await apply("ports", "beta", spec={"size": 1, "ports": [{"port": 1, "note": "b"}]})
    await apply(
        "port note",
        "gamma",
        spec={"size": 1, "ports": [{"port": 1, "protocol": "TCP", "note": "c"}]},
    )
    await apply("port other", "gamma", spec={"size": 1, "ports": [{"port": 2}]})
    await apply("drop ports", "beta", spec={"size": 1})
    await apply("free", "delta", spec={"size": 1, "free": {"a": {"b": 1}, "l": [1]}})
    await apply("free merge", "gamma", spec={"size": 1, "free": {"a": {"c": 1}}})
    await apply("conflict", "delta", spec={"size": 5})
    await apply("conflicts", "delta", spec={"size": 5, "options": {"x": "9"}})
    await apply("force", "delta", spec={"size": 5}, force=True)
    await apply("default", "delta", spec={"size": 5, "mode": "Slow"})
    ready = {"type": "Ready", "status": "True"}
    await apply("status", "a-status", "/status", status={"conditions": [ready], "replicas": 1})
    await apply("status same", "a-status", "/status", status={"conditions": [ready], "replicas": 1})
    other = {"type": "Other", "status": "False"}
    await apply("status two", "b-status", "/status", status={"conditions": [other]})
    turned = {"type": "Ready", "status": "False"}
    await apply("status conflict", "b-status", "/status", status={"conditions": [other, turned]})
    await apply("status less", "a-status", "/status", status={"replicas": 1})
    await apply("spec by status", "c-status", "/status", spec={"size": 9}, status={"selector": "x"})
    await apply("status by main", "alpha", spec={"size": 5}, status={"replicas": 7})
    edit = {"spec": {"size": 6}}
    await r.send(
        "edit", "PATCH", f"{base}/g", edit, content_type=MERGE_PATCH, fieldManager="editor"
    )
    patch = [{"op": "add", "path": "/status", "value": {"replicas": 4}}]
    await r.send("edit status", "PATCH", f"{base}/g/status", patch, content_type=JSON_PATCH)
    scale = {"spec": {"replicas": 2}}
    await r.send("scale", "PATCH", f"{base}/g/scale", scale, content_type=MERGE_PATCH)
    await r.send("scaled", "GET", f"{base}/g")
    await apply("nothing", "alpha")


async def _no_status(r: Recorder) -> None:
    base = await serve(
        r, plural="plains", kind="Plain", group=_PLAIN_GROUP, subresources={"scale": SCALE}
    )
    plain = build_gadget(kind="Plain", spec={"size": 1}, status={"replicas": 1})
    plain["apiVersion"] = f"{_PLAIN_GROUP}/v1"
    made = await r.send("create", "POST", base, plain)
    await r.send(
        "edit", "PATCH", f"{base}/g", {"status": {"replicas": 2}}, content_type=MERGE_PATCH
    )
    await r.send("subresource", "GET", f"{base}/g/status")
    assert made.status == 201


async def _status_default(r: Recorder) -> None:
    """The default of a status; the first update stores it, which the fake does not repeat."""
    base = await serve(
        r,
        plural="defaulteds",
        kind="Defaulted",
        group=_DEFAULTED_GROUP,
        status_default={"observedGeneration": 0},
    )

    def build(name: str, **parts: Any) -> Manifest:
        gadget = build_gadget(name, kind="Defaulted", **parts)
        return {**gadget, "apiVersion": f"{_DEFAULTED_GROUP}/v1"}

    options: Any = {"content_type": APPLY, "fieldManager": "alpha"}
    await r.send("create", "POST", base, build("g", spec={"size": 1}, status={"replicas": 3}))
    await r.send("apply", "PATCH", f"{base}/h", build("h", spec={"size": 1}), **options)
    await r.send("list", "GET", base)
    await r.send("edit", "PATCH", f"{base}/g", {"spec": {"size": 2}}, content_type=MERGE_PATCH)
    seen = build("h", status={"observedGeneration": 1, "replicas": 1})
    await r.send("status", "PATCH", f"{base}/h/status", seen, **options)
    less = build("h", status={"replicas": 1})
    await r.send("status less", "PATCH", f"{base}/h/status", less, **options)
    removed = [{"op": "remove", "path": "/status"}]
    await r.send("remove", "PATCH", f"{base}/g/status", removed, content_type=JSON_PATCH)
    await r.send("removed", "GET", f"{base}/g")


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "scenario",
    [_custom_writes, _validation, _custom_appliers, _no_status, _status_default],
    ids=name_of,
)
async def test_the_fake_answers_as_the_real_server_does(
    scenario: Scenario, compare: Compare
) -> None:
    await compare(scenario)
