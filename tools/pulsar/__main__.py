"""Fetch and run a real Pulsar broker on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tools.cluster.cache import Cache
from tools.cluster.command_line import Parser, run
from tools.cluster.progress import Progress, open_progress
from tools.pulsar import local
from tools.pulsar.cluster import ensure_image
from tools.pulsar.fetch import (
    DEFAULT_RELEASE,
    RELEASES,
    Release,
    copy_jars,
    ensure_pulsar,
    hash_jars,
    render_lock,
)


def main() -> int:
    """Run the command line and return its exit code."""
    parser = Parser(prog="./dev pulsar", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser(
        "fetch", help="print the folder of the broker, for SLIPWAY_PULSAR"
    )
    running = commands.add_parser(
        "up", help="start a broker in the background and print its addresses"
    )
    running.add_argument(
        "--port", type=int, default=local.PORT, help=f"port for clients. Defaults to {local.PORT}"
    )
    running.add_argument(
        "--http-port",
        type=int,
        default=local.HTTP_PORT,
        help=f"port of the admin API. Defaults to {local.HTTP_PORT}",
    )
    commands.add_parser("down", help="stop the broker; its data is kept")
    commands.add_parser(
        "image", help="build the image of a broker for clusters, and print its name"
    )
    locking = commands.add_parser("lock", help="write the lockfile of a release from its pom")
    for command in (fetching, locking):
        command.add_argument(
            "--release",
            choices=RELEASES,
            default=DEFAULT_RELEASE.name,
            help=f"release of Pulsar. Defaults to {DEFAULT_RELEASE.name}. One of",
        )
    options = parser.parse_args()
    cache = Cache()
    progress = open_progress("pulsar", cache)
    match options.command:
        case "fetch":
            print(ensure_pulsar(progress, cache, release=RELEASES[options.release]))
        case "up":
            broker = local.up(progress, cache, (options.port, options.http_port))
            print(f"{broker.service_url} {broker.admin_url}")
        case "down":
            print("stopped" if local.down(cache) else "not running")
        case "image":
            print(ensure_image(progress, cache))
        case _:
            _write_lock(progress, RELEASES[options.release])
    return 0


def _write_lock(progress: Progress, release: Release) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        copy_jars(Path(scratch), progress, release)
        release.lock.write_text(render_lock(hash_jars(Path(scratch)), release))


if __name__ == "__main__":
    raise SystemExit(run(main))
