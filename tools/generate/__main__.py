"""Write every generated file, or check that all of them are up to date.

* `./dev generate` writes what differs and deletes what nothing generates any more.
* `./dev generate --check` changes nothing, prints the differences and exits with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from libs.common.errors import SlipwayError
from libs.common.testing.helm import HELM_VARIABLE
from tools.cluster.binaries import ensure_tool
from tools.cluster.command_line import Parser, run
from tools.cluster.errors import ToolError
from tools.generate.bases import render_bases
from tools.generate.drift import OWNED, OWNED_BASES, find_drift, render_report, write_files
from tools.generate.render import render_all
from tools.generate.sources import ROOT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the generator; returns the exit code."""
    options = _build_parser().parse_args(argv)
    ids: list[str] | None = options.operator or None
    for one in ids or ():
        if not (options.root / "operators" / one).is_dir():
            raise ToolError(f"There is no operator {one!r} in {options.root / 'operators'}")
    helm = None if options.without_helm else _find_helm()
    try:
        if options.check:
            return _check(options.root, ids, helm)
        return _write(options.root, ids, helm)
    except SlipwayError as err:
        print(f"Nothing can be generated:\n{err}", file=sys.stderr)
        return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="./dev generate", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not up to date"
    )
    parser.add_argument(
        "--operator",
        action="append",
        metavar="ID",
        help="generate only the files of this operator; repeatable",
    )
    parser.add_argument(
        "--without-helm", action="store_true", help="skip the kustomize bases, which need helm"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser


def _write(root: Path, ids: list[str] | None, helm: Path | None) -> int:
    # A part of the operators says nothing about which files should not be there.
    everything = ids is None
    touched = write_files(root, render_all(root, ids), OWNED if everything else ())
    if helm is not None:
        bases = render_bases(helm, root, ids)
        touched += write_files(root, bases, OWNED_BASES if everything else ())
    for path in touched:
        print(path.as_posix())
    print(f"{len(touched)} files changed." if touched else "Everything is up to date.")
    return 0


def _check(root: Path, ids: list[str] | None, helm: Path | None) -> int:
    everything = ids is None
    drifts = find_drift(root, render_all(root, ids), OWNED if everything else ())
    if helm is not None:
        bases = render_bases(helm, root, ids)
        drifts += find_drift(root, bases, OWNED_BASES if everything else ())
    if drifts:
        print(render_report(drifts))
        return 1
    print("Everything is up to date.")
    return 0


def _find_helm() -> Path | None:
    """Find or build helm; None, with a message, if that is not possible."""
    if chosen := os.environ.get(HELM_VARIABLE):
        return Path(chosen)
    try:
        return ensure_tool("helm")
    except (OSError, ToolError) as err:
        print(f"Leaving out the kustomize bases, for helm cannot be had: {err}", file=sys.stderr)
        return None


if __name__ == "__main__":
    raise SystemExit(run(main))
