"""Kinds of children that a bare API server takes. Pure."""

from __future__ import annotations

from typing import Final

from libs.common import kinds
from libs.common.kinds import Kind, Manifest

_KNOWN: Final = {
    (value.api_version, value.kind): value
    for value in vars(kinds).values()
    if isinstance(value, Kind)
}


def kind_of_child(manifest: Manifest) -> Kind | None:
    """Return the kind of a child; None for one that a bare API server does not serve."""
    return _KNOWN.get((manifest["apiVersion"], manifest["kind"]))
