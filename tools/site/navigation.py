"""The navigation of the site, derived from the pages: sections, order and titles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_REFERENCE: Final = ("api", "conditions", "settings", "metrics", "rbac")
_GUIDES: Final[dict[str, tuple[str, ...]]] = {
    "Operate": (
        "install",
        "upgrade",
        "uninstall",
        "production-checklist",
        "tenancy",
        "run-highly-available",
        "monitor",
        "alerts",
        "troubleshoot",
        "debug",
        "kubectl-slipway",
        "size-and-tune",
        "back-up",
        "gitops",
        "olm",
        "private-registry",
        "verify-a-release",
        "managed-clusters",
        "proxies-and-meshes",
        "policies",
        "webhook-certificates",
        "migrate-from-the-predecessors",
    ),
    "Pods and volumes": ("podsets", "volumes"),
    "Pulsar consumers": ("consume-pulsar", "pulsar-"),
    "JVM metrics": ("jmx-",),
    "Virtual machines": (
        "instances",
        "operations",
        "clusters",
        "addresses",
        "firewalls",
        "kubevirt",
    ),
    "Develop": (
        "cluster",
        "local-development",
        "test-an-operator",
        "find-bugs-in-your-operator",
        "add-a-version",
        "standalone-project",
        "port-a-kopf-operator",
        "release",
    ),
}
"""Sections of the how-to pages; a name that ends with a hyphen is a prefix."""

Nav = list[Any]


def build_navigation(root: Path, operators: Sequence[str]) -> Nav:
    """Return the `nav` of mkdocs: every page of the site once.

    Raises:
        ValueError: A how-to page has no section.
    """
    docs = root / "docs"
    return [
        {"Home": "README.md"},
        {"Overview": ["docs/README.md", "docs/faq.md"]},
        {"Tutorials": _list(root, _order(docs / "tutorial", ("getting-started",)))},
        {"How-to guides": list(_group_guides(root))},
        {"Operators": [{each: list(_list_operator(root, each))} for each in operators]},
        {"Reference": _list(root, _order(docs / "reference", ("README",)))},
        {"Explanation": _list(root, _order(docs / "explanation", ("runtime", "cloud")))},
        {"Decisions": _list(root, _order(docs / "adr", ("README",)))},
        {
            "Project": _list(
                root, [*sorted(set(root.glob("*.md")) - {root / "README.md"}), *_others(root)]
            )
        },
    ]


def read_title(page: Path) -> str:
    """Return the first heading of a page, without code marks."""
    found = _TITLE.search(page.read_text())
    return found.group(1).replace("`", "") if found else page.stem


def _list(root: Path, pages: Sequence[Path]) -> Nav:
    return [{read_title(page): page.relative_to(root).as_posix()} for page in pages]


def _order(folder: Path, first: Sequence[str]) -> list[Path]:
    pages = sorted(folder.glob("*.md"))
    return sorted(
        pages, key=lambda page: first.index(page.stem) if page.stem in first else len(first)
    )


def _group_guides(root: Path) -> Iterator[dict[str, Nav]]:
    rest = {page.stem: page for page in sorted((root / "docs/howto").glob("*.md"))}
    for section, names in _GUIDES.items():
        pages = []
        for name in names:
            chosen = [
                each for each in rest if each == name or (name[-1] == "-" and each.startswith(name))
            ]
            pages += [rest.pop(each) for each in chosen]
        yield {section: _list(root, pages)}
    if rest:
        raise ValueError(f"tools/site/navigation.py: no section for {', '.join(rest)}; add them")


def _list_operator(root: Path, operator: str) -> Iterator[dict[str, str]]:
    yield {"Overview": f"operators/{operator}/README.md"}
    for name in _REFERENCE:
        yield {
            (
                name.upper() if name in ("api", "rbac") else name.capitalize()
            ): f"docs/reference/{operator}/{name}.md"
        }
    yield {"Chart": f"helm/{operator}/README.md"}
    yield {"Changelog": f"operators/{operator}/CHANGELOG.md"}


def _others(root: Path) -> list[Path]:
    return [
        root / "helm/operator-common/README.md",
        root / "libs/common/README.md",
        root / "slipway_handler/README.md",
        root / "libs/common/CHANGELOG.md",
        *sorted((root / "libs/examples").glob("*/README.md")),
        *sorted((root / "tools").glob("*/README.md")),
        *sorted((root / "lab").glob("**/README.md")),
    ]
