"""Encodings of clients in other languages: what the proxy asks the API server for, and names. Pure.

client-go asks for protobuf, and newer clients for CBOR. The API server can answer everyone in JSON,
which the proxy understands. Only the bodies of requests keep their encoding: their names are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_ACCEPTED: Final = re.compile(r"application/(?:vnd\.kubernetes\.protobuf|cbor-seq|cbor)\b")
_STREAM: Final = re.compile(r";\s*stream=watch\b")
_PROTOBUF: Final = b"k8s\0"
_CBOR: Final = b"\xd9\xd9\xf7"
"""Magic bytes with which Kubernetes begins a body in CBOR."""
_RAW, _METADATA, _NAME, _GENERATE_NAME = 2, 1, 1, 2
"""Numbers of protobuf fields: of `Unknown`, of nearly all kinds, and of `ObjectMeta`."""
_BREAK: Final = object()


def accept_json(accept: str) -> str:
    """Return an Accept header that asks for JSON instead of protobuf or CBOR."""
    return _STREAM.sub("", _ACCEPTED.sub("application/json", accept))


def find_name(body: bytes) -> str:
    """Return the name of the object in a body in protobuf or CBOR, or what it is generated from.

    A body in another encoding, or an incomplete body, has no name.
    """
    try:
        if body.startswith(_PROTOBUF):
            metadata = _read_message(_read_message(body[len(_PROTOBUF) :]).get(_RAW, b""))
            names = _read_message(metadata.get(_METADATA, b""))
            return (names.get(_NAME) or names.get(_GENERATE_NAME) or b"").decode()
        if body.startswith(_CBOR):
            value, _ = _read_cbor(body, 0)
            metadata = value.get("metadata") or {}
            return str(metadata.get("name") or metadata.get("generateName") or "")
    except (AttributeError, IndexError, UnicodeDecodeError, ValueError):
        pass
    return ""


def _read_message(data: bytes) -> Mapping[int, bytes]:
    """Return the fields of a protobuf message that have a length; the last one of each number."""
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        match tag & 7:
            case 0:
                _, at = _read_varint(data, at)
            case 1:
                at += 8
            case 2:
                size, at = _read_varint(data, at)
                fields[tag >> 3] = data[at : at + size]
                at += size
            case 5:
                at += 4
            case _:
                raise ValueError(f"unknown wire type {tag & 7}")
    return fields


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _read_cbor(data: bytes, at: int) -> tuple[Any, int]:
    """Decode a value of CBOR; texts and byte strings are both texts, as Kubernetes writes them."""
    major, low = data[at] >> 5, data[at] & 31
    at += 1
    argument = low
    if 24 <= low <= 27:
        size = 1 << low - 24
        argument, at = int.from_bytes(data[at : at + size]), at + size
    endless = low == 31
    if endless and major == 7:
        return _BREAK, at
    match major:
        case 2 | 3 if not endless:
            return data[at : at + argument].decode(errors="replace"), at + argument
        case 2 | 3 | 4 | 5:
            items: list[Any] = []
            while endless or len(items) < argument * (2 if major == 5 else 1):
                item, at = _read_cbor(data, at)
                if item is _BREAK:
                    break
                items.append(item)
            if major == 5:
                return dict(zip(items[::2], items[1::2], strict=True)), at
            return (items if major == 4 else "".join(items)), at
        case 6:
            return _read_cbor(data, at)
    return argument, at
