"""The layers inside packages: import-linter with the contracts of pyproject.toml."""

from __future__ import annotations

import sys

from importlinter.cli import lint_imports

if __name__ == "__main__":
    sys.exit(lint_imports())
