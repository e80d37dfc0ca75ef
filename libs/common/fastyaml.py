"""YAML by libyaml, about ten times as fast as PyYAML's own parser, without unsafe types.

PyYAML takes 0.1 s to parse one of the CRDs. If PyYAML was built without libyaml, its own parser and
emitter are used: same results, but slower.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_INTEGER: Final = "tag:yaml.org,2002:int"
_NUMBERS: Final = {
    _INTEGER: re.compile(r"[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$"
    ),
}
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"

DEEPEST: Final = 100
"""Maximum number of levels of a text that others wrote."""
LONGEST: Final = 3 * 2**20
"""Maximum number of characters of a text that others wrote, and of the values of its aliases: an
API server takes no longer request."""
MOST: Final = 100_000
"""Maximum number of values and documents of a text that others wrote: each takes microseconds."""
_LONGEST_INTEGER: Final = 20
"""Maximum number of characters of an integer."""
_PUNCTUATION: Final = 4
"""Characters around a value: quotes and separators."""


class _KubernetesLoader(_LOADER):  # type: ignore[misc, valid-type]
    """A loader that resolves plain scalars as kubectl does: dates and `22:22` are strings."""

    yaml_implicit_resolvers: Final = {
        first: [(tag, _NUMBERS.get(tag, found)) for tag, found in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
    }


def load(text: str) -> Any:
    """Parse one document; return None if the text is empty.

    Raises:
        yaml.YAMLError: The text is not YAML, contains several documents, or uses unsafe types.
    """
    loader = _LOADER(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def load_all(text: str) -> Iterator[Any]:
    """Parse the documents of a stream without the empty ones.

    Raises:
        yaml.YAMLError: The text is not YAML, or uses unsafe types.
    """
    yield from _read(_LOADER(text))


def load_untrusted(text: str) -> list[Any]:
    """Parse the documents of a stream that others wrote, as kubectl does, without the empty ones.

    The depth and the expanded size are checked before anything is composed: libyaml composes nested
    values by recursion in C, which ends the process, and a short text can contain many aliases of a
    long value. Explicit tags may still give values that JSON does not have.

    Raises:
        yaml.YAMLError: The text is not YAML, uses unsafe types, or exceeds a limit.
    """
    try:
        _check_limits(text)
        return list(_read(_KubernetesLoader(text)))
    except (ValueError, AttributeError, LookupError, ArithmeticError, TypeError) as err:
        # PyYAML does not check the text of a scalar that has an explicit tag.
        raise yaml.YAMLError(str(err)) from err


@dataclass(slots=True)
class _Size:
    """Expanded size of a value: characters with their punctuation, and levels of nesting."""

    length: int = _PUNCTUATION
    levels: int = 1
    anchor: str | None = None


def _check_limits(text: str) -> None:
    """Check depth and expanded size of a stream by its events, which needs no recursion."""
    if len(text) > LONGEST:
        raise TooLarge(f"the text is longer than {LONGEST} characters")
    total = values = 0
    anchors: dict[str, _Size] = {}
    open_values: list[_Size] = []
    for event in yaml.parse(text, Loader=_LOADER):
        values += isinstance(event, yaml.NodeEvent | yaml.DocumentStartEvent)
        if values > MOST:
            raise TooLarge(f"the text has more than {MOST} values and documents")
        if isinstance(event, yaml.CollectionStartEvent):
            open_values.append(_Size(anchor=event.anchor))
            closed = _Size(0, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = open_values.pop()
        elif isinstance(event, yaml.ScalarEvent):
            _check_scalar(event)
            closed = _Size(len(event.value) + _PUNCTUATION, 0, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            # An alias inside its own value is not in the map yet.
            if event.anchor not in anchors:
                raise TooLarge("an alias names no complete value")
            closed = anchors[event.anchor]
            total += closed.length
        else:
            continue
        if closed.anchor is not None:
            anchors[closed.anchor] = closed
        if len(open_values) + closed.levels > DEEPEST:
            raise TooLarge(f"values are nested deeper than {DEEPEST} levels")
        if open_values:
            parent = open_values[-1]
            parent.length += closed.length
            parent.levels = max(parent.levels, closed.levels + 1)
        if total > LONGEST:
            raise TooLarge(f"the text expands to more than {LONGEST} characters")


def _check_scalar(event: yaml.ScalarEvent) -> None:
    # Larger integers can be chosen so that all have the same hash, and a map of them takes minutes.
    # Sexagesimal integers, which need a tag, take quadratic time.
    is_integer = event.tag == _INTEGER or (
        event.implicit[0] and _NUMBERS[_INTEGER].match(event.value)
    )
    if is_integer and len(event.value) > _LONGEST_INTEGER:
        raise TooLarge("an integer does not fit into 64 bits; put it in quotes")


class TooLarge(yaml.YAMLError):
    """The text exceeds a limit; the message names the limit."""


def _read(loader: Any) -> Iterator[Any]:
    try:
        while loader.check_data():
            document = loader.get_data()
            if document is not None:
                yield document
    finally:
        loader.dispose()


def dump(value: Any) -> str:
    """Render a document in block style, with keys in their order."""
    text: str = yaml.dump(value, Dumper=_DUMPER, sort_keys=False)
    return text
