"""Canaries: secret texts of a trial, and the search for leaks of them. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

_SHORTEST: Final = 12
_OFFSETS: Final = 3


def build_canary(trial: str, purpose: str = "token") -> str:
    """Build a unique text with special characters, which encodings change."""
    return f"canary/{purpose}+{trial}=="


def find_leaks(text: str, canaries: Iterable[str], where: str) -> list[str]:
    """Find canaries in a text, whether plain, URL-encoded or in base64."""
    return [
        f"{where} shows {canary.partition('+')[0]} in the form {form}"
        for canary in canaries
        for form, shape in _shapes_of(canary)
        if shape in text
    ]


def _shapes_of(canary: str) -> list[tuple[str, str]]:
    shapes = [("plain", canary), ("url", quote(canary, safe=""))]
    # How base64 renders a text depends on what stands before it: three shapes, less their ends.
    for offset in range(_OFFSETS):
        encoded = base64.b64encode(b"\0" * offset + canary.encode()).decode()
        shape = encoded[4 if offset else 0 :].rstrip("=")[:-2]
        if len(shape) >= _SHORTEST:
            shapes.append(("base64", shape))
    return shapes
