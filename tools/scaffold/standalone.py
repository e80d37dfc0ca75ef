"""Write a project outside of the repository, with the wheel of the library in its environment."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from typing import Final

from libs.common.project.create import create_project
from libs.common.project.errors import GenerateError
from libs.common.project.names import Names
from libs.common.project.render import INSTALL, LOCK_COMMAND, WHEELS
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress

LIBRARY: Final = Path(__file__).resolve().parents[2] / "libs" / "common"
"""The source of the wheel."""
_TESTED: Final = LIBRARY.parents[1] / "3rdparty" / "python" / "default.lock"
"""Versions with which the library is tested; a project starts with them."""


def create_standalone(
    root: Path,
    names: Names,
    progress: Progress,
    *,
    finalizer: bool,
    cluster: bool,
    second_kind: str,
    webhook: bool,
) -> None:
    """Write a project, install the library from its wheel into `.venv`, and generate the rest.

    Raises:
        ToolError: The folder has files, or the packages cannot be installed.
    """
    try:
        create_project(
            root,
            names,
            finalizer=finalizer,
            cluster=cluster,
            second_kind=second_kind,
            webhook=webhook,
        )
    except GenerateError as err:
        raise ToolError(str(err)) from None
    wheel = build_wheel(root / WHEELS, progress)
    environment = root / ".venv"
    with progress.step("Packages of the project", "1 minute"):
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        lock = [sys.executable, "-m", *LOCK_COMMAND.split(), "--quiet", "--no-header"]
        progress.run([*lock, "--python", python, "--constraint", _TESTED], cwd=root)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
        progress.run([*install, *INSTALL], cwd=root)
        # Tests and a run on a laptop need more than the image.
        extras = f"slipway-operators[kubeconfig,testing] @ {wheel.resolve().as_uri()}"
        progress.run([*install, extras])
    progress.run([python, "-m", "slipway_operators.project", "generate", root.resolve()])


def build_wheel(folder: Path, progress: Progress) -> Path:
    """Build the wheel of the library into a folder and return its path."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    with progress.step("Wheel of the library"):
        progress.run([*command, "--wheel-dir", folder, LIBRARY])
    return next(folder.glob("slipway_operators-*.whl"))
