"""The command that builds the guest image of the demo and tests."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tools.cluster.command_line import run
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME
from tools.cluster.progress import open_progress
from tools.dev.options import Name, find_target


def guest_image(
    name: Name = DEFAULT_NAME,
    output: Annotated[
        Path | None, typer.Option("--output", help="Copy the raw disk image to this file.")
    ] = None,
    deploy: Annotated[
        bool, typer.Option("--deploy", help="Serve the image over HTTP in the kind cluster.")
    ] = False,
) -> None:
    """Build a small guest image from Debian packages and print its path."""
    # Imported here: no other command needs these modules.
    from lab.guest.build import ensure_guest
    from lab.guest.serve import URL
    from lab.guest.serve import deploy as serve

    progress, console = open_progress("guest-image"), Console(highlight=False, soft_wrap=True)
    disk = ensure_guest(progress).disk
    if output:
        shutil.copyfile(disk, output)
    console.print(str(output or disk))
    if not deploy:
        return
    kind = find_target(None, None, name).kind
    if kind is None:
        raise ToolError("--deploy requires a kind cluster: run `./dev up` first")
    reference = serve(kind, progress)
    console.print(f"URL in the cluster: {URL}\nContainer disk: {reference}")


def main() -> int:
    """Run the command line and return its exit status."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(guest_image)
    return run(lambda: app(prog_name="./dev guest-image"))


if __name__ == "__main__":
    raise SystemExit(main())
