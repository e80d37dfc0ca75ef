"""JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from libs.common.testing.fakeapi.schema import FREE, Schema

type Patch = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A merge patch, or the operations of a JSON patch."""


class PatchError(Exception):
    """A patch does not fit the document.

    Attributes:
        unprocessable: Whether the server answers 422 rather than 400.
    """

    def __init__(self, message: str, *, unprocessable: bool = True) -> None:
        """Keep the message and how it is answered."""
        self.unprocessable = unprocessable
        super().__init__(message)


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """Return the document with a merge patch applied; null removes a key."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    out = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = apply_merge_patch(out.get(name), value)
    return out


def apply_json_patch(document: Any, operations: Any) -> Any:
    """Return the document with a JSON patch applied, all operations or none.

    Raises:
        PatchError: An operation is malformed, its path is missing, or a `test` fails.
    """
    if not isinstance(operations, Sequence) or isinstance(operations, str):
        raise PatchError(
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "[]handlers.jsonPatchOp",
            unprocessable=False,
        )
    document = orjson.loads(orjson.dumps(document))
    for operation in operations:
        document = _apply_operation(document, operation)
    return document


def _apply_operation(document: Any, operation: Mapping[str, Any]) -> Any:
    name = operation.get("op")
    if "path" not in operation:
        raise PatchError(f"{name} operation: missing path")
    path = _parse_pointer(operation.get("path", ""))
    match name:
        case "add":
            return _add(document, path, copy.deepcopy(operation.get("value")))
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            document, _ = _remove(document, path, verb="replace")
            return _add(document, path, copy.deepcopy(operation.get("value")))
        case "move":
            document, value = _remove(document, _parse_pointer(operation.get("from", "")))
            return _add(document, path, value)
        case "copy":
            value = _read(document, _parse_pointer(operation.get("from", "")))
            return _add(document, path, copy.deepcopy(value))
        case "test":
            return _test(document, path, operation)
    raise PatchError(f"Unexpected kind: {name}")


def _test(document: Any, path: list[str], operation: Mapping[str, Any]) -> Any:
    pointer = operation.get("path", "")
    holder = _read(document, path[:-1])
    # A key that is absent is null; a list or object above it must be there.
    absent = isinstance(holder, dict) and path and path[-1] not in holder
    value = None if absent else _read(document, path)
    wanted = operation.get("value")
    if value != wanted or isinstance(value, bool) is not isinstance(wanted, bool):
        raise PatchError(f"testing value {pointer} failed: test failed")
    return document


def _parse_pointer(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise PatchError(f"invalid pointer {pointer!r}: missing path")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _read(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(document, part)]
        else:
            raise PatchError(f"path /{'/'.join(path)}: missing path")
    return document


def _index(items: list[Any], part: str, *, end: int = -1) -> int:
    if not part.removeprefix("-").isdigit():
        raise PatchError(f"Unable to access invalid index: {part}")
    index = int(part)
    limit = len(items) + end
    # The real server counts from the end, which RFC 6902 knows nothing of.
    index = index + limit + 1 if index < 0 else index
    if index < 0 or index > limit:
        raise PatchError(f"Unable to access invalid index: {part}: missing value")
    return index


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    try:
        holder = _read(document, path[:-1])
    except PatchError as error:
        raise PatchError(
            f'add operation does not apply: doc is missing path: "/{"/".join(path)}": missing value'
        ) from error
    if isinstance(holder, dict):
        holder[path[-1]] = value
    elif isinstance(holder, list):
        index = len(holder) if path[-1] == "-" else _index(holder, path[-1], end=0)
        holder.insert(index, value)
    else:
        raise PatchError(
            f'add operation does not apply: doc is missing path: "/{"/".join(path)}": missing value'
        )
    return document


def _remove(document: Any, path: list[str], *, verb: str = "remove") -> tuple[Any, Any]:
    if not path:
        return None, document
    text = f"/{'/'.join(path)}"
    try:
        holder = _read(document, path[:-1])
        if isinstance(holder, list):
            return document, holder.pop(_index(holder, path[-1]))
        if verb == "replace":
            # The real server does not mind that there is nothing to replace.
            return document, holder.pop(path[-1], None)
        return document, holder.pop(path[-1])
    except (PatchError, KeyError, AttributeError) as error:
        what = "key" if verb == "replace" else "path"
        raise PatchError(
            f'{verb} operation does not apply: doc is missing {what}: "{text}": missing value'
        ) from error


def apply_strategic_patch(document: Any, patch: Any, schema: Schema) -> Any:
    """Return the document with a strategic merge patch applied.

    Lists with a merge key are merged by it; `$patch: delete` and `replace`, and
    `$deleteFromPrimitiveList` work. `$setElementOrder` and `$retainKeys` are ignored.
    """
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    out = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            target = name.partition("/")[2]
            out[target] = [item for item in out.get(target) or () if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            out.pop(name, None)
        else:
            out[name] = _patch_field(out.get(name), value, schema.field(name) or FREE)
    return out


def _patch_field(current: Any, value: Any, schema: Schema) -> Any:
    if not isinstance(value, list):
        return apply_strategic_patch(current, value, schema)
    if "merge" not in schema.raw.get("x-kubernetes-patch-strategy", ""):
        return copy.deepcopy(value)
    key = schema.raw.get("x-kubernetes-patch-merge-key")
    out = list(current or ())
    if not key:
        return out + [item for item in value if item not in out]
    if any(item.get("$patch") == "replace" for item in value):
        return [item for item in value if "$patch" not in item]
    for item in value:
        at = next((i for i, known in enumerate(out) if known.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            out = [known for known in out if known.get(key) != item.get(key)]
        elif at is None:
            out.append(copy.deepcopy(item))
        else:
            out[at] = apply_strategic_patch(out[at], item, schema.items)
    return out
