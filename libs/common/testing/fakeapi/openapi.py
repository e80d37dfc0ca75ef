"""The documents of OpenAPI v3: schemas of all kinds, and what can be done at which path.

They have what clients decide by: schemas, actions, kinds, and the query parameters of writes.
Built-in kinds have no descriptions, because `builtins.json` keeps none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.discovery import VERSION
from libs.common.testing.fakeapi.registry import Registry, Resource, Version
from libs.common.testing.fakeapi.schema import META_REF

_PREFIX: Final = "#/components/schemas/"
_COLLECTION: Final = {"list": ("get", "list"), "create": ("post", "post")}
_COLLECTION_DELETE: Final = {"deletecollection": ("delete", "deletecollection")}
_OBJECT: Final = {
    "get": ("get", "get"),
    "update": ("put", "put"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
}
_NAMED: Final = {**_OBJECT, "create": ("post", "post")}
"""HTTP method and `x-kubernetes-action` of each verb."""
_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "delete": ("dryRun",),
}
_ENVELOPE: Final[Manifest] = {
    "apiVersion": {"description": "Version of the schema of this object.", "type": "string"},
    "kind": {"description": "Kind of this object.", "type": "string"},
    "metadata": {
        "description": "Standard object's metadata.",
        "allOf": [{"$ref": _PREFIX + META_REF}],
    },
}


def render_openapi(registry: Registry, path: str) -> Manifest | None:
    """Return the document at a path, or None if there is none."""
    parts = [part for part in path.split("/") if part]
    if parts[:2] != ["openapi", "v3"]:
        return None
    if len(parts) == len(("openapi", "v3")):
        return {"paths": {name: _entry(registry, name) for name in _list_names(registry)}}
    return _render(registry, "/".join(parts[2:]))


def _list_names(registry: Registry) -> list[str]:
    groups = {(each.group, version) for each in registry for version in each.versions}
    return [_name(group, version) for group, version in sorted(groups)]


def _name(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _entry(registry: Registry, name: str) -> Manifest:
    # Clients keep documents by this address.
    digest = hashlib.sha256(orjson.dumps(_render(registry, name))).hexdigest()
    return {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest[:32].upper()}"}


def _render(registry: Registry, name: str) -> Manifest | None:
    paths: Manifest = {}
    schemas: Manifest = {}
    for resource in registry:
        for version in resource.versions.values():
            if _name(resource.group, version.name) == name:
                schema, definition = _schema_of(resource, version)
                schemas[schema] = {
                    **definition,
                    "x-kubernetes-group-version-kind": [_kind(resource, version)],
                }
                paths.update(_paths(f"/{name}", resource, version))
    if not paths:
        return None
    _add_references(registry, schemas)
    info = {"title": "Kubernetes", "version": f"{VERSION['major']}.{VERSION['minor']}"}
    return {
        "openapi": "3.0.0",
        "info": info,
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": schemas},
    }


def _schema_of(resource: Resource, version: Version) -> tuple[str, Manifest]:
    raw = version.schema.raw
    if not resource.custom:
        return version.schema.name, _expand(raw)
    reverse = ".".join(reversed(resource.group.split(".")))
    properties = {**raw.get("properties", {}), **_ENVELOPE}
    return f"{reverse}.{version.name}.{resource.kind}", {**raw, "properties": properties}


def _expand(schema: Mapping[str, Any]) -> Manifest:
    """Undo what `trim` in extract.py does, as far as it is known."""
    out = dict(schema)
    if "properties" in out:
        out["properties"] = {name: _expand(child) for name, child in out["properties"].items()}
    for name in ("items", "additionalProperties"):
        if name in out:
            out[name] = _expand(out[name])
    if "$ref" in out:
        reference = {"$ref": _PREFIX + out.pop("$ref")}
        return {**out, "allOf": [reference]} if out else reference
    if out.pop("x-kubernetes-int-or-string", None):
        out["oneOf"] = [{"type": "integer"}, {"type": "string"}]
    return out


def _add_references(registry: Registry, schemas: Manifest) -> None:
    queue = [name for schema in list(schemas.values()) for name in _references(schema)]
    while queue:
        name = queue.pop()
        if name not in schemas:
            schemas[name] = _expand(registry.definitions.get(name).raw)
            queue.extend(_references(schemas[name]))


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, Mapping):
        for name, value in schema.items():
            if name == "$ref" and isinstance(value, str):
                yield value.removeprefix(_PREFIX)
            else:
                yield from _references(value)


def _kind(resource: Resource, version: Version) -> Manifest:
    return {"group": resource.group, "version": version.name, "kind": resource.kind}


def _paths(base: str, resource: Resource, version: Version) -> Manifest:
    kind, verbs = _kind(resource, version), resource.verbs
    collection = f"{base}/{resource.plural}"
    paths: Manifest = {}
    if resource.namespaced:
        if "list" in verbs:
            paths[collection] = _operations(("list",), _COLLECTION, kind)
        collection = f"{base}/namespaces/{{namespace}}/{resource.plural}"
    paths[collection] = _operations(verbs, _COLLECTION | _COLLECTION_DELETE, kind)
    if "get" in verbs:
        paths[f"{collection}/{{name}}"] = _operations(verbs, _OBJECT, kind)
    for name, declared in version.subresources.items():
        own, allowed = kind, ("get", "update", "patch")
        if not resource.custom:
            allowed = declared["verbs"]
            own = {"kind": declared["kind"]}
            own["group"] = declared.get("group", resource.group)
            own["version"] = declared.get("version", version.name)
        paths[f"{collection}/{{name}}/{name}"] = _operations(allowed, _NAMED, own)
    return paths


def _operations(verbs: Any, methods: Mapping[str, tuple[str, str]], kind: Manifest) -> Manifest:
    return {
        method: {
            "parameters": [_parameter(name) for name in _PARAMETERS.get(action, ())],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        }
        for verb, (method, action) in methods.items()
        if verb in verbs
    }


def _parameter(name: str) -> Manifest:
    kind = "boolean" if name == "force" else "string"
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
