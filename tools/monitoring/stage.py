"""A stage for recordings: a real API server, operators as processes, and Prometheus."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.bench.processes import STOP_SECONDS, OperatorProcess
from libs.common.client import Client
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.ports import find_free_port
from libs.common.testing.processes import stop_process
from tools.cluster.errors import ToolError
from tools.cluster.prometheus import ensure_prometheus
from tools.monitoring.manifests import SCRAPE_SECONDS

NAMESPACE: Final = "default"
_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Stage:
    """What the load of an operator acts on.

    Attributes:
        plane: The API server.
        client: A client with all permissions.
        folder: Folder for files of the load.
    """

    plane: ControlPlane
    client: Client
    folder: Path


@contextmanager
def run_operator(
    plane: ControlPlane, operator: str, folder: Path, **settings: str
) -> Iterator[int]:
    """Run an operator for the duration of a block, and return the port of its metrics."""
    port = find_free_port()
    kubeconfig = plane.write_kubeconfig(folder / f"{operator}.kubeconfig", namespace=NAMESPACE)
    chosen = {
        "WATCH_NAMESPACES": NAMESPACE,
        "POD_NAMESPACE": NAMESPACE,
        "LEADER_ELECT": "true",
        "METRICS_BIND_ADDRESS": f"127.0.0.1:{port}",
        **settings,
    }
    with OperatorProcess(operator, kubeconfig, chosen, folder / f"{operator}.log"):
        yield port


@contextmanager
def run_prometheus(ports: Mapping[str, int], folder: Path) -> Iterator[str]:
    """Run Prometheus for the duration of a block, and return its address.

    Args:
        ports: Ports of the operators on this machine.
        folder: Folder for its configuration and its data.
    """
    port = find_free_port()
    (folder / "prometheus.yml").write_text(json.dumps(_build_config(ports)))
    command = [
        str(ensure_prometheus() / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_ready(f"{address}/-/ready", process)
        yield address
    finally:
        stop_process(process, STOP_SECONDS)


def _build_config(ports: Mapping[str, int]) -> Mapping[str, object]:
    """Build the configuration, with the labels that a ServiceMonitor sets."""
    interval = f"{SCRAPE_SECONDS}s"
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": [
            {
                "job_name": operator,
                "static_configs": [
                    {
                        "targets": [f"127.0.0.1:{port}"],
                        "labels": {"namespace": NAMESPACE, "pod": f"{operator}-0"},
                    }
                ],
            }
            for operator, port in ports.items()
        ],
    }


def _wait_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return
        time.sleep(_POLL_SECONDS)
    raise ToolError(f"Prometheus did not become ready in {_START_SECONDS:.0f} s")
