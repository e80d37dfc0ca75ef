"""The Debian packages of the base image, recorded where scanners look for them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Final

FOLDER: Final = "var/lib/dpkg/status.d"
"""The folder in the image, as in distroless images: one file per package."""
RECORD: Final = f"""\
set -eu
folder=$1/{FOLDER}
mkdir -p "$folder"
for deb in "$1"/var/cache/apt/archives/*.deb; do
  name=$(dpkg-deb --field "$deb" Package)
  {{
    dpkg-deb --field "$deb"
    echo "Status: install ok installed"
    echo "SHA256: $(sha256sum "$deb" | cut -d ' ' -f 1)"
  }} >"$folder/$name"
  dpkg-deb --fsys-tarfile "$deb" | tar --list >"$folder/$name.list"
done
"""
"""A hook of mmdebstrap. It runs while the packages are still in the cache of apt."""

_LIST: Final = ".list"
_DOCUMENTATION: Final = "usr/share/doc/*"


def select_records(
    files: Mapping[str, bytes], is_kept: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the record of each package of which the image contains a file.

    Args:
        files: The files of FOLDER by name: records, and the lists of files of the packages.
        is_kept: Returns whether a path of the packages is in the image.
    """
    for name, record in sorted(files.items()):
        if name.endswith(_LIST):
            continue
        lines = files.get(f"{name}{_LIST}", b"").decode().splitlines()
        paths = [line.removeprefix("./") for line in lines if not line.endswith("/")]
        # The copyright file alone does not make a package part of the image.
        if any(is_kept(path) and not fnmatch.fnmatch(path, _DOCUMENTATION) for path in paths):
            yield name, record
