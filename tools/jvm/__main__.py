"""Print where the jars and runtimes are, made when they are missing: `python -m tools.jvm`.

With --again the jars are built a second time, and must have the same bytes.
"""

import sys

from tools.cluster.command_line import Parser, run
from tools.cluster.progress import open_progress
from tools.jvm.kit import ensure_kit, find_differences


def main() -> int:
    """Run the command line and return its exit code."""
    parser = Parser(prog="python -m tools.jvm", description=__doc__)
    parser.add_argument("--again", action="store_true", help="build again and compare")
    again: bool = parser.parse_args().again
    progress = open_progress("jvm")
    kit = ensure_kit(progress)
    print(kit)
    differing = find_differences(kit, progress) if again else []
    for name in differing:
        print(f"{name}: another build has other bytes", file=sys.stderr)
    return int(bool(differing))


if __name__ == "__main__":
    raise SystemExit(run(main))
