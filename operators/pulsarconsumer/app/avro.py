"""Reads Avro values that anyone may have written who can publish to the topic. Pure.

The reader of fastavro in C has no limit. A definition that contains itself ends the process with
a message of 5 kB, and arrays of values without bytes fill its memory with one of 10 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import fastavro
from fastavro import _read_py

_DECIMAL: Final = 1024
"""Most bytes of a decimal number; converting one of 1 MB takes minutes."""

type Read = Callable[..., object]


def choose_reader(definition: object) -> Read:
    """Return the reader for values with a definition; the one in Python ends deep recursion."""
    definitions = _Definitions()
    try:
        definitions.measure(definition, ())
    except RecursionError:
        return _refuse
    if definitions.has_endless_array:
        return _refuse
    return _read_py.schemaless_reader if definitions.is_recursive else fastavro.schemaless_reader


class _Definitions:
    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self.is_recursive = False
        self.has_endless_array = False

    def measure(self, definition: Any, above: tuple[str, ...]) -> int:
        """Return 0 if values may have no bytes, otherwise 1."""
        match definition:
            case "null":
                return 0
            case str():
                name = definition.rpartition(".")[2]
                self.is_recursive |= name in above
                return self._sizes.get(name, 1)
            case list():
                for each in definition:
                    self.measure(each, above)
            case {"type": "record" | "error", "name": str(), "fields": list()}:
                inner = (*above, definition["name"].rpartition(".")[2])
                sizes = [self.measure(field, inner) for field in definition["fields"]]
                return self._define(inner[-1], max(sizes, default=0))
            case {"type": "fixed", "name": str()}:
                size = min(1, definition.get("size", 0))
                return self._define(definition["name"].rpartition(".")[2], size)
            case {"type": "array"}:
                self.has_endless_array |= not self.measure(definition.get("items"), above)
            case {"type": "map"}:
                self.measure(definition.get("values"), above)
            case {"type": kind}:
                return self.measure(kind, above)
        return 1

    def _define(self, name: str, size: int) -> int:
        # Namespaces are ignored: names that differ only in them count as one.
        self._sizes[name] = min(size, self._sizes.get(name, 1))
        return size


def _refuse(*_: object) -> object:
    raise ValueError


def _bound(read: Read) -> Read:
    def read_bounded(data: bytes, *schemas: object) -> object:
        if len(data) > _DECIMAL:
            raise ValueError
        return read(data, *schemas)

    return read_bounded


for _name in ("bytes-decimal", "fixed-decimal"):
    fastavro.read.LOGICAL_READERS[_name] = _bound(fastavro.read.LOGICAL_READERS[_name])
