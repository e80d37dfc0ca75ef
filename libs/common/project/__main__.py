"""Create a project, and generate its chart and Containerfile from its code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from libs.common.project.create import create_project
from libs.common.project.errors import GenerateError
from libs.common.project.load import load_project
from libs.common.project.names import Names
from libs.common.project.render import LOCK, LOCK_COMMAND, WHEELS, render_project


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parse(argv)
    try:
        if options.command == "new":
            return _create(options)
        return _check(options.root) if options.check else _generate(options.root)
    except GenerateError as err:
        print(err, file=sys.stderr)
        return 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a new project to a parser."""
    parser.add_argument(
        "--kind", required=True, help="kind of the operator, such as Backup. Required"
    )
    parser.add_argument(
        "--plural",
        default="",
        help="plural of the kind in lower case. Derived from the kind if not given",
    )
    parser.add_argument("--group", default="", help="API group. Derived from the id if not given")
    parser.add_argument(
        "--finalizer",
        action="store_true",
        help="add a finalizer that cleans up before an object is deleted",
    )
    parser.add_argument(
        "--cluster-scoped", action="store_true", help="make the kinds cluster-scoped"
    )
    parser.add_argument(
        "--second-kind",
        default="",
        metavar="KIND",
        help="add another kind, with its own controller and tests",
    )
    parser.add_argument(
        "--webhook", action="store_true", help="add a validating webhook for the first kind"
    )


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    name = f"python -m {__package__}"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="write a new project")
    new.add_argument("root", type=Path, metavar="DIR", help="folder of the project")
    new.add_argument(
        "--id", default="", help="id of the operator. Defaults to the name of the folder"
    )
    add_options(new)
    generate = commands.add_parser("generate", help="write the chart and the Containerfile")
    generate.add_argument("root", type=Path, nargs="?", default=Path(), metavar="DIR")
    generate.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    return parser.parse_args(argv)


def _create(options: argparse.Namespace) -> int:
    root: Path = options.root
    operator = options.id or root.resolve().name
    group = options.group or f"{operator}.example.com"
    names = Names.build(operator, options.kind, group, options.plural)
    for path in create_project(
        root,
        names,
        finalizer=options.finalizer,
        cluster=options.cluster_scoped,
        second_kind=options.second_kind,
        webhook=options.webhook,
    ):
        print(path)
    print(f"Copy the wheel of the library to {root / WHEELS}, and write {LOCK}: {LOCK_COMMAND}")
    return _generate(root)


def _generate(root: Path) -> int:
    files = _render(root)
    changed = [path for path, text in files.items() if _read(root / path) != text]
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(files[path], encoding="utf-8")
    wanted = {root / path for path in files}
    for path in _list_generated(root):
        if path not in wanted:
            path.unlink()
    print(f"{len(changed)} generated files changed." if changed else "Everything is up to date.")
    return 0


def _check(root: Path) -> int:
    files = _render(root)
    problems = [f"{path} differs" for path, text in files.items() if _read(root / path) != text]
    wanted = {root / path for path in files}
    problems += [f"{path} is left over" for path in _list_generated(root) if path not in wanted]
    for problem in problems:
        print(f"{problem}: run python -m {__package__} generate", file=sys.stderr)
    return 1 if problems else 0


def _render(root: Path) -> dict[Path, str]:
    return render_project(load_project(root.resolve()))


def _list_generated(root: Path) -> list[Path]:
    """Return the files of the chart that only the generator writes."""
    return sorted((root / "chart" / "files").rglob("*.yaml"))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    raise SystemExit(main())
