"""What the kernel lets this process do, as far as containers depend on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_SYS_RESOURCE: Final = 24
"""Number of CAP_SYS_RESOURCE in capability(7)."""


def parse_bounding_set(status: str) -> int:
    """Return the bounding set in a `/proc/<pid>/status` text, or all capabilities."""
    match = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(match[1], 16) if match else -1


def lacks_sys_resource(status: str | None = None) -> bool:
    """Return whether CAP_SYS_RESOURCE, which stock runc requires, is not available here."""
    text = Path("/proc/self/status").read_text() if status is None else status
    return not parse_bounding_set(text) >> _SYS_RESOURCE & 1
