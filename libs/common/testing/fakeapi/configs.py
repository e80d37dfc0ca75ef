"""What an applied configuration must look like before it is merged."""

from __future__ import annotations

from typing import Any

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.fields import Fields, remove_fields
from libs.common.testing.fakeapi.identity import check_names
from libs.common.testing.fakeapi.statuses import bad_request, internal
from libs.common.testing.fakeapi.validation import find_type_errors, prune

_TYPED_NAMES = {
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
    "array": "list",
    "object": "map",
}


def check_config(target: Target, config: Any) -> None:
    """Refuse a configuration that cannot be applied.

    Raises:
        StatusError: 400; 500 if it does not fit the schema, as the real server responds.
    """
    if not isinstance(config, dict) or not config.get("kind") or not config.get("apiVersion"):
        raise bad_request("invalid object type: /, Kind=")
    metadata = config.get("metadata") or {}
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    _check_typed(target, config)
    check_names(target, metadata)


def _check_typed(target: Target, config: Manifest) -> None:
    schema = target.version.schema
    dropped: list[str] = []
    prune(config, schema, dropped=dropped)
    wrong = [f".{path}: field not declared in schema" for path in dropped]
    wrong.extend(
        f".{path}: expected {_TYPED_NAMES.get(wanted, wanted)}, got {_describe(found, value)}"
        for path, wanted, found, value in find_type_errors(config, schema)
    )
    if wrong:
        metadata = config.get("metadata") or {}
        where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        group, _, version = target.api_version.rpartition("/")
        gvk = f"{group}/{version}, Kind={target.resource.kind}"
        raise internal(f"failed to create typed patch object ({where}; {gvk}): {'; '.join(wrong)}")


def strip_config(target: Target, config: Manifest, dropped: Fields) -> Manifest:
    """Return the configuration without what this path cannot write, with the name of the path."""
    config = {**config, "metadata": dict(config.get("metadata") or {})}
    kept = {
        k: config["metadata"][k]
        for k in ("name", "namespace", "uid", "resourceVersion")
        if k in config["metadata"]
    }
    out: Manifest = remove_fields(config, dropped, target.version.schema)
    out["metadata"] = {**out.get("metadata", {}), **kept}
    out["metadata"]["name"] = target.key.name
    if target.key.namespace:
        out["metadata"]["namespace"] = target.key.namespace
    return out


def _describe(found: str, value: Any) -> str:
    if found in ("integer", "number", "boolean"):
        return f"&value.valueUnstructured{{Value:{str(value).lower()}}}"
    return {"array": "list", "object": "map"}.get(found, found)
