"""Lines of the message log: selects messages, and renders their parts."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

import orjson

from libs.common.redaction import REDACTED, is_sensitive_key
from slipway_handler import Message

_RANGE: Final = 1 << 32


class Format(StrEnum):
    """Format of a line."""

    JSON = "JSON"
    TEXT = "Text"


class Payload(StrEnum):
    """The part of the payload that is shown."""

    FULL = "Full"
    TRUNCATED = "Truncated"
    HASH = "Hash"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class LineOptions:
    """The options of the log of messages.

    Attributes:
        format: JSON or text.
        payload: Part of the payload that is shown.
        max_payload_bytes: Size to which Truncated cuts the payload.
        redacted: Names of properties and of fields in the payload whose values are hidden, in
            lower case.
        sample_ratio: Share of the messages that are logged, from 0 to 1.
    """

    format: Format = Format.JSON
    payload: Payload = Payload.FULL
    max_payload_bytes: int = 1024
    redacted: frozenset[str] = frozenset()
    sample_ratio: float = 1.0


def is_sampled(options: LineOptions, message_id: str) -> bool:
    """Return whether a message is logged; the same at each attempt and in each consumer."""
    ratio = options.sample_ratio
    return ratio >= 1 or zlib.crc32(message_id.encode()) < ratio * _RANGE


def render_lines(options: LineOptions, messages: Iterable[Message], now: float) -> list[bytes]:
    """Render a line, with its end, of each message that came at a time in seconds since 1970."""
    second = int(now)
    shown = datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()
    time = f"{shown}.{int((now - second) * 1_000_000):06d}Z"
    render = _render_json if options.format is Format.JSON else _render_text
    return [render(_collect(options, message, time)) for message in messages]


def _collect(options: LineOptions, message: Message, time: str) -> dict[str, object]:
    fields: dict[str, object] = {
        "ts": time,
        "level": "info",
        "logger": "message",
        "msg": "Received message",
        "topic": message.topic,
        "message_id": message.message_id,
    }
    if key := message.key:
        fields["key"] = key
    fields["publish_time"] = message.publish_time
    if (attempt := message.attempt) > 1:
        fields["attempt"] = attempt
    if properties := message.properties:
        hidden = _find_hidden(options.redacted, tuple(properties))
        fields["properties"] = {**properties, **hidden} if hidden else properties
    data = message.data
    fields["size"] = len(data)
    if options.payload is Payload.FULL and not options.redacted:
        _show(fields, data)
    else:
        _show_part(fields, options, message)
    return fields


@lru_cache(maxsize=128)
def _find_hidden(redacted: frozenset[str], names: tuple[str, ...]) -> dict[str, str]:
    """Return replacements of hidden properties; cached, as topics have few sets of names."""
    return {name: REDACTED for name in names if name.lower() in redacted or is_sensitive_key(name)}


def _show_part(fields: dict[str, object], options: LineOptions, message: Message) -> None:
    data = message.data
    match options.payload:
        case Payload.NONE:
            return
        case Payload.HASH:
            fields["payload_sha256"] = hashlib.sha256(data).hexdigest()
            return
    if options.redacted and isinstance(message.value, Mapping | list):
        hidden = _hide(message.value, options.redacted)
        data = orjson.dumps(hidden, default=str, option=orjson.OPT_NON_STR_KEYS)
    if options.payload is Payload.TRUNCATED and len(data) > options.max_payload_bytes:
        fields["truncated"] = True
        # The cut may split a character.
        _show(fields, data[: options.max_payload_bytes], "ignore")
    else:
        _show(fields, data)


def _show(fields: dict[str, object], data: bytes, errors: str = "strict") -> None:
    try:
        fields["payload"] = data.decode("utf-8", errors)
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(data).decode()


def _hide(value: object, names: frozenset[str]) -> object:
    match value:
        case Mapping():
            return {
                key: REDACTED if str(key).lower() in names else _hide(item, names)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_hide(item, names) for item in value]
        case _:
            return value


def _render_json(fields: Mapping[str, object]) -> bytes:
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _render_text(fields: Mapping[str, object]) -> bytes:
    shown = {
        key: value for key, value in fields.items() if key not in ("ts", "level", "logger", "msg")
    }
    # Each value is rendered as JSON, so that a payload cannot forge a line.
    rest = " ".join(
        f"{key}={orjson.dumps(value, default=str).decode()}" for key, value in shown.items()
    )
    return f"{fields['ts']} {fields['msg']} {rest}\n".encode()
