"""The files that the tutorial writes: the template of a new operator.

There is no second copy of them that could go stale: what people read is what they get, and the
tests of the documentation run it.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from libs.common.project.names import Names
from tools.scaffold.names import rename

PAGE: Final = Path("docs/tutorial/write-an-operator.md")
"""The tutorial, from the root of a checkout."""
_TITLED: Final = re.compile(r'^(`{3,})\w+ title="([^"]+)"\n(.*?)^\1$', re.MULTILINE | re.DOTALL)
SOURCES: Final = ("helm/podset", "deploy/kustomize/overlays")
"""What the steps of the tutorial copy or change, from the root of a checkout."""
_STEPS: Final = ("steps/chart.sh", "steps/overlays.sh")


def read_files(page: str) -> dict[str, str]:
    """Return the code blocks of a page that have a path for their title."""
    return {path: text for _, path, text in _TITLED.findall(page)}


def follow(root: Path, names: Names, page: str) -> None:
    """Do in a checkout what the tutorial says, under other names.

    Args:
        root: The checkout; it has the `SOURCES`.
        names: Names that replace the names of the tutorial.
        page: Text of the tutorial.
    """
    files = read_files(page)
    steps = [rename(files.pop(step), names) for step in _STEPS]
    (root / "operators" / names.id).mkdir(parents=True, exist_ok=True)
    for step in steps:
        subprocess.run(["sh", "-eu", "-c", step], cwd=root, check=True)
    # The chart is copied first, then its notes are written over.
    for path, text in files.items():
        # The end-to-end test names the example.
        target = root / rename(path, names, python=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rename(text, names, python=path.endswith(".py")))
