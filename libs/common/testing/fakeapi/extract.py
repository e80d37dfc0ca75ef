"""Write `builtins.json`: what a real API server says about its built-in kinds.

Run against a kube-apiserver of the version to imitate; nothing in the file is written by hand:

    kubectl proxy --port 8001 &
    python -m libs.common.testing.fakeapi.extract http://127.0.0.1:8001

The file keeps discovery (names, verbs, subresources) and the OpenAPI schemas without their
descriptions: types, required fields, defaults, list and map types, patch merge keys.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from libs.common.kinds import Manifest

GROUP_VERSIONS = (
    "api/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v1",
    "apis/autoscaling/v2",
    "apis/batch/v1",
    "apis/coordination.k8s.io/v1",
    "apis/discovery.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
    "apis/storage.k8s.io/v1",
)
"""The groups that operators touch; others answer 404 as an API server without them would."""

KEPT = (
    "type",
    "default",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-preserve-unknown-fields",
)
_REF_PREFIX = "#/components/schemas/"


def main(server: str, target: Path) -> None:
    """Read discovery and OpenAPI of a server and write them to the target."""
    data = build_builtins(lambda path: _fetch(server, path))
    target.write_text(json.dumps(data, separators=(",", ":"), sort_keys=True) + "\n")


def build_builtins(fetch: Any) -> Manifest:
    """Build the content of `builtins.json` from a function that gets a path."""
    definitions: Manifest = {}
    resources: list[Manifest] = []
    for group_version in GROUP_VERSIONS:
        schemas = fetch(f"openapi/v3/{group_version}")["components"]["schemas"]
        by_kind: dict[str, str] = {}
        for name, schema in schemas.items():
            definitions[name] = trim(schema)
            for gvk in schema.get("x-kubernetes-group-version-kind", ()):
                if (
                    f"{gvk['group']}/{gvk['version']}".lstrip("/")
                    == group_version.partition("/")[2]
                ):
                    by_kind[gvk["kind"]] = name
        resources.extend(_resources(fetch(group_version), by_kind))
    return {
        "version": fetch("version")["gitVersion"],
        "resources": resources,
        "definitions": _reachable(definitions, [r["schema"] for r in resources]),
    }


def trim(schema: Any) -> Manifest:
    """Keep what decides behavior; a reference becomes its bare name under `$ref`."""
    union = schema.get("allOf")
    if union:
        return trim({**union[0], **{k: v for k, v in schema.items() if k != "allOf"}})
    out: Manifest = {key: schema[key] for key in KEPT if key in schema}
    if "$ref" in schema:
        out["$ref"] = schema["$ref"].removeprefix(_REF_PREFIX)
    if "oneOf" in schema or schema.get("format") == "int-or-string":
        out["x-kubernetes-int-or-string"] = True
        out.pop("type", None)
    if "properties" in schema:
        out["properties"] = {k: trim(v) for k, v in schema["properties"].items()}
    if "items" in schema:
        out["items"] = trim(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = trim(schema["additionalProperties"])
    return out


def _resources(listing: Manifest, by_kind: dict[str, str]) -> list[Manifest]:
    group, _, version = listing["groupVersion"].rpartition("/")
    whole: dict[str, Manifest] = {}
    for entry in listing["resources"]:
        plural, _, subresource = entry["name"].partition("/")
        if subresource:
            if plural in whole:
                kept = {k: entry[k] for k in ("kind", "verbs")}
                kept.update({k: entry[k] for k in ("group", "version") if k in entry})
                whole[plural]["subresources"][subresource] = kept
        elif entry["kind"] in by_kind:
            entry.pop("storageVersionHash", None)
            schema = by_kind[entry["kind"]]
            whole[plural] = {
                **entry,
                "group": group,
                "version": version,
                "schema": schema,
                "subresources": {},
            }
    return list(whole.values())


def _reachable(definitions: Manifest, roots: list[str]) -> Manifest:
    seen: Manifest = {}
    queue = list(roots)
    while queue:
        name = queue.pop()
        if name not in seen:
            seen[name] = definitions[name]
            queue.extend(_references(definitions[name]))
    return seen


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        here = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return here + [name for value in schema.values() for name in _references(value)]
    return []


def _fetch(server: str, path: str) -> Any:
    with urllib.request.urlopen(f"{server}/{path}") as response:
        return json.load(response)


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), Path(__file__).with_name("builtins.json"))
