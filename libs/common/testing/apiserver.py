"""A real control plane for tests and benchmarks: etcd and kube-apiserver as local processes.

The binaries are looked up as envtest does, in the folder that KUBEBUILDER_ASSETS names
(`./dev test` sets it). Nothing runs but what is asked for: without the controller manager nobody
collects garbage or deletes namespaces, and without nodes no pod ever runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Self

import yaml

from libs.common.config import ConnectionConfig
from libs.common.testing.ports import find_free_port
from libs.common.testing.processes import stop_process

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 60.0


class AssetsMissing(Exception):
    """The control plane binaries were not found."""

    def __init__(self, missing: Sequence[str]) -> None:
        """Say which, and how to get them."""
        super().__init__(
            f"Cannot find {', '.join(missing)}; set {ASSETS_VARIABLE} to a folder with etcd and "
            "kube-apiserver (`./dev test` does)"
        )


def find_assets() -> Path:
    """Return the folder of the control plane binaries.

    Raises:
        AssetsMissing: The variable is not set, or the folder lacks a binary.
    """
    folder = Path(os.environ.get(ASSETS_VARIABLE) or "/usr/local/kubebuilder/bin")
    missing = [name for name in ("etcd", "kube-apiserver") if not (folder / name).exists()]
    if missing:
        raise AssetsMissing(missing)
    return folder


class ControlPlane:
    """An etcd and a kube-apiserver on free ports of the loopback address.

    Args:
        assets: Folder of the binaries; None looks them up.
        apiserver_args: Further flags of kube-apiserver.
        durable: Whether etcd waits for the disk; off it is several times faster.
    """

    def __init__(
        self,
        assets: Path | None = None,
        *,
        apiserver_args: Sequence[str] = (),
        durable: bool = False,
    ) -> None:
        """Choose ports and folders; `start` starts."""
        self._assets = assets or find_assets()
        self._folder = Path(tempfile.mkdtemp(prefix="control-plane-"))
        self._args = tuple(apiserver_args)
        self._durable = durable
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []
        self._token = secrets.token_hex(16)
        self._etcd_port, self._peer_port, self._port = (
            find_free_port(),
            find_free_port(),
            find_free_port(),
        )

    def __enter__(self) -> Self:
        """Start, and return the running control plane."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and remove what was stored."""
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each component, by its name."""
        return {name: process.pid for name, process in self._processes.items()}

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def etcd_url(self) -> str:
        """URL of etcd, for who counts keys without asking the API server."""
        return f"http://127.0.0.1:{self._etcd_port}"

    @property
    def config(self) -> ConnectionConfig:
        """Connection with all rights."""
        return self.config_for(self._token)

    def config_for(self, token: str) -> ConnectionConfig:
        """Return a connection that logs in with a token, such as one of a service account."""

        async def authorization() -> str:
            return f"Bearer {token}"

        certificate = str(self._folder / "certs" / "apiserver.crt")
        return ConnectionConfig(self.url, ca_file=certificate, authorization=authorization)

    def write_kubeconfig(self, path: Path, token: str = "", namespace: str = "default") -> Path:
        """Write a kubeconfig for this API server; without a token, with all rights."""
        cluster = {
            "server": self.url,
            "certificate-authority": str(self._folder / "certs" / "apiserver.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token or self._token}}],
            "contexts": [
                {
                    "name": "test",
                    "context": {"cluster": "test", "user": "test", "namespace": namespace},
                }
            ],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    def start(self) -> None:
        """Start etcd and the API server, and wait until both are ready.

        Raises:
            TimeoutError: One of them did not become ready; the message has the end of its log.
        """
        self._write_credentials()
        self.start_etcd()
        self.start_apiserver()

    def start_etcd(self) -> None:
        """Start etcd, for the first time or after `kill`; the stored data remains."""
        client, peer = self.etcd_url, f"http://127.0.0.1:{self._peer_port}"
        args = [
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=error",
        ]
        if not self._durable:
            args.append("--unsafe-no-fsync")
        self._spawn("etcd", args)
        self._wait_ready("etcd", f"{client}/health")

    def start_apiserver(self) -> None:
        """Start the API server, for the first time or after `kill`."""
        self._spawn("kube-apiserver", [*self._apiserver_args(), *self._args])
        self._wait_ready("kube-apiserver", f"{self.url}/readyz")

    def start_controller_manager(self, *args: str) -> None:
        """Start kube-controller-manager with all rights, such as to collect garbage."""
        kubeconfig = self.write_kubeconfig(self._folder / "controller-manager.kubeconfig")
        key = self._folder / "sa.key"
        self._spawn(
            "kube-controller-manager",
            [
                f"--kubeconfig={kubeconfig}",
                "--leader-elect=false",
                f"--service-account-private-key-file={key}",
                f"--secure-port={find_free_port()}",
                f"--cert-dir={self._folder / 'controller-manager'}",
                *args,
            ],
        )

    def kill(self, name: str) -> None:
        """End one process without any warning, as a crash does."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def pid(self, name: str) -> int:
        """Return the process id of a part, such as to measure it."""
        return self._processes[name].pid

    def list_pids(self) -> list[int]:
        """Return the process ids of all parts that run now."""
        return [process.pid for process in list(self._processes.values())]

    def log(self, name: str) -> str:
        """Return what a part has logged."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        """Stop everything in the order in which it depends on each other, and clean up."""
        for name in reversed(list(self._processes)):
            process = self._processes.pop(name)
            stop_process(process, _STOP_SECONDS)
        for stream in self._logs:
            stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _apiserver_args(self) -> list[str]:
        key = self._folder / "sa.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self._folder / 'certs'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--allow-privileged=true",
            # Nobody makes the default service accounts that this plugin asks for.
            "--disable-admission-plugins=ServiceAccount",
        ]

    def _write_credentials(self) -> None:
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        tokens.chmod(0o600)
        subprocess.run(
            [
                "openssl",
                "genrsa",
                "-out",
                str(self._folder / "sa.key"),
                "2048",
            ],
            check=True,
            capture_output=True,
        )

    def _spawn(self, name: str, args: Sequence[str]) -> None:
        stream = (self._folder / f"{name}.log").open("ab")
        self._logs.append(stream)
        self._processes[name] = subprocess.Popen(
            [str(self._assets / name), *args],
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            cwd=self._folder,
        )

    def _wait_ready(self, name: str, url: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        # The certificate is made by the server that is being waited for.
        context = ssl._create_unverified_context()  # noqa: S323,SLF001 a loopback server of our own
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token}"})
        while time.monotonic() < deadline:
            if self._processes[name].poll() is not None:
                break
            try:
                with urllib.request.urlopen(request, timeout=2, context=context):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise TimeoutError(f"{name} did not become ready:\n{self.log(name)[-2000:]}")
