"""The handler of the soak of consumers: it records each call, and fails for poison."""

from __future__ import annotations

import json
import os
import random
import time

from slipway_handler import Message

_RECORD = os.open(os.environ.get("SOAK_RECORD", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(message: Message) -> None:
    """Record the call, work for some milliseconds, and fail for poison."""
    payload = json.loads(message.data)
    _record("begin", message, payload)
    time.sleep(random.uniform(0, 0.004))
    if payload["poison"]:
        raise ValueError("poison")
    _record("end", message, payload)


def _record(what: str, message: Message, payload: dict[str, object]) -> None:
    line = [
        what,
        time.time(),
        os.environ.get("SOAK_POD", ""),
        payload["number"],
        message.key,
        message.message_id,
    ]
    os.write(_RECORD, json.dumps([*line, message.attempt]).encode() + b"\n")
