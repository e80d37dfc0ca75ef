"""A bill of materials in CycloneDX 1.6; the same inputs give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from libs.common.kinds import Manifest
from tools.sbom.closure import (
    LOCK,
    Pin,
    find_distributions,
    license_of,
    list_requirements,
    read_lock,
)

_FORMAT: Final = "1.6"


def build_document(
    image: str,
    further: Sequence[Manifest] = (),
    *,
    version: str = "",
    digest: str = "",
) -> Manifest:
    """Build the bill of an image.

    Args:
        image: Name of the image: the ID of an operator; with `-app`, the app of an operator.
        further: Components other than Python packages.
        version: Version of the image; empty if it has none.
        digest: Digest of the image in the registry, such as sha256:0123; empty before a push.

    Raises:
        ValueError: The process can import a package that is not in the lock.
    """
    pins = read_lock(LOCK.read_text())
    names = find_distributions(image)
    unknown = sorted(names - pins.keys())
    if unknown:
        raise ValueError(f"{image}: not in the lock: {', '.join(unknown)}; write the lock again")
    subject: Manifest = {"type": "container", "name": f"slipway/{image}", "bom-ref": image}
    if version:
        subject["version"] = version
    if digest:
        algorithm, _, content = digest.partition(":")
        subject["hashes"] = [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": content}]
    components = [*(_build_component(pins[name]) for name in sorted(names)), *further]
    content = json.dumps([subject, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _FORMAT,
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": [
            {"ref": image, "dependsOn": sorted(pins[name].purl for name in names)},
            *(
                {
                    "ref": pins[name].purl,
                    "dependsOn": sorted(
                        pins[needed].purl for needed in names & set(list_requirements(name))
                    ),
                }
                for name in sorted(names)
            ),
        ],
    }


def _build_component(pin: Pin) -> Manifest:
    license_ = license_of(pin.name)
    declared = {"expression": license_} if " " in license_ else {"license": {"id": license_}}
    return {
        "type": "library",
        "name": pin.name,
        "version": pin.version,
        "bom-ref": pin.purl,
        "purl": pin.purl,
        "licenses": [declared],
        # One hash for each wheel that the lock permits.
        "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
    }
