"""Build images of operators, push them to a registry of your choice, or update their base."""

from __future__ import annotations

from tools.cluster.cache import Cache
from tools.cluster.command_line import Parser, run
from tools.cluster.progress import open_progress
from tools.images import build_together, list_all_images, push
from tools.images.base import LOCK
from tools.images.build import ROOT
from tools.images.update import update_base


def main() -> int:
    """Run the command line and return its exit code."""
    parser = Parser(prog="python -m tools.images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build slipway/<operator>:<tag>")
    pushing = commands.add_parser("push", help="push it as <registry>/<operator>:<tag>")
    pushing.add_argument("--registry", required=True, help="such as registry.example.com/team")
    for command in (building, pushing):
        command.add_argument("operators", nargs="*", metavar="operator")
        command.add_argument("--all", action="store_true", help="all images of this checkout")
        command.add_argument("--tag", default="dev", help="tag of the image (default dev)")
    commands.add_parser("update", help="update the Debian packages of the base image")
    options = parser.parse_args()
    if options.command == "update":
        return _update()
    chosen = list_all_images() if options.all else options.operators
    if not chosen:
        parser.error(f"{options.command}: name operators, or --all")
    if options.command == "build":
        print("\n".join(build_together(chosen, options.tag)))
    else:
        for operator in chosen:
            print(push(operator, options.registry, options.tag))
    return 0


def _update() -> int:
    changes = update_base(Cache(), open_progress("base-image"))
    print("\n".join(changes) or "The base image has the newest packages.")
    if changes:
        print(f"Commit {LOCK.relative_to(ROOT)}, then build and release the images again.")
    return 0


if __name__ == "__main__":
    raise SystemExit(run(main))
