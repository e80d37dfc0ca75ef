"""YAML by libyaml, about ten times as fast as PyYAML's own parser, without unsafe types.

PyYAML takes 0.1 s to parse one of the CRDs. If PyYAML was built without libyaml, its own parser and
emitter are used: same results, but slower.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NUMBERS: Final = {
    "tag:yaml.org,2002:int": re.compile(
        r"[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"
    ),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$"
    ),
}
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


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


def load_manifests(text: str) -> Iterator[Any]:
    """Parse the documents of a stream as kubectl does, without the empty ones.

    Explicit tags may still give values that JSON does not have.

    Raises:
        yaml.YAMLError: The text is not YAML, or uses unsafe types.
    """
    try:
        yield from _read(_KubernetesLoader(text))
    except (ValueError, AttributeError) as err:
        # PyYAML does not check the text of a scalar that has an explicit tag.
        raise yaml.YAMLError(str(err)) from err


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
