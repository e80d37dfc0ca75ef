"""A podset process with nothing to do, and the memory of its parts.

It runs what the image runs, with probes, metrics and leader election. Only the address of the API
server is a parameter, because a kubeconfig needs the official client, which no pod loads.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from typing import Final
from unittest.mock import patch

from lab.bench.library_process import hide_tools
from lab.bench.processes import STOP_SECONDS, read_usage
from libs.common.testing.ports import find_free_port
from libs.common.testing.processes import stop_process

_MODULE: Final = "lab.bench.library_rest"
_WORKING: Final = "operator_working 1.0"
_START_SECONDS: Final = 120.0
_REST_SECONDS: Final = 10.0
_PARTS: Final = (
    ("Python", ("asyncio", "ssl")),
    ("uvloop", ("uvloop",)),
    ("aiohttp", ("aiohttp.web",)),
    ("pydantic", ("pydantic", "pydantic_settings")),
    ("kopf", ("kopf",)),
    ("structlog, prometheus_client, orjson", ("structlog", "prometheus_client", "orjson")),
    ("library", ("libs.common.runtime",)),
    ("podset", ("operators.podset.controller",)),
)
"""Modules by the part that they are of, in the order of their imports."""

type Figures = dict[str, float]


def measure_rest(url: str) -> Figures:
    """Run podset until it has worked for some seconds, and return its memory.

    Raises:
        TimeoutError: It does not start.
    """
    addresses = [f"127.0.0.1:{find_free_port()}" for _ in range(2)]
    command = [sys.executable, "-m", "lab.bench.library_process", _MODULE]
    process = subprocess.Popen([*command, url, *addresses])
    try:
        _wait_working(f"http://{addresses[0]}/metrics")
        time.sleep(_REST_SECONDS)
        usage = read_usage(process.pid)
        return {"resident MiB": usage.memory_mib, "of which files MiB": usage.files_mib}
    finally:
        stop_process(process, STOP_SECONDS)


def measure_parts() -> Figures:
    """Return what each part of the process adds to its memory when it is imported, in MiB."""
    done = subprocess.run([sys.executable, "-m", _MODULE], stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def _wait_working(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                if _WORKING in response.read().decode().splitlines():
                    return
        except OSError:
            pass  # It does not listen yet.
        time.sleep(0.1)
    raise TimeoutError(f"podset does not work after {_START_SECONDS:.0f} s")


def main(arguments: Sequence[str]) -> int:
    """Run podset.

    Args:
        arguments: URL of the API server, address of metrics, address of probes.
    """
    url, metrics, probes = arguments
    from libs.common.config import ConnectionConfig
    from libs.common.runtime import operator
    from operators.podset.controller import OPERATOR

    async def load_config(*_: str) -> ConnectionConfig:
        return ConnectionConfig(url)

    flags = {"metrics-bind-address": metrics, "health-probe-bind-address": probes}
    words = [f"--{name}={value}" for name, value in flags.items()]
    with patch.object(operator, "load_config", load_config):
        return operator.main(OPERATOR, [*words, "--log-level=error"])


def _print_parts() -> None:
    hide_tools()
    # As `libs.common.runtime.light_kopf` does it, whose package imports the whole library.
    sys.modules["kubernetes"] = None  # type: ignore[assignment]  # None makes an import fail
    figures: Figures = {}
    before = 0.0
    for part, modules in _PARTS:
        for module in modules:
            importlib.import_module(module)
        now = read_usage(os.getpid()).memory_mib
        figures[part] = now - before
        before = now
    print(json.dumps(figures))


if __name__ == "__main__":
    _print_parts()
