"""Replacement of what differs between two runs: UIDs, times and the hashes in names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

type Replacement = tuple[re.Pattern[str], str]
"""A pattern and the text that replaces each match."""

UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
"""A time in UTC, as in the metadata and the status of objects."""
UIDS: Final[Replacement] = (UID, "uid")
TIMES: Final[Replacement] = (TIME, "time")


def blur_hashes(*names: str) -> Replacement:
    """Build the replacement of the hash after a name: `web-root-0a1b2c3d` to `web-root-hash`."""
    return re.compile(rf"\b({'|'.join(map(re.escape, names))})-[0-9a-f]{{8}}\b"), r"\1-hash"


def blur(text: str, replacements: Iterable[Replacement]) -> str:
    """Return a text in which each replacement was made, in their order."""
    for pattern, word in replacements:
        text = pattern.sub(word, text)
    return text
