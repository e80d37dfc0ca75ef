"""A real Pulsar broker for tests, benchmarks and local work: standalone Pulsar as a local process.

Its jars are looked up in the folder that SLIPWAY_PULSAR names, as the control plane is in
KUBEBUILDER_ASSETS (`./dev test` sets both; `python -m tools.pulsar fetch` prints the folder). The
folder holds `lib/*.jar` and `java`, a link to a Java of version 17 or later.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Final, Self

from libs.common.testing.ports import find_free_port
from operators.pulsarconsumer.testing.security import SUPERUSER, build_security

ASSETS_VARIABLE: Final = "SLIPWAY_PULSAR"
"""Names the folder of the jars."""

_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 20.0
BUSY_SECONDS: Final = 30.0
"""Time for which tests repeat a request that the broker refuses temporarily."""
REPEATED: Final[list[str]] = []
"""Refusals after which a request was repeated; a test run shows them at its end."""
_HEAP: Final = ("-Xmx400m", "-XX:MaxDirectMemorySize=256m")
# Short-lived and on few cores: the second compiler and a parallel collector do not pay.
_QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.platform",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
MAIN: Final = (
    "org.apache.pulsar.PulsarStandaloneStarter",
    "--no-functions-worker",
    "--no-stream-storage",
)
"""Main class and flags: a broker with its bookie and metadata store, and nothing else."""
DEFAULTS: Final[Mapping[str, str]] = {
    "clusterName": "standalone",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "defaultNumberOfNamespaceBundles": "1",
    "loadBalancerEnabled": "false",
    "brokerShutdownTimeoutMs": "1000",
    # As in the standalone.conf of Pulsar: the default of bookies is less than the longest message.
    "nettyMaxFrameSizeBytes": "5253120",
    # Delayed messages are looked for this often; the default is a second.
    "delayedDeliveryTickTimeMillis": "100",
    # Topics of a test that nobody listens to yet must not go away.
    "brokerDeleteInactiveTopicsEnabled": "false",
    # Disks of machines for development are often fuller than the 95 % at which a bookie stops.
    "diskUsageThreshold": "0.999",
}
"""Configuration that makes one process a whole cluster, and waits short."""


class PulsarMissing(Exception):
    """The broker cannot be run here; the message says what to do."""

    def __init__(self, missing: str) -> None:
        """Say what is missing and how to get it."""
        super().__init__(
            f"Cannot find {missing}; set {ASSETS_VARIABLE} to the folder that "
            "`python -m tools.pulsar fetch` prints (`./dev test` does)"
        )


def find_pulsar() -> Path:
    """Return the folder of the broker.

    Raises:
        PulsarMissing: The variable is not set, or the folder lacks jars or Java.
    """
    folder = Path(os.environ.get(ASSETS_VARIABLE) or "/nonexistent")
    for name in ("lib", "java"):
        if not (folder / name).exists():
            raise PulsarMissing(f"{name} of a Pulsar broker")
    return folder


def java_command(java: str, lib: str) -> list[str]:
    """Return the words that run a standalone broker, without its configuration."""
    opens = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    return [java, *_HEAP, *_QUICK, *opens, "-cp", f"{lib}/*", *MAIN]


class Broker:
    """A standalone Pulsar on free ports of the loopback address.

    Idiomatic use:

        with Broker() as broker:
            client = pulsar.Client(broker.service_url)

    What it stored is kept from `stop` or `kill` to the next `start`, ports and all.

    Args:
        assets: Folder of the jars; None looks them up.
        config: Further lines of its configuration.
        tokens: Whether clients must show who they are: by a token, see `token`, or as
            `build_security` says.
        certificates: Folder of `create_certificates`; TLS is served in addition to plain text.
        ports: Port of the binary protocol and of HTTP; free ones by default.
        folder: Folder of its data; defaults to a folder that `close` removes.
    """

    def __init__(
        self,
        assets: Path | None = None,
        *,
        config: Mapping[str, str] | None = None,
        tokens: bool = False,
        certificates: Path | None = None,
        ports: tuple[int, int] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Choose ports and folders; `start` starts."""
        self._assets = assets or find_pulsar()
        self._temporary = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="pulsar-"))
        self._port, self._http = ports or (find_free_port(), find_free_port())
        self._tls_port, self._https = (
            (find_free_port(), find_free_port()) if certificates else (0, 0)
        )
        self._secret = secrets.token_bytes(32) if tokens else b""
        self._config = self._build_config(config or {}, certificates)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Start, and return the running broker."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and remove what was stored."""
        self.close()

    @property
    def release(self) -> str:
        """The first two numbers of its version, such as 4.0."""
        (jar,) = (self._assets / "lib").glob("pulsar-broker-[0-9]*.jar")
        return ".".join(jar.name.removeprefix("pulsar-broker-").split(".")[:2])

    @property
    def service_url(self) -> str:
        """Address for clients: `pulsar://...`."""
        return f"pulsar://127.0.0.1:{self._port}"

    @property
    def tls_url(self) -> str:
        """Address for clients that speak TLS: `pulsar+ssl://localhost:...`."""
        return f"pulsar+ssl://localhost:{self._tls_port}"

    @property
    def admin_url(self) -> str:
        """Address of the admin REST API."""
        return f"http://127.0.0.1:{self._http}"

    @property
    def admin_tls_url(self) -> str:
        """Address of the admin REST API by TLS: `https://localhost:...`."""
        return f"https://localhost:{self._https}"

    @property
    def pid(self) -> int:
        """Process id, such as to measure it; 0 while it does not run."""
        return self._process.pid if self._process else 0

    def token(self, role: str = SUPERUSER, seconds: float = 3600.0) -> str:
        """Return a token that the broker takes for a role, for some seconds from now."""
        claims = {"sub": role, "exp": int(time.time() + seconds)}
        parts = [_encode(json.dumps(part).encode()) for part in ({"alg": "HS256"}, claims)]
        signed = ".".join(parts)
        mark = hmac.new(self._secret, signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{_encode(mark)}"

    def start(self) -> None:
        """Start and wait until it takes messages; also again after `stop` or `kill`.

        Raises:
            TimeoutError: It did not become healthy; the message has the end of its log.
        """
        config = self._folder / "standalone.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._config.items()))
        config.chmod(0o600)
        command = java_command(str(self._assets / "java"), str(self._assets / "lib"))
        command += ["--config", str(config)]
        command += ["--metadata-dir", str(self._folder / "metadata")]
        command += ["--bookkeeper-dir", str(self._folder / "bookkeeper")]
        self._log = (self._folder / "broker.log").open("ab")
        self._process = subprocess.Popen(
            command,
            cwd=self._folder,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # An interrupt at the terminal is for the tests, which then stop the broker themselves.
            start_new_session=True,
        )
        self._wait_healthy()

    def stop(self) -> None:
        """Stop as a rolling update of a cluster does."""
        self._end(hard=False)

    def kill(self) -> None:
        """End without any warning, as a crash does."""
        self._end(hard=True)

    def close(self) -> None:
        """Stop, and remove what was stored."""
        # Nothing is kept, so that nothing need be written.
        self._end(hard=True)
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Call the admin API with all rights, such as `GET persistent/public/default/t/stats`.

        A request that the broker refuses temporarily is sent again, as the operator does.

        Raises:
            urllib.error.HTTPError: The broker refused.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        repeated = False
        while True:
            try:
                return self._call(method, path, body)
            except urllib.error.HTTPError as err:
                if repeated and method == "PUT" and err.code == HTTPStatus.CONFLICT:
                    return None  # An attempt that reported an error had created it.
                temporary = err.code >= HTTPStatus.INTERNAL_SERVER_ERROR
                if not temporary or time.monotonic() > deadline:
                    raise
                REPEATED.append(f"{method} {path}: status {err.code}: {err.read(2000)!r}")
            repeated = True
            time.sleep(0.2)

    def subscription(self, topic: str, subscription: str) -> dict[str, Any]:
        """Return what the broker knows of a subscription of a topic of public/default."""
        stats = self.request("GET", f"persistent/public/default/{topic}/stats")
        found: dict[str, Any] = stats["subscriptions"].get(subscription, {})
        return found

    def log(self) -> str:
        """Return what it has logged."""
        return (self._folder / "broker.log").read_text(errors="replace")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._secret:
            headers["Authorization"] = f"Bearer {self.token()}"
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v2/{path}",
            method=method,
            headers=headers,
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            text = response.read()
        return json.loads(text) if text else None

    def _build_config(self, config: Mapping[str, str], certificates: Path | None) -> dict[str, str]:
        built = {
            **DEFAULTS,
            "brokerServicePort": str(self._port),
            "webServicePort": str(self._http),
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
        }
        if certificates:
            # The name of the certificate, not the address of it.
            built["advertisedAddress"] = "localhost"
            built |= {
                "brokerServicePortTls": str(self._tls_port),
                "webServicePortTls": str(self._https),
                "tlsCertificateFilePath": str(certificates / "tls.crt"),
                "tlsKeyFilePath": str(certificates / "tls.key"),
            }
        if self._secret:
            authority = certificates / "ca.crt" if certificates else None
            token = self.token(seconds=86_400)
            built |= build_security(self._folder, self._secret, token, authority)
        return {**built, **config}

    def _wait_healthy(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                if self._takes_messages():
                    return
            time.sleep(0.1)
        tail = "\n".join(self.log().splitlines()[-30:])
        raise TimeoutError(f"The Pulsar broker did not become healthy:\n{tail}")

    def _takes_messages(self) -> bool:
        with contextlib.suppress(json.JSONDecodeError):  # The page says `ok`, which is no JSON.
            self._call("GET", "brokers/health")
        # It is created after the broker is healthy, and until then no topic in it is found.
        return "public/default" in self._call("GET", "namespaces/public")

    def _end(self, *, hard: bool) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill() if hard else process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
