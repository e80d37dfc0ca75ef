"""Start of a measured process: it imports what its image contains.

`python -m lab.bench.library_process MODULE ...` calls `main` of a module with the arguments.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

from libs.common import startup

_NOT_IN_IMAGES: Final = ("colorama", "rich")
"""Packages of the tools that structlog imports if they are installed."""


def hide_tools() -> None:
    """Make imports of the packages of the tools fail."""
    for name in _NOT_IN_IMAGES:
        sys.modules[name] = None  # type: ignore[assignment]  # None makes an import fail


def main() -> int:
    """Import the module, and run it."""
    hide_tools()
    module, *arguments = sys.argv[1:]
    status: int = importlib.import_module(module).main(arguments)
    return status


if __name__ == "__main__":
    startup.run(main)
