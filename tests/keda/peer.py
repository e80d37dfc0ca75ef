"""KEDA: its operator and metrics server as processes on a real control plane."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import pytest
import yaml

from libs.common.client import Client
from libs.common.kinds import NAMESPACE, SERVICE, Kind, build_object
from libs.common.testing.apiserver import AssetsMissing, ControlPlane, find_assets
from libs.common.testing.certificates import create_certificates
from libs.common.testing.ports import find_free_port
from libs.common.testing.processes import stop_process
from libs.common.testing.serving import serve
from tools.cluster.binaries import find_tool
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress
from tools.cluster.versions import KEDA_MODULE

HOME: Final = "keda"
"""The namespace of KEDA."""
_API_SERVICE: Final = Kind(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False
)
_SERVICE: Final = "keda-metrics-apiserver"
_FRONT_PROXY: Final = "front-proxy"
_CONTROLLERS: Final = ("horizontal-pod-autoscaler-controller", "garbage-collector-controller")
_STOP_SECONDS: Final = 30.0


def find_keda() -> tuple[Path, Path]:
    """Return the operator and the metrics server of KEDA; skip the tests if one is not built."""
    names = ("keda-operator", "keda-adapter")
    operator, adapter = (find_tool(name) for name in names)
    if operator is None or adapter is None:
        pytest.skip(f"KEDA is not built; run `python -m tools.cluster.binaries {' '.join(names)}`")
    return operator, adapter


@contextmanager
def run_plane(certificates: Path) -> Iterator[ControlPlane]:
    """Run a control plane that scales by external metrics and has aggregated APIs.

    Args:
        certificates: Folder of `create_keda_certificates`.
    """
    try:
        missing = not (find_assets() / "kube-controller-manager").exists()
    except AssetsMissing as err:
        pytest.skip(str(err))
    if missing:
        pytest.skip("the binaries for tests, as others publish them, lack kube-controller-manager")
    flags = (
        f"--requestheader-client-ca-file={certificates / 'ca.crt'}",
        f"--requestheader-allowed-names={_FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificates / _FRONT_PROXY}.crt",
        f"--proxy-client-key-file={certificates / _FRONT_PROXY}.key",
    )
    with ControlPlane(apiserver_args=flags) as plane:
        plane.start_controller_manager(
            f"--controllers={','.join(_CONTROLLERS)}",
            # The default is 15 s.
            "--horizontal-pod-autoscaler-sync-period=1s",
        )
        yield plane


def create_keda_certificates(folder: Path) -> Path:
    """Write the certificates of KEDA, and of the API server as its client."""
    names = ("localhost", f"{_SERVICE}.{HOME}.svc")
    return create_certificates(folder, names=names, clients=(_FRONT_PROXY,))


class Keda:
    """KEDA as two processes.

    Args:
        plane: Control plane with its kinds; see `install`.
        certificates: Folder of `create_keda_certificates`.
        folder: Folder for logs and a kubeconfig.
    """

    def __init__(self, plane: ControlPlane, certificates: Path, folder: Path) -> None:
        """Choose ports; `start_operator` and `start_adapter` start."""
        self._operator, self._adapter = find_keda()
        self._certificates, self._folder = certificates, folder
        self._kubeconfig = plane.write_kubeconfig(folder / "kubeconfig")
        self._port, self._metrics_port = find_free_port(), find_free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start both."""
        self.start_operator()
        self.start_adapter()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both."""
        for name in [*self._processes]:
            self._stop(name)

    async def install(self, client: Client) -> None:
        """Serve the kinds of KEDA, and its metrics as an aggregated API."""
        go = ensure_go(open_progress("keda"))
        paths = sorted((go.module_directory(KEDA_MODULE) / "config/crd/bases").glob("*.yaml"))
        await serve(client, *(yaml.safe_load(path.read_text()) for path in paths))
        await client.create(NAMESPACE, build_object(NAMESPACE, HOME))
        # Endpoints may not be addresses of the loopback interface, but a name may lead there.
        spec = {"type": "ExternalName", "externalName": "localhost"}
        await client.create(SERVICE, build_object(SERVICE, _SERVICE, HOME, spec=spec))
        authority = base64.b64encode((self._certificates / "ca.crt").read_bytes()).decode()
        api = {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": authority,
            "service": {"name": _SERVICE, "namespace": HOME, "port": self._metrics_port},
        }
        name = "v1beta1.external.metrics.k8s.io"
        await client.create(_API_SERVICE, build_object(_API_SERVICE, name, spec=api))

    def start_operator(self) -> None:
        """Start the operator."""
        self._start(
            "operator",
            self._operator,
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            f"--metrics-service-bind-address=localhost:{self._port}",
            f"--cert-dir={self._certificates}",
        )

    def stop_operator(self) -> None:
        """Stop the operator."""
        self._stop("operator")

    def start_adapter(self) -> None:
        """Start the metrics server."""
        kubeconfig = self._kubeconfig
        self._start(
            "adapter",
            self._adapter,
            "--bind-address=127.0.0.1",
            f"--secure-port={self._metrics_port}",
            f"--port={find_free_port()}",
            f"--metrics-service-address=localhost:{self._port}",
            f"--cert-dir={self._certificates}",
            f"--client-ca-file={self._certificates / 'ca.crt'}",
            f"--tls-cert-file={self._certificates / 'tls.crt'}",
            f"--tls-private-key-file={self._certificates / 'tls.key'}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
        )

    def stop_adapter(self) -> None:
        """Stop the metrics server."""
        self._stop("adapter")

    def log(self, name: str) -> str:
        """Return what `operator` or `adapter` logged."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, program: Path, *words: str) -> None:
        environ: Mapping[str, str] = {
            "KUBECONFIG": str(self._kubeconfig),
            "KEDA_CLUSTER_OBJECT_NAMESPACE": HOME,
            "POD_NAMESPACE": HOME,
            "WATCH_NAMESPACE": "",
        }
        with (self._folder / f"{name}.log").open("ab") as stream:
            self._processes[name] = subprocess.Popen(
                [str(program), *words], env=os.environ | environ, stdout=stream, stderr=stream
            )

    def _stop(self, name: str) -> None:
        stop_process(self._processes.pop(name), _STOP_SECONDS)
