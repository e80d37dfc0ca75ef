"""What a release says of itself: its version in the chart, its notes in the changelog.

A version names one content forever. As long as the changelog has unreleased changes, the version
therefore contains the commit, and is a pre-release of the next patch.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.common import fastyaml
from tools.cluster.errors import ToolError

_UNRELEASED: Final = "Unreleased"
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
    if unreleased := _read_sections(root, operator).get(_UNRELEASED, "").strip():
        return Release(operator, build_pre_release(version, root), f"{unreleased}\n")
    return Release(operator, version, read_notes(root, operator, version))


def build_pre_release(version: str, root: Path) -> str:
    """Build a version of the checked-out commit, such as `0.1.1-dev.1234.g6c84493e`.

    Raises:
        ToolError: The folder is no git repository.
    """

    def ask(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise ToolError(f"Cannot name the commit of unreleased changes: {run.stderr.strip()}")
        return run.stdout.strip()

    major, minor, patch = version.partition("-")[0].split(".")
    # A pre-release of a version comes before it, and after every earlier release.
    base = version.partition("-")[0] if "-" in version else f"{major}.{minor}.{int(patch) + 1}"
    number, commit = ask("rev-list", "--count", "HEAD"), ask("rev-parse", "--short=8", "HEAD")
    return f"{base}-dev.{number}.g{commit}"


def read_notes(root: Path, operator: str, version: str) -> str:
    """Return the section of a version in the changelog of an operator.

    Raises:
        ToolError: There is none, or it is empty.
    """
    shown = f"operators/{operator}/CHANGELOG.md"
    body = _read_sections(root, operator).get(version)
    if body is None:
        raise ToolError(f"{shown}: has no section `## {version}`; say there what is new")
    if not body.strip():
        raise ToolError(f"{shown}: ## {version} is empty; say what is new")
    return body.strip() + "\n"


def _read_sections(root: Path, operator: str) -> dict[str, str]:
    """Return the sections of a changelog by the first word of their heading."""
    path = root / "operators" / operator / "CHANGELOG.md"
    text = path.read_text() if path.exists() else ""
    parts = [part.partition("\n") for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]]
    return {heading.split()[0]: body for heading, _, body in parts if heading.split()}
