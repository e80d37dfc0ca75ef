"""Decodes payloads according to their schema."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

import orjson
import pulsar
from pulsar.schema import AvroSchema, BytesSchema, Schema

from operators.pulsarconsumer.app.avro import Read, choose_reader
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.settings import SchemaType, Settings

_LONG_INTEGER: Final = re.compile(rb"[0-9]{19}")
"""Matches every JSON with an integer that does not fit into 64 bits, and others."""


class SchemaInvalid(Exception):
    """The schema definition is invalid or not supported."""


class DecodeFailed(Exception):
    """A payload does not match the schema."""


class JsonSchema(pulsar.schema.JsonSchema):  # type: ignore[misc]  # The client ships no types.
    """A schema that requests JSON and accepts any JSON; the schema of the client needs a class."""

    def __init__(self, definition: dict[str, Any]) -> None:
        """Initialize with the Avro definition, which the broker compares with the topic's."""
        super().__init__(SimpleNamespace(schema=lambda: definition))

    def encode(self, obj: object) -> bytes:
        """Return the JSON of an object."""
        return orjson.dumps(obj)

    def decode(self, data: bytes) -> object:
        """Return the object of JSON."""
        return orjson.loads(data)


class SchemaClient(Protocol):
    """The native client, which reads schemas from the broker."""

    def get_schema_info(self, topic: str, version: int) -> Any:
        """Return a version of the schema of a topic."""


class SchemaUnavailable(Exception):
    """The schema with which a message was written cannot be read now."""


class Payloads:
    """A decoder of the payloads of messages."""

    def __init__(self, settings: Settings) -> None:
        """Read the schema definition, if there is one.

        Raises:
            SchemaInvalid: schema_file cannot be read, or is not an Avro definition.
        """
        self._type = settings.schema_type
        self._writers: dict[tuple[str, int], tuple[Any, Read]] = {}
        self._decodes = self._type is not SchemaType.BYTES
        self._definition = _read_definition(settings.schema_file) if settings.schema_file else None
        self._parse = self._choose_parser()
        self._client: SchemaClient | None = None
        self.schema = _build_schema(self._type, self._definition)
        """The schema with which topics are consumed."""
        self.copies_schema = BytesSchema()
        """The schema with which the retry topic is consumed."""
        for schema in (self.schema, self.copies_schema):
            # The client calls this when it subscribes. Its own schema is not used to decode,
            # because it uses its own definition if it cannot read the writer's.
            schema.attach_client = self._attach_client

    def decode(self, message: Received) -> object:
        """Return the value of a message; None if the message deletes its key.

        Raises:
            DecodeFailed: The payload does not match the schema.
            SchemaUnavailable: The schema with which it was written cannot be read now.
        """
        data = message.data
        if not data and self.is_tombstone(data, message.raw):
            return None
        writer = None
        if self._type is SchemaType.AVRO:
            origin = message.origin
            if origin.schema_version >= 0:
                writer = self._find_writer(origin.topic, origin.schema_version)
        try:
            return self._parse(data) if writer is None else self._decode_avro(data, *writer)
        except Exception as err:  # noqa: BLE001  # Parsers raise many types.
            # The message of a parser may quote the payload, which may be secret.
            raise DecodeFailed(type(err).__name__) from None

    def _attach_client(self, client: SchemaClient) -> None:
        self._client = client

    def is_tombstone(self, data: bytes, raw: Any) -> bool:
        """Return whether a message has no value: in a compacted topic, it deletes its key.

        Args:
            data: The payload.
            raw: The message of the client.
        """
        if data or not self._decodes:
            return False
        has_fields = self._definition is None or bool(self._definition.get("fields"))
        if self._type is SchemaType.JSON or (self._type is SchemaType.AVRO and has_fields):
            return True  # An empty payload cannot be a value.
        return bool(raw.has_null_value())

    def _choose_parser(self) -> Callable[[bytes], object]:
        match self._type:
            case SchemaType.BYTES:
                return bytes
            case SchemaType.STRING:
                return bytes.decode
            case SchemaType.JSON:
                return _parse_json
            case SchemaType.AVRO:
                read = choose_reader(self._definition)
                return lambda data: read(BytesIO(data), self._definition)

    def _decode_avro(self, data: bytes, writer: Any, read: Read) -> object:
        reader: Any = self._definition
        # In Avro, records with different names do not match, but producers can choose any name.
        return read(BytesIO(data), {**writer, "name": reader["name"]}, reader)

    def _find_writer(self, topic: str, version: int) -> tuple[Any, Read]:
        """Return exactly the definition with which a message was written, never another one."""
        key = (topic, version)
        if key not in self._writers:
            if self._client is None:
                raise SchemaUnavailable(f"version {version} of the schema of {topic}: no client")
            try:
                info = self._client.get_schema_info(topic, version)
                writer = orjson.loads(info.schema())
                self._writers[key] = writer, choose_reader(writer)
            except Exception as err:
                raise SchemaUnavailable(
                    f"version {version} of the schema of {topic}: {type(err).__name__}: {err}"
                ) from err
        return self._writers[key]


def _parse_json(data: bytes) -> object:
    # orjson refuses the byte order mark, and returns longer integers as rounded floats.
    data = data.removeprefix(codecs.BOM_UTF8)
    value = orjson.loads(data)
    if not _LONG_INTEGER.search(data):
        return value
    return json.loads(data)  # security: orjson has accepted its depth


def _build_schema(kind: SchemaType, definition: dict[str, Any] | None) -> Schema:
    match kind:
        case SchemaType.JSON if definition:
            return JsonSchema(definition)
        case SchemaType.AVRO if definition:
            return AvroSchema(None, schema_definition=definition)
        case _:
            # Without a definition, the app accepts any payload, whatever schema the topic has. A
            # broker would refuse a schema on a topic that has messages without one.
            return BytesSchema()


def _read_definition(path: str) -> dict[str, Any]:
    try:
        definition = orjson.loads(Path(path).read_text())
    except (OSError, ValueError) as err:
        raise SchemaInvalid(f"{path}: {err}") from None
    if not isinstance(definition, dict) or not definition.get("name"):
        raise SchemaInvalid(f"{path}: is not an Avro record; it must be an object with a name")
    return definition
