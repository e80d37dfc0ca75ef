"""What the log shows of messages, and what not."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libs.common.redaction import is_sensitive_key
from operators.pulsarconsumer.app.core.lines import (
    Format,
    LineOptions,
    Payload,
    is_sampled,
    render_lines,
)
from slipway_handler import Message

NOW = datetime(2026, 11, 21, 8, 0, 0, 250_000, tzinfo=UTC).timestamp()
TOPIC = "persistent://public/default/t"


def render_line(options: LineOptions, message: Message) -> bytes:
    (line,) = render_lines(options, [message], NOW)
    return line


def render(message: Message, options: LineOptions | None = None) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(render_line(options or LineOptions(), message))
    return line


def build_message(data: bytes, value: object = None, **fields: Any) -> Message:
    return Message(data, data if value is None else value, TOPIC, "1:2:-1:0", **fields)


def test_line_tells_what_came() -> None:
    message = build_message(
        b"hello", key="k", properties={"a": "b"}, publish_time=1_700_000_000_000, attempt=2
    )

    assert render(message) == {
        "ts": "2026-11-21T08:00:00.250000Z",
        "level": "info",
        "logger": "message",
        "msg": "Received message",
        "topic": TOPIC,
        "message_id": "1:2:-1:0",
        "key": "k",
        "publish_time": 1_700_000_000_000,
        "attempt": 2,
        "properties": {"a": "b"},
        "size": 5,
        "payload": "hello",
    }


@given(st.binary(), st.sampled_from(list(Format)), st.sampled_from(list(Payload)))
def test_no_payload_can_forge_a_line(data: bytes, form: Format, payload: Payload) -> None:
    line = render_line(LineOptions(form, payload), build_message(data))

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@given(st.text(), st.integers(0, 20))
def test_cut_payload_is_the_beginning(text: str, most: int) -> None:
    line = render(build_message(text.encode()), LineOptions(Format.JSON, Payload.TRUNCATED, most))

    assert text.startswith(line["payload"])
    assert len(line["payload"].encode()) <= most
    assert line.get("truncated", False) == (len(text.encode()) > most)


def test_payload_that_is_no_text_is_told_in_base64() -> None:
    assert (
        render(build_message(b"\xff\x00"))["payload_base64"]
        == base64.b64encode(b"\xff\x00").decode()
    )


def test_hash_and_none_do_not_show_the_payload() -> None:
    message = build_message(b"secret")

    hashed = render(message, LineOptions(payload=Payload.HASH))
    assert hashed["payload_sha256"] == hashlib.sha256(b"secret").hexdigest()
    assert b"secret" not in render_line(LineOptions(payload=Payload.NONE), message)
    assert "payload" not in hashed


def test_chosen_and_suspicious_values_are_hidden() -> None:
    data = b'{"card": "4711", "inner": [{"CARD": "4712", "x": 1}]}'
    message = build_message(
        data, json.loads(data), properties={"Card": "4713", "apiToken": "4714", "a": "b"}
    )

    line = render_line(LineOptions(redacted=frozenset({"card"})), message).decode()

    assert "471" not in line
    assert json.loads(line)["properties"]["a"] == "b"
    assert json.loads(json.loads(line)["payload"])["inner"][0]["x"] == 1


@given(
    st.sets(st.sampled_from(["Card", "CARD", "apiToken", "a", "secret_name", "\u00c4"])),
    st.frozensets(st.sampled_from(["card", "a", "\u00e4"])),
    st.sampled_from(list(Format)),
)
def test_each_property_is_hidden_or_shown_by_its_name_alone(
    names: set[str], redacted: frozenset[str], form: Format
) -> None:
    properties = {name: f"canary-{number}" for number, name in enumerate(names)}

    line = render_line(
        LineOptions(form, redacted=redacted), build_message(b"", properties=properties)
    )

    for name, value in properties.items():
        hidden = name.lower() in redacted or is_sensitive_key(name)
        assert (value.encode() not in line) == hidden, name


def test_lines_of_messages_that_came_together_are_in_order_and_of_one_time() -> None:
    messages = [build_message(b"%d" % number) for number in range(3)]

    lines = [json.loads(line) for line in render_lines(LineOptions(), messages, NOW)]

    assert [line["payload"] for line in lines] == ["0", "1", "2"]
    assert {line["ts"] for line in lines} == {"2026-11-21T08:00:00.250000Z"}


def test_text_tells_the_same_on_one_line() -> None:
    line = render_line(LineOptions(Format.TEXT), build_message(b"a\nb", key="k"))

    assert line == (
        b'2026-11-21T08:00:00.250000Z Received message topic="persistent://public/default/t" '
        b'message_id="1:2:-1:0" key="k" publish_time=0 size=3 payload="a\\nb"\n'
    )


def test_sample_is_the_share_and_the_same_each_time() -> None:
    options = LineOptions(sample_ratio=0.25)
    ids = [f"{ledger}:{entry}:-1:0" for ledger in range(100) for entry in range(100)]

    chosen = [name for name in ids if is_sampled(options, name)]
    assert 0.22 < len(chosen) / len(ids) < 0.28
    assert chosen == [name for name in ids if is_sampled(options, name)]
    assert all(is_sampled(LineOptions(), name) for name in ids)
    assert not any(is_sampled(LineOptions(sample_ratio=0), name) for name in ids)
