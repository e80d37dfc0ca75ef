"""An Avro schema that cannot be read for a moment never decodes a message with another one."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pulsar
import pytest

from operators.pulsarconsumer.app.harness import build_environment
from operators.pulsarconsumer.app.schemas import DecodeFailed, Payloads, SchemaUnavailable
from operators.pulsarconsumer.app.settings import load_settings

TOPIC = "persistent://public/default/orders"


def build_schema(*fields: str) -> dict[str, Any]:
    listed = [{"name": name, "type": "string"} for name in fields]
    return {"type": "record", "name": "Order", "fields": listed}


READER, WRITER = build_schema("order", "customer"), build_schema("customer", "order")
VALUE = {"customer": "alice", "order": "42"}


class Client:
    """A client that cannot read schemas for a while."""

    def __init__(self) -> None:
        self.fails, self.calls = True, 0

    def get_schema_info(self, topic: str, version: int) -> Any:
        self.calls += 1
        assert (topic, version) == (TOPIC, 3)
        if self.fails:
            raise pulsar.Timeout("no response")
        return SimpleNamespace(schema=lambda: json.dumps(WRITER))


def test_schema_that_cannot_be_read_is_an_error_and_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_text(json.dumps(READER))
    environ = build_environment("pulsar://a", TOPIC, schema_type="Avro", schema_file=file)
    client = Client()
    payloads = Payloads(load_settings(environ))
    payloads.schema.attach_client(client)  # As the client does when it subscribes.
    stream = BytesIO()
    fastavro.schemaless_writer(stream, WRITER, VALUE)
    origin = SimpleNamespace(topic=TOPIC, schema_version=3)
    message: Any = SimpleNamespace(data=stream.getvalue(), raw=None, origin=origin)

    for _ in range(2):
        with pytest.raises(SchemaUnavailable, match="version 3"):
            payloads.decode(message)
    client.fails = False
    for _ in range(2):
        assert payloads.decode(message) == VALUE
    assert client.calls == 3, "a schema that was read is kept"


def build_payloads(kind: str, **values: object) -> Payloads:
    return Payloads(
        load_settings(build_environment("pulsar://a", TOPIC, schema_type=kind, **values))
    )


def build_raw(*, is_null: bool) -> Any:
    return SimpleNamespace(has_null_value=lambda: is_null)


@pytest.mark.parametrize(
    ("kind", "data", "is_null", "expected"),
    [
        ("JSON", b"", False, True),  # A payload that only clients in Python can send.
        ("JSON", b"", True, True),
        ("JSON", b"null", False, False),
        ("String", b"", False, False),
        ("String", b"", True, True),
        ("Bytes", b"", True, False),
    ],
)
def test_message_without_a_value_is_a_tombstone(
    kind: str, data: bytes, is_null: bool, expected: bool
) -> None:
    assert build_payloads(kind).is_tombstone(data, build_raw(is_null=is_null)) is expected


def test_json_keeps_long_integers_and_may_have_a_byte_order_mark() -> None:
    payloads = build_payloads("JSON")

    def parse(data: bytes) -> object:
        message: Any = SimpleNamespace(data=data, raw=build_raw(is_null=False))
        return payloads.decode(message)

    assert parse(b"\xef\xbb\xbf[1]") == [1]
    assert parse(b"[18446744073709551616, -9223372036854775809]") == [2**64, -(2**63) - 1]
    assert parse(b"") is None
    for invalid in (b"NaN", b"[1234567890123456789012, NaN]"):
        with pytest.raises(DecodeFailed, match="JSONDecodeError"):
            parse(invalid)
