"""Request bodies in protobuf, as kubectl create, helm and client-go send them.

Only requests are decoded; clients that send protobuf accept JSON. `protobuf.json` has the fields.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from libs.common.kinds import Manifest

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_SIGN: Final = 1 << 63
_BITS: Final = 64


def decode_protobuf(raw: bytes) -> Manifest:
    """Decode a request body.

    Raises:
        ValueError: It is not an object of a known kind.
    """
    if not raw.startswith(_MAGIC):
        raise ValueError("the body has no magic number of Kubernetes")
    envelope = dict(_fields(raw[len(_MAGIC) :]))
    about = {number: value.decode() for number, value in _fields(envelope.get(1, b""))}
    api_version, kind = about.get(1, ""), about.get(2, "")
    name = _find_message(api_version, kind)
    return {"apiVersion": api_version, "kind": kind, **_decode(envelope.get(2, b""), name)}


def _find_message(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    package = group.partition(".")[0] or "core"
    for name in (f"io.k8s.api.{package}.{version}.{kind}", _META + kind):
        if name in _load():
            return name
    raise ValueError(f"no protobuf is known of {kind} in {api_version}")


@cache
def _load() -> dict[str, dict[str, list[str]]]:
    loaded: dict[str, dict[str, list[str]]] = orjson.loads(
        Path(__file__).with_name("protobuf.json").read_bytes()
    )
    return loaded


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the raw value of each field."""
    at = 0
    while at < len(raw):
        key, at = _read_varint(raw, at)
        match key & 7:
            case 0:
                value, at = _read_varint(raw, at)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _read_varint(raw, at)
            case 5:
                length = 4
            case other:
                raise ValueError(f"wire type {other} is not used by Kubernetes")
        if at + length > len(raw):
            raise ValueError("unexpected end of a field")
        yield key >> 3, raw[at : at + length]
        at += length


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw) or shift >= _BITS:
            raise ValueError("unexpected end of a number")
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _decode(raw: bytes, name: str) -> Manifest:
    known = _load().get(name, {})
    out: Manifest = {}
    for number, value in _fields(raw):
        field, kind = known.get(str(number), ("", ""))
        if not field:
            continue
        mark, bare = (kind[0], kind[1:]) if kind[0] in "[{+?" else ("", kind)
        if mark == "+":
            out.update(_decode(value, bare))
        elif mark == "[":
            out.setdefault(field, []).append(_value(value, bare))
        elif mark == "{":
            pair = dict(_fields(value))
            key = pair.get(1, b"").decode()
            out.setdefault(field, {})[key] = _value(pair.get(2, b""), bare)
        else:
            decoded = _value(value, bare)
            # Go sends zeros of fields that are no pointers, and leaves them out of JSON.
            if decoded is not None and (decoded or mark == "?"):
                out[field] = decoded
    return out


def _value(value: Any, kind: str) -> Any:
    match kind:
        case "string":
            return value.decode()
        case "int":
            return value - 2 * _SIGN if value & _SIGN else value
        case "bool":
            return bool(value)
        case "bytes":
            return base64.b64encode(value).decode()
    return _SPECIAL[kind](value) if kind in _SPECIAL else _decode(value, kind)


def _quantity(raw: bytes) -> str:
    return str(dict(_fields(raw)).get(1, b"0").decode())


def _int_or_string(raw: bytes) -> Any:
    fields = dict(_fields(raw))
    return fields.get(3, b"").decode() if fields.get(1) else _value(fields.get(2, 0), "int")


def _time(raw: bytes) -> str | None:
    fields = dict(_fields(raw))
    if not fields.get(1):
        return None
    moment = datetime.fromtimestamp(_value(fields[1], "int"), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(raw: bytes) -> str | None:
    whole, nanos = _time(raw), dict(_fields(raw)).get(2, 0)
    return whole and f"{whole[:-1]}.{nanos // 1000:06}Z"


def _raw_json(raw: bytes) -> Any:
    return orjson.loads(dict(_fields(raw)).get(1, b"null"))


_SPECIAL: Final = {
    _QUANTITY: _quantity,
    _INT_OR_STRING: _int_or_string,
    _META + "Time": _time,
    _META + "MicroTime": _micro_time,
    _META + "FieldsV1": _raw_json,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _raw_json,
}
"""Messages with a form of their own in JSON."""
