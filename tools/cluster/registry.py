"""A registry for tests: Debian's package of the CNCF registry, without a login and without TLS."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_connection
from typing import Final

from libs.common.testing.ports import find_free_port
from libs.common.testing.processes import stop_process
from tools.cluster import debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError

_PACKAGE: Final = "docker-registry"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0


@contextmanager
def run_registry(folder: Path) -> Iterator[str]:
    """Run a registry for the duration of a block, and return its host and port.

    Args:
        folder: Folder for what is pushed, its configuration and its log.

    Raises:
        ToolError: The package cannot be had, or the registry does not start.
    """
    port = find_free_port()
    address = f"127.0.0.1:{port}"
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": address},
    }
    (folder / "config.json").write_text(json.dumps(config))
    command = [str(_ensure_program()), "serve", str(folder / "config.json")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_open(port, process, folder / "log")
        yield address
    finally:
        stop_process(process, _STOP_SECONDS)


def _ensure_program() -> Path:
    def build(directory: Path) -> None:
        debian.extract_package(_PACKAGE, directory)

    try:
        key = digest_of(_PACKAGE, Path("/etc/debian_version"))
        root = Cache().ensure(_PACKAGE, key, build, lambda: None)
    except OSError as err:
        raise ToolError(f"Debian's package {_PACKAGE} is not available: {err}") from err
    return root / "usr" / "bin" / _PACKAGE


def _wait_until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), create_connection(("127.0.0.1", port), timeout=10):
            return
        time.sleep(0.1)
    raise ToolError(f"The registry did not start, see {log}")
