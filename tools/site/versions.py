"""Several versions of the site next to each other, as the selector of mkdocs-material finds them.

The theme reads `versions.json` in the directory above each version
(https://squidfunk.github.io/mkdocs-material/setup/setting-up-versioning/).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile(r"v?\d+(\.\d+)*")
_REDIRECT: Final = """\
<!doctype html>
<meta charset="utf-8">
<title>Slipway</title>
<meta http-equiv="refresh" content="0; url={version}/">
<a href="{version}/">Documentation of {version}</a>
"""


def write_versions(site: Path) -> list[str]:
    """List the versions in a directory, and redirect its start page to the first one.

    Args:
        site: Directory with one directory for each version.

    Returns:
        The versions in the order of the selector: released versions from new to old, then names
        such as `main`.
    """
    found = sorted(_list_versions(site), key=_rank)
    listing = [{"version": each, "title": each, "aliases": []} for each in found]
    (site / "versions.json").write_text(json.dumps(listing, indent=2) + "\n")
    (site / "index.html").write_text(_REDIRECT.format(version=found[0]))
    return found


def check_version(version: str) -> None:
    """Refuse a version that is not a plain name of a directory.

    Raises:
        ValueError: It is not.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", version):
        raise ValueError(f"--version {version!r}: use letters, digits, dots, dashes, underscores")


def _list_versions(site: Path) -> list[str]:
    return [each.parent.parent.name for each in site.glob("*/search/search_index.json")]


def _rank(version: str) -> tuple[bool, list[int], str]:
    if not _NUMBER.fullmatch(version):
        return True, [], version
    return False, [-int(part) for part in re.findall(r"\d+", version)], version
