"""Payloads by their schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pulsar
from pulsar.schema import AvroSchema, BytesSchema, Schema

from operators.pulsarconsumer.app.settings import SchemaType, Settings


class SchemaInvalid(Exception):
    """The definition of the schema is not what the app takes."""


class DecodeFailed(Exception):
    """A payload is not what the schema says."""


class JsonSchema(Schema):  # type: ignore[misc]  # The client ships no types.
    """Ask the broker for JSON by a definition, and take any JSON; the client's needs a class."""

    def __init__(self, definition: dict[str, Any]) -> None:
        """Take the Avro definition that the broker compares with the topic's."""
        kind = pulsar._pulsar.SchemaType.JSON  # noqa: SLF001  # The client has it nowhere else.
        super().__init__(dict, kind, definition, "JSON")

    def encode(self, obj: object) -> bytes:
        """Return the JSON of an object."""
        return orjson.dumps(obj)

    def decode(self, data: bytes) -> object:
        """Return the object of JSON."""
        return orjson.loads(data)


class Payloads:
    """Take payloads out of messages."""

    def __init__(self, settings: Settings) -> None:
        """Read the definition, where there is one.

        Raises:
            SchemaInvalid: schema_file cannot be read, or is no Avro definition.
        """
        self._type = settings.schema_type
        self.decodes = self._type is not SchemaType.BYTES
        """Whether a value is anything but the payload itself."""
        self.schema = _build_schema(settings)

    def decode(self, message: pulsar.Message, topic: str, version: int) -> object:
        """Return what a message holds.

        Args:
            message: As received, perhaps a copy from the retry topic.
            topic: The topic that it was first sent to.
            version: The version of that topic's schema that it was written with.

        Raises:
            DecodeFailed: The payload is not what the schema says.
        """
        try:
            match self._type:
                case SchemaType.BYTES:
                    return message.data()
                case SchemaType.STRING:
                    return message.data().decode()
                case SchemaType.JSON:
                    return orjson.loads(message.data())
                case SchemaType.AVRO:
                    # By the definition that the producer had, which the client asks for.
                    written = Written(message.data(), topic, version, message.message_id())
                    return self.schema.decode_message(written)
        except Exception as err:  # noqa: BLE001  # Whatever a parser raises.
            # What a parser says may quote the payload, which may be secret.
            raise DecodeFailed(type(err).__name__) from None


@dataclass(frozen=True, slots=True)
class Written:
    """Show the client's decoder a message as it was first written."""

    payload: bytes
    topic: str
    version: int
    id: object

    def data(self) -> bytes:
        """Return the payload."""
        return self.payload

    def topic_name(self) -> str:
        """Return the topic that it was first sent to."""
        return self.topic

    def int_schema_version(self) -> int:
        """Return the version of that topic's schema."""
        return self.version

    def message_id(self) -> object:
        """Return the id, which the decoder shows in its log."""
        return self.id


def version_of(message: pulsar.Message) -> int:
    """Return the version of the topic's schema that a message was written with; -1 for none."""
    version: int = message._message.int_schema_version()  # noqa: SLF001  # Only as text elsewhere.
    return version


def _build_schema(settings: Settings) -> Schema:
    definition = _read_definition(settings.schema_file) if settings.schema_file else None
    match settings.schema_type:
        case SchemaType.JSON if definition:
            return JsonSchema(definition)
        case SchemaType.AVRO if definition:
            return AvroSchema(None, schema_definition=definition)
        case _:
            # Without a definition the app takes what comes, whatever the topic declares; a broker
            # would refuse a schema on a topic that has messages without one.
            return BytesSchema()


def _read_definition(path: str) -> dict[str, Any]:
    try:
        definition = json.loads(Path(path).read_text())
    except (OSError, ValueError) as err:
        raise SchemaInvalid(f"{path}: {err}") from None
    if not isinstance(definition, dict) or not definition.get("name"):
        raise SchemaInvalid(f"{path}: is no Avro record; it must be an object with a name")
    return definition
