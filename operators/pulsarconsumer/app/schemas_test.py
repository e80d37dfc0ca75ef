"""An Avro schema that cannot be read for a moment never decodes a message with another one."""

from __future__ import annotations

import json
from decimal import Decimal
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


def read_avro(definition: dict[str, Any], data: bytes, folder: Path) -> object:
    file = folder / "schema"
    file.write_text(json.dumps(definition))
    payloads = build_payloads("Avro", schema_file=file)
    origin = SimpleNamespace(topic=TOPIC, schema_version=-1)
    message: Any = SimpleNamespace(data=data, raw=build_raw(is_null=False), origin=origin)
    return payloads.decode(message)


def wrap(kind: object) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "value", "type": kind}]}


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "value", "type": "null"}]}
DECIMAL = {"logicalType": "decimal", "precision": 9}
RECURSIVE = [
    ["null", "Order"],
    {"type": "array", "items": "Order"},
    {**wrap(["null", "example.Order"]), "name": "Inner"},
    "Order",
]
COUNT = b"\xfe" + b"\xff" * 8 + b"\x01"
"""The largest number of values that an array can have."""


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        *((kind, b"\x02" * 1_000_000) for kind in RECURSIVE),
        *(
            ({"type": "array", "items": items}, COUNT)
            for items in ("null", EMPTY, {"type": "fixed", "name": "None", "size": 0})
        ),
        ([EMPTY, {"type": "array", "items": "Empty"}], b"\x02" + COUNT),
        ({**DECIMAL, "type": "bytes"}, b"\x80\x89\x7a" + b"\x7f" * 1_000_000),
        (
            {**DECIMAL, "type": "fixed", "name": "Large", "size": 1_000_000},
            b"\x7f" * 1_000_000,
        ),
    ],
)
def test_avro_that_would_end_or_occupy_the_process_is_a_failed_message(
    kind: object, data: bytes, tmp_path: Path
) -> None:
    with pytest.raises(DecodeFailed):
        read_avro(wrap(kind), data, tmp_path)


def test_avro_of_a_writer_whose_definition_contains_itself_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_text(json.dumps(wrap("int")))
    payloads = build_payloads("Avro", schema_file=file)
    writer = json.dumps(wrap(["null", "Order"]))
    client: Any = SimpleNamespace(get_schema_info=lambda *_: SimpleNamespace(schema=lambda: writer))
    payloads.schema.attach_client(client)
    origin = SimpleNamespace(topic=TOPIC, schema_version=1)
    message: Any = SimpleNamespace(data=b"\x02" * 1_000_000, raw=None, origin=origin)

    with pytest.raises(DecodeFailed):
        payloads.decode(message)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (["null", "Order"], {"value": {"value": {"value": None}}}),
        ({"type": "array", "items": "Order"}, {"value": [{"value": []}] * 3}),
        ({"type": "array", "items": ["null", "int"]}, {"value": [None] * 1000}),
        ({"type": "map", "values": "null"}, {"value": {"a": None}}),
        ([EMPTY, "int"], {"value": {"value": None}}),
        ({**DECIMAL, "type": "bytes"}, {"value": Decimal(123456789)}),
    ],
)
def test_ordinary_avro_is_read_in_full(kind: object, value: object, tmp_path: Path) -> None:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, wrap(kind), value)

    assert read_avro(wrap(kind), stream.getvalue(), tmp_path) == value
