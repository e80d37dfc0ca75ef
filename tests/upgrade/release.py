"""The previous release, from the history of the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tools.dev.operators import ROOT

PREVIOUS: Final = "ed5126bfe4a275e3f6691e222060ba676010e0d4"
"""Commit of the previous release, 0.1.0."""


def unpack_previous(folder: Path) -> Path:
    """Unpack the previous release, or skip the tests in a clone without history."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", PREVIOUS, "libs", "operators", "helm"],
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"the history lacks {PREVIOUS}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
