"""Prometheus and promtool, unpacked from their Debian package and kept in the user cache.

The package is not installed: it would start a service. A build from the Go module would take many
minutes, because Prometheus depends on the clients of every cloud.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.cluster import commands, debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress, open_progress

PROMETHEUS_VARIABLE: Final = "SLIPWAY_PROMETHEUS"
"""Directory with `prometheus` and `promtool`, for a version of your own."""
_PACKAGE: Final = "prometheus"
_WEB: Final = Path("usr", "share", "prometheus", "web")


def ensure_prometheus(
    progress: Progress | None = None,
    cache: Cache | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Return a directory with `prometheus` and `promtool`, and with `web` if it is Debian's.

    Raises:
        ToolError: This is not Debian, or its archive does not respond.
    """
    if chosen := environ.get(PROMETHEUS_VARIABLE):
        directory = Path(chosen)
        if missing := [
            name for name in ("prometheus", "promtool") if not (directory / name).exists()
        ]:
            raise ToolError(f"{PROMETHEUS_VARIABLE}={chosen}: {', '.join(missing)} not found there")
        return directory
    cache = cache or Cache()
    # Debian replaces the version of a release only by security updates.
    key = digest_of(_PACKAGE, Path("/etc/debian_version"))
    if found := cache.find("prometheus", key):
        return found
    progress = progress or open_progress("prometheus", cache)

    def build(directory: Path) -> None:
        with progress.step("Prometheus from its Debian package", "20 MB, once"):
            _unpack(directory)

    return cache.ensure(
        "prometheus", key, build, lambda: progress.say("Waiting for another download of Prometheus")
    )


def _unpack(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        debian.extract_package(_PACKAGE, root)
        for name in ("prometheus", "promtool"):
            commands.read(["cp", root / "usr" / "bin" / name, directory])
        commands.read(["cp", "-a", root / _WEB, directory / "web"])
