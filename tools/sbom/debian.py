"""The Debian packages of an image, from the records in the archive of the base."""

from __future__ import annotations

import io
import tarfile
from email.parser import Parser
from pathlib import Path
from typing import Final
from urllib.parse import quote

from libs.common.kinds import Manifest
from tools.images.base import SUITE
from tools.images.packages import FOLDER

_LAYER: Final = "layer.tar"


def list_packages(archive: Path) -> list[Manifest]:
    """Return a component for each Debian package of a base image.

    Raises:
        ValueError: The archive has no records of packages.
    """
    with tarfile.open(archive) as image:
        layer = image.extractfile(_LAYER)
        assert layer is not None
        with tarfile.open(fileobj=io.BytesIO(layer.read())) as files:
            found = [
                _build_component(text.read().decode())
                for member in files
                if member.name.lstrip("./").startswith(f"{FOLDER}/")
                and (text := files.extractfile(member)) is not None
            ]
    if not found:
        raise ValueError(f"{archive}: no records of packages in {FOLDER}; build the base again")
    return sorted(found, key=lambda component: str(component["name"]))


def _build_component(record: str) -> Manifest:
    fields = Parser().parsestr(record)
    name, version = fields["Package"], fields["Version"]
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}"
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"{purl}?arch={fields['Architecture']}&distro={SUITE}",
        # The hash of the package file. Its license is in /usr/share/doc of the image.
        "hashes": [{"alg": "SHA-256", "content": fields["SHA256"]}],
    }
