"""A copy of the pages, and of the files that they link to, for mkdocs to render.

The copy keeps the paths of the repository, so that relative links work on the site as well.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.site import hooks
from tools.site.navigation import build_navigation

_LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
_STYLES: Final = "slipway.css"
_PAGES: Final = (
    "*.md",
    "docs/**/*.md",
    "operators/*/*.md",
    "helm/*/README.md",
    "libs/common/*.md",
    "libs/examples/*/README.md",
    "slipway_handler/README.md",
    "tools/*/README.md",
    "lab/**/README.md",
)


def find_pages(root: Path) -> list[Path]:
    """Return the Markdown files that become pages."""
    return sorted({page for pattern in _PAGES for page in root.glob(pattern)})


def stage(root: Path, folder: Path, operators: Sequence[str], output: Path) -> Path:
    """Copy the pages and write the configuration of mkdocs; return its path.

    Args:
        root: The checkout.
        folder: Where to write pages and configuration.
        operators: Ids of the operators.
        output: Directory that mkdocs writes the site into.
    """
    source = folder / "pages"
    for page in find_pages(root):
        _copy(root, source, page)
        for link in _LINK.findall(page.read_text()):
            target = (page.parent / link).resolve()
            if "://" not in link and target.is_file() and target.is_relative_to(root):
                _copy(root, source, target)
    (source / _STYLES).write_text(hooks.STYLES)
    configuration = folder / "mkdocs.yml"
    settings = _configure(root, source, operators, output)
    configuration.write_text(yaml.safe_dump(settings, sort_keys=False))
    return configuration


def _copy(root: Path, source: Path, file: Path) -> None:
    target = source / file.relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def _configure(root: Path, source: Path, operators: Sequence[str], output: Path) -> dict[str, Any]:
    light = {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "indigo"}
    dark = {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "indigo"}
    return {
        "site_name": "Slipway",
        "site_description": "Kubernetes operators in Python, and the library that they share",
        "docs_dir": str(source),
        "site_dir": str(output),
        "copyright": "Apache License 2.0",
        "theme": {
            "name": "material",
            "font": False,  # No request to another site.
            "palette": [
                light | {"toggle": {"icon": "material/weather-night", "name": "Dark mode"}},
                dark | {"toggle": {"icon": "material/weather-sunny", "name": "Light mode"}},
            ],
            "features": [
                "content.code.copy",
                "navigation.footer",
                "navigation.indexes",
                "navigation.tabs",
                "navigation.top",
                "search.highlight",
                "search.suggest",
            ],
        },
        "extra_css": [_STYLES],
        "hooks": [hooks.__file__],
        "plugins": ["search"],
        "markdown_extensions": [
            "attr_list",
            "tables",
            {"toc": {"permalink": True}},
            "pymdownx.tasklist",
            "pymdownx.superfences",
            {"pymdownx.highlight": {"anchor_linenums": False}},
            "sane_lists",
        ],
        # Links to folders and source files are checked in the repository, by docs/docs_test.py.
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "ignore"},
        },
        "nav": build_navigation(root, operators),
    }
