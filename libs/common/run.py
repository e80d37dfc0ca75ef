"""Run the operator of a module: `python -m libs.common.run MODULE [--flag value ...]`.

The module defines `OPERATOR`. It is imported after the signal handlers are in place.
"""

import importlib
import sys

from libs.common import startup


def main() -> int:
    """Import the operator, and run it."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print("usage: python -m libs.common.run MODULE [--flag value ...]", file=sys.stderr)
        return 2
    # The working directory is the project, as for `python -m MODULE`.
    operator = importlib.import_module(sys.argv[1]).OPERATOR
    from libs.common.runtime import main as run_operator

    return run_operator(operator, sys.argv[2:])


if __name__ == "__main__":
    startup.run(main)
