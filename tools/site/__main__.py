"""The command ./dev docs: builds the documentation site, or serves it while you write."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mkdocs.commands import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tools.cluster.command_line import Parser
from tools.dev.operators import list_operators
from tools.site.stage import stage

ROOT: Final = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Build the site; serve it unless `--build` is given."""
    parser = Parser(
        prog="./dev docs", description="Build the documentation site and serve it on this machine."
    )
    parser.add_argument("--build", action="store_true", help="build dist/site and exit")
    parser.add_argument(
        "--address", default="127.0.0.1:8000", help="where to serve. Defaults to 127.0.0.1:8000"
    )
    options = parser.parse_args(argv)
    site = ROOT / "dist/site"
    with tempfile.TemporaryDirectory() as scratch:
        configuration = stage(ROOT, Path(scratch), list_operators(), site)
        if not build_site(configuration):
            return 1
    print(f"Site: {site / 'index.html'}")
    if options.build:
        return 0
    host, _, port = options.address.rpartition(":")
    print(f"Serving on http://{options.address}/; press Ctrl-C to stop", flush=True)
    server = [sys.executable, "-m", "http.server", "--bind", host, port]
    with contextlib.suppress(KeyboardInterrupt):
        return subprocess.call(server, cwd=site)
    return 0


def build_site(configuration: Path) -> bool:
    """Render the site strictly: a broken link or a page outside of the navigation is a failure."""
    config = load_config(str(configuration), strict=True)
    try:
        build.build(config)
    except Abort as error:
        print(f"The site has broken links or pages without a place: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
