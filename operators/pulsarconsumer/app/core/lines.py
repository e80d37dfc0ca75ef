"""Lines of the message log: what of a message is shown, and of which messages."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

import orjson

from libs.common.redaction import REDACTED, is_sensitive_key
from operators.pulsarconsumer.app.core.message import Message

_RANGE: Final = 1 << 32


class Format(StrEnum):
    """How a line is written."""

    JSON = "JSON"
    TEXT = "Text"


class Payload(StrEnum):
    """What is shown of the payload."""

    FULL = "Full"
    TRUNCATED = "Truncated"
    HASH = "Hash"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class LineOptions:
    """Say what the log shows.

    Attributes:
        format: JSON or text.
        payload: What is shown of the payload.
        max_payload_bytes: Where Truncated cuts.
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
    """Tell whether a message is logged; the same on each of its tries and in each consumer."""
    ratio = options.sample_ratio
    return ratio >= 1 or zlib.crc32(message_id.encode()) < ratio * _RANGE


def render_line(options: LineOptions, message: Message, now: float) -> bytes:
    """Render the line of a message, with its end, at a time in seconds since 1970."""
    second = int(now)
    fields: dict[str, object] = {
        "ts": f"{_render_second(second)}.{int((now - second) * 1_000_000):06d}Z",
        "level": "info",
        "logger": "message",
        "msg": "Received message",
        "topic": message.topic,
        "message_id": message.message_id,
    }
    if message.key:
        fields["key"] = message.key
    fields["publish_time"] = message.publish_time
    if message.attempt > 1:
        fields["attempt"] = message.attempt
    if properties := message.properties:
        fields["properties"] = {
            key: REDACTED if _is_hidden(options, key) else value
            for key, value in properties.items()
        }
    fields["size"] = len(message.data)
    fields |= _render_payload(options, message)
    if options.format is Format.JSON:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    return _render_text(fields)


@lru_cache(maxsize=8)
def _render_second(second: int) -> str:
    # A second has many messages.
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


def _is_hidden(options: LineOptions, name: str) -> bool:
    return name.lower() in options.redacted or _is_sensitive(name)


@lru_cache(maxsize=1024)
def _is_sensitive(name: str) -> bool:
    # Messages of one topic have few names of properties.
    return is_sensitive_key(name)


def _render_payload(options: LineOptions, message: Message) -> dict[str, object]:
    match options.payload:
        case Payload.NONE:
            return {}
        case Payload.HASH:
            return {"payload_sha256": hashlib.sha256(message.data).hexdigest()}
    data = message.data
    if options.redacted and isinstance(message.value, Mapping | list):
        hidden = _hide(message.value, options.redacted)
        data = orjson.dumps(hidden, default=str, option=orjson.OPT_NON_STR_KEYS)
    cut = options.payload is Payload.TRUNCATED and len(data) > options.max_payload_bytes
    if cut:
        data = data[: options.max_payload_bytes]
    shown: dict[str, object] = {"truncated": True} if cut else {}
    try:
        # A cut may go through a character.
        shown["payload"] = data.decode("utf-8", "ignore" if cut else "strict")
    except UnicodeDecodeError:
        shown["payload_base64"] = base64.b64encode(data).decode()
    return shown


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


def _render_text(fields: Mapping[str, object]) -> bytes:
    shown = {
        key: value for key, value in fields.items() if key not in ("ts", "level", "logger", "msg")
    }
    # Each value as JSON, so that no payload can forge a line.
    rest = " ".join(
        f"{key}={orjson.dumps(value, default=str).decode()}" for key, value in shown.items()
    )
    return f"{fields['ts']} {fields['msg']} {rest}\n".encode()
