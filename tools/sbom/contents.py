"""What an image contains in addition to Python packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from libs.common.kinds import Manifest
from tools.cluster.cache import Cache
from tools.cluster.progress import Progress
from tools.images.base import BASE_VARIABLE, build_archive
from tools.jvm.kit import ensure_kit
from tools.sbom.debian import list_packages
from tools.sbom.maven import list_jars

_JAVA: Final = "jmxexporter"


def list_contents(
    image: str, progress: Progress, environ: Mapping[str, str] = os.environ
) -> list[Manifest]:
    """Return the Debian packages of the base, and the jars if the image has any.

    With another base image (BASE_VARIABLE) its packages are unknown, and none are returned.

    Raises:
        ToolError: The base or the jars are not built, and cannot be built on this machine.
    """
    found: list[Manifest] = []
    if not environ.get(BASE_VARIABLE):
        found += list_packages(build_archive(Cache(), progress))
    if image == _JAVA:
        found += list_jars(ensure_kit(progress))
    return found
