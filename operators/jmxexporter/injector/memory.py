"""The memory that a container has left, as its control group shows it; reads only."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from operators.jmxexporter.injector.processes import Process, RootView

_UNLIMITED: Final = 1 << 60
"""Limits above this are none: version 1 of control groups writes a number near 2^63."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of one version of control groups, as a container sees them."""

    limit: str
    usage: str
    stat: str
    cache: str


_VERSIONS: Final = (
    _Files(
        limit="/sys/fs/cgroup/memory.max",
        usage="/sys/fs/cgroup/memory.current",
        stat="/sys/fs/cgroup/memory.stat",
        cache="inactive_file",
    ),
    _Files(
        limit="/sys/fs/cgroup/memory/memory.limit_in_bytes",
        usage="/sys/fs/cgroup/memory/memory.usage_in_bytes",
        stat="/sys/fs/cgroup/memory/memory.stat",
        cache="total_inactive_file",
    ),
)


def read_free_memory(process: Process) -> int | None:
    """Return the bytes that the container of a process has left below its limit.

    Pages of files that were not used lately count as free, as they do for the kubelet: the kernel
    drops them before it kills.

    Returns:
        The bytes; None without a limit, or if the container has no control groups mounted.
    """
    for files in _VERSIONS:
        with contextlib.suppress(OSError, ValueError):
            return _read(process.root, files)
    return None


def _read(root: RootView, files: _Files) -> int | None:
    text = root.resolve(files.limit).read_text().strip()
    stat = dict(
        line.split(maxsplit=1) for line in root.resolve(files.stat).read_text().splitlines()
    )
    limit = _UNLIMITED if text == "max" else int(text)
    # In version 1 the limit of the pod shows here too, and may be the lower one.
    limit = min(limit, int(stat.get("hierarchical_memory_limit", limit)))
    if limit >= _UNLIMITED:
        return None
    usage = int(root.resolve(files.usage).read_text())
    return max(0, limit - usage + int(stat.get(files.cache, 0)))
