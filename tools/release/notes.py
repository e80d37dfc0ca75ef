"""What a release says of itself: its version in the chart, its notes in the changelog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.common import fastyaml
from tools.cluster.errors import ToolError

_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")


@dataclass(frozen=True, slots=True)
class Release:
    """A release.

    Attributes:
        operator: Id of the operator.
        version: Version of image and chart, such as `0.2.0`.
        notes: What its users should know, in Markdown.
    """

    operator: str
    version: str
    notes: str

    @property
    def name(self) -> str:
        """Name of its files, such as `podset-0.2.0`."""
        return f"{self.operator}-{self.version}"


def read_release(operator: str, root: Path) -> Release:
    """Read the release that a checkout would make of an operator.

    Raises:
        ToolError: There is no such operator, or its version or notes are not in order.
    """
    chart = root / "helm" / operator / "Chart.yaml"
    if not chart.exists():
        known = sorted(path.parent.name for path in root.glob("operators/*/BUILD"))
        raise ToolError(f"There is no operator {operator!r}: name one of {', '.join(known)}")
    metadata = fastyaml.load(chart.read_text())
    version, app_version = str(metadata.get("version")), str(metadata.get("appVersion"))
    if not _VERSION.fullmatch(version):
        raise ToolError(f"helm/{operator}/Chart.yaml: version: {version} is not a version")
    if app_version != version:
        raise ToolError(
            f"helm/{operator}/Chart.yaml: appVersion: {app_version} is not {version}; "
            "chart and image are released together"
        )
    return Release(operator, version, read_notes(root, operator, version))


def read_notes(root: Path, operator: str, version: str) -> str:
    """Return the section of a version in the changelog of an operator.

    Raises:
        ToolError: There is none, or it is empty.
    """
    path = root / "operators" / operator / "CHANGELOG.md"
    shown = f"operators/{operator}/CHANGELOG.md"
    text = path.read_text() if path.exists() else ""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        if heading.split()[:1] == [version]:
            if not body.strip():
                raise ToolError(f"{shown}: ## {version} is empty; say what is new")
            return body.strip() + "\n"
    raise ToolError(f"{shown}: has no section `## {version}`; say there what is new")
