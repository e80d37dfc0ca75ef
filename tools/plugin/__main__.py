"""Write the plugin, its archive and its manifest for krew into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.cluster.command_line import Parser
from tools.plugin.build import NAME, build_archive, build_file, render_manifest


def main(argv: Sequence[str] | None = None) -> int:
    """Build; returns the exit code."""
    parser = Parser(prog="python -m tools.plugin", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("dist"), help="default: dist")
    parser.add_argument(
        "--url",
        default=f"https://registry.invalid/{NAME}.tar",
        help="where the archive will be published; the manifest for krew names it",
    )
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    file, archive = options.output / NAME, build_archive()
    file.write_bytes(build_file())
    file.chmod(0o755)
    (options.output / f"{NAME}.tar").write_bytes(archive)
    (options.output / "slipway.yaml").write_text(render_manifest(archive, options.url))
    print(f"{file}, {NAME}.tar and slipway.yaml for krew")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
