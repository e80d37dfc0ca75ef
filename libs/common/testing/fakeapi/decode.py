"""Turn what a client sent into an object as it would be stored, or refuse it.

Custom kinds are pruned, defaulted and validated by their schema. Built-in kinds lose unknown fields
and nulls, are refused for wrong types, and get the defaults of `defaults.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from libs.common.kinds import Key, Manifest, drop_nulls
from libs.common.testing.fakeapi.defaults import fill_defaults
from libs.common.testing.fakeapi.metadata import check_metadata
from libs.common.testing.fakeapi.registry import Resource, Version
from libs.common.testing.fakeapi.rules import find_violations
from libs.common.testing.fakeapi.schema import Schema
from libs.common.testing.fakeapi.statuses import Cause, StatusError, bad_request, invalid
from libs.common.testing.fakeapi.validation import (
    apply_defaults,
    check_scale_path,
    drop_empty,
    find_type_errors,
    prune,
    validate,
)

_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata"})
_BLOCKING: Final = frozenset(
    {
        *("FieldValueRequired", "FieldValueTypeInvalid", "FieldValueNotSupported"),
        *("FieldValueTooLong", "FieldValueTooMany"),
    }
)
"""After one of these the API server runs no rule, because values may have wrong types."""

_UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The resource, object and subresource that a request addresses.

    Attributes:
        key: The object; the name is empty when a collection is meant.
        subresource: Such as `status`; empty for the object itself.
    """

    resource: Resource
    version: Version
    key: Key
    subresource: str = ""

    @property
    def api_version(self) -> str:
        """The `apiVersion` that the request speaks."""
        return self.resource.api_version(self.version.name)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Carry the query parameters of a write.

    Attributes:
        manager: Field manager.
        dry_run: Whether to store nothing.
        force: Whether an apply takes fields from other managers.
        patching: Whether the object is what a patch made.
        validation: `Strict`, `Warn` or `Ignore`: what to do about unknown fields.
        warnings: Collects texts for `Warning` headers.
    """

    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False
    validation: str = "Warn"
    patching: bool = False
    warnings: list[str] = field(default_factory=list)


def decode(target: Target, body: Any, options: WriteOptions) -> Manifest:
    """Return a new manifest, complete except for the fields that the server itself sets.

    Raises:
        StatusError: The body is no such object (400).
    """
    _check_envelope(target, body)
    schema = target.version.schema
    dropped: list[str] = []
    envelope: Manifest = {"apiVersion": target.api_version, "kind": target.resource.kind}
    content = {k: v for k, v in body.items() if k not in _ENVELOPE}
    obj: Manifest = prune(content, schema, dropped=dropped)
    metadata = _decode_metadata(target, body.get("metadata") or {}, dropped, options)
    if dropped:
        _warn_unknown_fields(target, dropped, options)
    if target.resource.custom:
        return {**envelope, "metadata": metadata, **apply_defaults(obj, schema)}
    obj = drop_nulls(obj)
    _check_types(target, obj, schema, "", options)
    obj = {**envelope, "metadata": metadata, **drop_empty(obj, schema)}
    fill_defaults(target.resource, obj)
    return obj


def _decode_metadata(
    target: Target, body: Any, dropped: list[str], options: WriteOptions
) -> Manifest:
    schema = target.version.schema.properties["metadata"]
    _check_types(target, body, schema, "metadata", options)
    # Encoded fields are opaque, and long: they are not worth a walk.
    content = {name: value for name, value in body.items() if name != "managedFields"}
    metadata: Manifest = drop_nulls(prune(content, schema, path="metadata", dropped=dropped))
    metadata = drop_empty(metadata, schema)
    if body.get("managedFields"):
        metadata["managedFields"] = body["managedFields"]
    return metadata


def _check_types(
    target: Target, value: Any, schema: Schema, path: str, options: WriteOptions
) -> None:
    wrong = next(find_type_errors(value, schema, path), None)
    if wrong is not None:
        raise _wrong_type(target, wrong, options)


def _wrong_type(
    target: Target, wrong: tuple[str, str, str, Any], options: WriteOptions
) -> StatusError:
    path, wanted, found, _ = wrong
    kind = target.resource.kind
    found = "number" if found == "integer" else found
    text = f"json: cannot unmarshal {found} into Go struct field {kind}.{path} of type {wanted}"
    if not options.patching:
        version = _quote(target.version.name)
        return bad_request(f"{kind} in version {version} cannot be handled as a {kind}: {text}")
    cause = Cause("patch", f"Invalid value: {_quote('{}')}: {text}")
    return StatusError(
        422,
        "Invalid",
        f' "" is invalid: patch: {cause.message}',
        details={
            "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
        },
    )


def _quote(text: str) -> str:
    return f'"{text}"'


def _check_envelope(target: Target, body: Any) -> None:
    if not isinstance(body, dict):
        raise bad_request("the request body is not a JSON object")
    wanted_kind, wanted_version = target.resource.kind, target.api_version
    kind, version = body.get("kind"), body.get("apiVersion")
    if target.resource.custom and not kind:
        raise bad_request("Object 'Kind' is missing in the request body")
    if (kind or wanted_kind) != wanted_kind:
        raise bad_request(
            f'{kind} in version "{target.version.name}" cannot be handled as a {wanted_kind}: '
            f"converting (v1.{kind}) to (core.{wanted_kind}): unknown conversion"
        )
    if (version or wanted_version) != wanted_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({wanted_version})"
        )


def _warn_unknown_fields(target: Target, dropped: list[str], options: WriteOptions) -> None:
    texts = [f'unknown field "{path}"' for path in dropped]
    if options.validation == "Strict":
        kind = target.resource.kind
        raise bad_request(
            f"{kind} in version {_quote(target.version.name)} cannot be handled as a {kind}: "
            f"strict decoding error: {', '.join(texts)}"
        )
    if options.validation == "Warn":
        options.warnings.extend(texts)


def check_valid(
    target: Target, obj: Manifest, old: Manifest | None = None, *, rules: bool = True
) -> None:
    """Refuse an object whose name, metadata or content is not valid.

    Args:
        target: What is written.
        obj: The object as it would be stored.
        old: The stored object that it replaces.
        rules: Whether CEL rules are checked.

    Raises:
        StatusError: 422 with all causes.
    """
    resource, name = target.resource, obj["metadata"].get("name", "")
    causes = check_metadata(resource, obj["metadata"])
    if resource.custom:
        causes.extend(validate(obj, target.version.schema))
        if "scale" in target.version.subresources:
            path = target.version.subresources["scale"]["specReplicasPath"]
            causes.extend(check_scale_path(obj, path))
        if rules:
            causes.extend(_check_rules(obj, old, target.version.schema, causes))
    else:
        causes.extend(_check_required(resource, obj))
    if causes:
        raise invalid(resource, name, causes)


def _check_rules(
    obj: Manifest, old: Manifest | None, schema: Schema, causes: Sequence[Cause]
) -> list[Cause]:
    if not schema.ruled:
        return []
    if any(cause.reason in _BLOCKING for cause in causes):
        return [Cause("<nil>", f"Invalid value: null: {_UNCHECKED}")]
    return list(find_violations(obj, old, schema))


def _check_required(resource: Resource, obj: Manifest) -> list[Cause]:
    """Check the few required fields of built-in kinds that operators forget."""
    spec = obj.get("spec") or {}
    if resource.group:
        return []
    if resource.plural == "pods":
        return _check_pod(spec)
    if resource.plural == "persistentvolumeclaims":
        causes = []
        if not spec.get("accessModes"):
            why = "Required value: at least 1 access mode is required"
            causes.append(Cause("spec.accessModes", why, "FieldValueRequired"))
        if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
            why = "Required value"
            causes.append(Cause("spec.resources[storage]", why, "FieldValueRequired"))
        return causes
    return []


def _check_pod(spec: Manifest) -> list[Cause]:
    containers = spec.get("containers") or []
    if not containers:
        return [Cause("spec.containers", "Required value", "FieldValueRequired")]
    causes = []
    names: set[str] = set()
    for index, container in enumerate(containers):
        where = f"spec.containers[{index}]"
        name = container.get("name")
        if not name:
            causes.append(Cause(f"{where}.name", "Required value", "FieldValueRequired"))
        elif name in names:
            why = f"Duplicate value: {_quote(name)}"
            causes.append(Cause(f"{where}.name", why, "FieldValueDuplicate"))
        names.add(name)
        if not container.get("image"):
            causes.append(Cause(f"{where}.image", "Required value", "FieldValueRequired"))
    return causes
