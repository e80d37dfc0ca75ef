"""Document: a bill of materials in CycloneDX 1.6, the same bytes for the same lock."""

from __future__ import annotations

from typing import Final
from uuid import NAMESPACE_URL, uuid5

from libs.common.kinds import Manifest
from tools.images.base import PACKAGES, SUITE
from tools.sbom.closure import LOCK, Pin, find_distributions, license_of, read_lock

_FORMAT: Final = "1.6"


def build_document(operator: str) -> Manifest:
    """Build the bill of an operator: Python packages with hashes, and what the base is made of.

    Raises:
        ValueError: The process can import a package that is not in the lock.
    """
    text = LOCK.read_text()
    pins = read_lock(text)
    names = find_distributions(operator)
    unknown = sorted(names - pins.keys())
    if unknown:
        raise ValueError(f"{operator}: not in the lock: {', '.join(unknown)}; run tools.lock")
    components = [_build_component(pins[name]) for name in sorted(names)]
    components += [_build_package(name) for name in sorted(PACKAGES)]
    serial = uuid5(NAMESPACE_URL, f"slipway/{operator}\n{text}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _FORMAT,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": f"slipway/{operator}"}},
        "components": components,
    }


def _build_component(pin: Pin) -> Manifest:
    return {
        "type": "library",
        "name": pin.name,
        "version": pin.version,
        "purl": f"pkg:pypi/{pin.name.lower()}@{pin.version}",
        "licenses": [{"license": {"name": license_of(pin.name)}}],
        # One hash for each wheel that the lock lets in.
        "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
    }


def _build_package(name: str) -> Manifest:
    return {
        "type": "library",
        "name": name,
        "purl": f"pkg:deb/debian/{name}?distro={SUITE}",
        "description": "Named package of the base image; libraries that it needs come with it.",
    }
