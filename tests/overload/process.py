"""Run an operator as in its pod: with the files of a service account, and without a kubeconfig.

`python -m tests.overload.process FOLDER MODULE [--flag value ...]`
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from libs.common import startup

_NOT_IN_IMAGES = ("colorama", "rich")
"""Packages of the tools that structlog imports if they are installed."""


def main() -> int:
    """Import the operator, and run it."""
    for name in _NOT_IN_IMAGES:
        sys.modules[name] = None  # type: ignore[assignment]  # None makes an import fail
    folder, module, *arguments = sys.argv[1:]
    from libs.common import config
    from libs.common.runtime import main as run_operator

    config._SERVICE_ACCOUNT = Path(folder)  # type: ignore[misc]  # noqa: SLF001 pods mount it there
    return run_operator(importlib.import_module(module).OPERATOR, arguments)


if __name__ == "__main__":
    startup.run(main)
