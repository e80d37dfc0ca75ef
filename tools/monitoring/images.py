"""The images of Prometheus and Grafana: pulled if a registry responds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from tools.cluster import debian
from tools.cluster.docker import Docker
from tools.cluster.errors import ToolError
from tools.cluster.node_image import registry_responds
from tools.cluster.progress import Progress
from tools.images.build import ensure_base

PROMETHEUS: Final = "prom/prometheus:v3.5.0"
GRAFANA: Final = "grafana/grafana:12.1.0"
LOCAL: Final = "slipway/prometheus:dev"
"""Image of Debian's Prometheus, for machines without a registry."""

_PULL_SECONDS: Final = 300.0
_PACKAGES: Final = (
    *("prometheus", "fonts-glyphicons-halflings", "libjs-bootstrap4", "libjs-d3"),
    *("libjs-eonasdan-bootstrap-datetimepicker", "libjs-jquery", "libjs-jquery-hotkeys"),
    *("libjs-moment", "libjs-moment-timezone", "libjs-mustache", "libjs-popper.js"),
    "libjs-rickshaw",
)
"""Debian's Prometheus, and the packages that its web pages link to."""
_DOCKERFILE: Final = """
FROM {base}
COPY usr /usr
ENTRYPOINT ["/usr/bin/prometheus"]
"""


def ensure_prometheus_image(docker: Docker, progress: Progress) -> str:
    """Return the image of Prometheus: the published one, or one built from Debian's package.

    Raises:
        ToolError: No registry responds, and this is not Debian.
    """
    if _pull(docker, PROMETHEUS, progress):
        return PROMETHEUS
    base = ensure_base(docker, progress)
    with tempfile.TemporaryDirectory() as folder, progress.step(f"Image {LOCAL}", "30 s"):
        for package in _PACKAGES:
            debian.extract_package(package, Path(folder))
        (Path(folder) / "Dockerfile").write_text(_DOCKERFILE.format(base=base))
        progress.run(["docker", "build", "--tag", LOCAL, folder], env=docker.environment())
    return LOCAL


def find_grafana_image(docker: Docker, progress: Progress) -> str | None:
    """Return the published image of Grafana, or None if it cannot be pulled."""
    return GRAFANA if _pull(docker, GRAFANA, progress) else None


def _pull(docker: Docker, image: str, progress: Progress) -> bool:
    if docker.has_image(image):
        return True
    if not registry_responds():
        return False
    with progress.step(f"Pulling {image}"):
        try:
            docker.read("pull", "--quiet", image, seconds=_PULL_SECONDS)
        except ToolError:
            return False
    return True
