"""The Java libraries in the jars of the jmxexporter operator."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from libs.common.kinds import Manifest

SOURCES: Final = Path(__file__).resolve().parents[2] / "operators/jmxexporter/guard"
_LICENSE: Final = "Apache-2.0"
"""The license of the collector, of the Prometheus client and of snakeyaml."""
_DEPENDENCY: Final = re.compile(
    r"<dependency>\s*<groupId>(?P<group>[^<]+)</groupId>"
    r"\s*<artifactId>(?P<name>[^<]+)</artifactId>"
    r"\s*<version>(?P<version>[^<]+)</version>"
)
_OURS: Final = "dev.slipway.jmx"
"""Group of the modules themselves, which are no libraries."""
_PROPERTY: Final = re.compile(r"<([\w.]+)>([^<]+)</\1>")


def list_jars(kit: Path) -> list[Manifest]:
    """Return a component for each jar of the image, with the libraries that it contains.

    Args:
        kit: The directory that tools.jvm builds.
    """
    bundled = {
        "agent": [],
        "engine": read_dependencies("engine", "collector"),
    }
    return [
        {
            "type": "file",
            "name": f"/kit/{name}.jar",
            "hashes": [
                {
                    "alg": "SHA-256",
                    "content": hashlib.sha256((kit / f"{name}.jar").read_bytes()).hexdigest(),
                }
            ],
            "components": libraries,
        }
        for name, libraries in bundled.items()
    ]


def read_dependencies(*modules: str) -> list[Manifest]:
    """Return the libraries that modules shade; the pom.xml of a module names each of them."""
    properties = dict(_PROPERTY.findall((SOURCES / "pom.xml").read_text()))
    texts = [(SOURCES / module / "pom.xml").read_text() for module in modules]
    found = [match for text in texts for match in _DEPENDENCY.finditer(text)]
    return [
        _build_library(
            match["group"],
            match["name"],
            re.sub(r"\$\{(.+?)\}", lambda name: properties[name[1]], match["version"]),
        )
        for match in found
        if match["group"] != _OURS
    ]


def _build_library(group: str, name: str, version: str) -> Manifest:
    return {
        "type": "library",
        "group": group,
        "name": name,
        "version": version,
        "purl": f"pkg:maven/{group}/{name}@{version}",
        "licenses": [{"license": {"id": _LICENSE}}],
    }
