"""The files that the tutorial writes, which are the template of a new operator.

The page is the only copy of these files, so template and tutorial cannot differ. The tests of the
documentation run them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from libs.common.project.names import Names
from tools.scaffold.names import rename

PAGE: Final = Path("docs/tutorial/write-an-operator.md")
"""Path of the tutorial, relative to the root of a checkout."""
_TITLED: Final = re.compile(r'^(`{3,})\w+ title="([^"]+)"\n(.*?)^\1$', re.MULTILINE | re.DOTALL)
SOURCES: Final = ("helm/podset", "deploy/kustomize/overlays")
"""Folders that the steps of the tutorial copy or change, relative to the root of a checkout."""
_STEPS: Final = ("steps/chart.sh", "steps/overlays.sh")


def read_files(page: str) -> dict[str, str]:
    """Return the titled code blocks of a page by title, which is a path."""
    return {path: text for _, path, text in _TITLED.findall(page)}


def follow(root: Path, names: Names, page: str) -> None:
    """Execute the tutorial in a checkout, with other names.

    Args:
        root: The checkout, which contains `SOURCES`.
        names: Names that replace the names of the tutorial.
        page: Text of the tutorial.
    """
    files = read_files(page)
    steps = [rename(files.pop(step), names) for step in _STEPS]
    (root / "operators" / names.id).mkdir(parents=True, exist_ok=True)
    for step in steps:
        subprocess.run(["sh", "-eu", "-c", step], cwd=root, check=True)
    # The steps copy the chart first; a file of the tutorial then overwrites its notes.
    for path, text in files.items():
        # The name of the end-to-end test contains the kind in the form of Python.
        target = root / rename(path, names, python=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rename(text, names, python=path.endswith(".py")))
