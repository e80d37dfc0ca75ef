"""How to reach a cluster: the service account of the pod, or a kubeconfig.

`libs/common/kubeconfig.py` reads kubeconfigs with the official client, which supports OIDC and its
refresh; this module converts the result for our client and kopf. The official client is imported
only if a kubeconfig is read: it takes 20 MiB and a third of the start-up time, and pods do not need
it. Credentials are never cached permanently: the token is requested before each request,
and certificates are checked for changes before each connection.
"""

from __future__ import annotations

import math
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from libs.common.errors import ConfigError
from libs.common.proxies import check_proxy, find_proxy
from libs.common.tls import RenewingContext

if TYPE_CHECKING:
    from libs.common.kubeconfig import Kubeconfig

log = structlog.get_logger(__name__)

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"

type HeaderSource = Callable[[], Awaitable[str]]
"""Return the current value of the `Authorization` header; empty for none."""


async def _no_authorization() -> str:
    return ""


class TlsFiles(NamedTuple):
    """Files for TLS connections; empty for none."""

    ca: str = ""
    """Trusted certificate authorities; empty for the authorities of the system."""
    cert: str = ""
    """Client certificate."""
    key: str = ""
    """Key of the client certificate."""


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Address and credentials of an API server.

    Attributes:
        server: URL of the API server, such as `https://10.0.0.1:443`.
        verify: Whether the server's certificate is checked.
        ca_file: File with the certificate authorities; empty for the authorities of the system.
        cert_file: File with the client certificate; empty for none.
        key_file: File with the key of the client certificate.
        authorization: Returns the `Authorization` header; called before each request. Its method
            `refuse`, if it has one, is called after the API server refused the header.
        namespace: Namespace of the context or of the pod; `default` if neither has one.
        tls_server_name: Name to check the certificate against, if it is not the host.
        proxy: URL of an HTTP proxy; empty for none.
        tls: TLS context to use unchanged, for credentials that are not in files; None builds one.
        find_files: Returns the current files if they can be replaced; None for the files above.
        impersonation: Headers with which the API server acts for another user; part of each
            request.
    """

    server: str
    verify: bool = True
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    authorization: HeaderSource = field(default=_no_authorization, compare=False)
    namespace: str = "default"
    tls_server_name: str = ""
    proxy: str = ""
    tls: ssl.SSLContext | None = field(default=None, compare=False)
    find_files: Callable[[], TlsFiles] | None = field(default=None, compare=False)
    impersonation: tuple[tuple[str, str], ...] = ()

    def ssl_context(self) -> ssl.SSLContext | None:
        """Build a TLS context that reloads changed files; None for a plain HTTP server.

        Raises:
            ConfigError: A certificate file cannot be read.
        """
        if not self.server.startswith("https:"):
            return None
        if self.tls is not None:
            return self.tls
        return RenewingContext(self._load, self._files)

    def refuse_credentials(self) -> None:
        """Reload the credentials because the API server refused them."""
        refuse = getattr(self.authorization, "refuse", None)
        if refuse is not None:
            refuse()

    def _files(self) -> TlsFiles:
        if self.find_files is not None:
            return self.find_files()
        return TlsFiles(self.ca_file, self.cert_file, self.key_file)

    def _load(self) -> ssl.SSLContext:
        files = self._files()
        try:
            context = ssl.create_default_context(cafile=files.ca or None)
            if files.cert:
                context.load_cert_chain(files.cert, files.key or None)
        except (OSError, ssl.SSLError) as err:
            raise ConfigError(f"Cannot load the certificates for {self.server}: {err}") from err
        # Authorities of many clusters, such as older ones of EKS, lack extensions that Python 3.13
        # insists on and client-go does not. Chain, time and host are checked all the same.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def load_config(kubeconfig: str = "", context: str = "") -> ConnectionConfig:
    """Load the connection from the given kubeconfig, the service account, or ~/.kube/config.

    Args:
        kubeconfig: Path of a kubeconfig; if empty, KUBECONFIG and the default locations are tried.
        context: Context of the kubeconfig; empty for the current context.

    Raises:
        ConfigError: No usable configuration was found; the message says what to set.
    """
    explicit = kubeconfig or context or os.environ.get("KUBECONFIG")
    if not explicit and os.environ.get(_HOST):
        return _load_incluster()
    return await _load_kubeconfig(kubeconfig, context)


def _load_incluster() -> ConnectionConfig:
    folder = _SERVICE_ACCOUNT
    host, port = os.environ[_HOST], os.environ.get(_PORT) or "443"
    token, authority = folder / "token", folder / "ca.crt"
    for path in (token, authority):
        try:
            empty = not path.read_text().strip()
        except OSError as err:
            raise ConfigError(f"Cannot use the pod's service account: {err}") from err
        if empty:
            raise ConfigError(f"Cannot use the pod's service account: {path} is empty")
    namespace = folder / "namespace"
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return ConnectionConfig(
        server=server,
        proxy=find_proxy(server),
        ca_file=str(authority),
        authorization=_TokenFile(token),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


async def _load_kubeconfig(paths: str, context: str) -> ConnectionConfig:
    try:
        from kubernetes.aio.config import kube_config

        from libs.common.kubeconfig import Kubeconfig
    except ModuleNotFoundError as err:
        raise ConfigError(
            f"Cannot read a kubeconfig: {err}; pip install 'slipway-operators[kubeconfig]'"
        ) from err
    paths = paths or os.environ.get("KUBECONFIG") or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    kubeconfig = Kubeconfig(paths, context)
    try:
        await kubeconfig.read()
        return _from_kubeconfig(kubeconfig, _Kubeconfig(kubeconfig, paths))
    except Exception as err:
        # A broken file can raise any error, because the official client does not validate it.
        raise ConfigError(
            f"Cannot use the kubeconfig {paths}: {err}; set --kubeconfig or KUBECONFIG, "
            "or run in a pod with a service account"
        ) from err


def _from_kubeconfig(kubeconfig: Kubeconfig, authorization: HeaderSource) -> ConnectionConfig:
    def find_files() -> TlsFiles:
        # A reloaded kubeconfig can name other files: inline certificates are written to new files.
        configuration = kubeconfig.configuration
        return TlsFiles(
            configuration.ssl_ca_cert or "",
            configuration.cert_file or "",
            configuration.key_file or "",
        )

    configuration = kubeconfig.configuration
    server = configuration.host.rstrip("/")
    files = find_files()
    return ConnectionConfig(
        server=server,
        verify=bool(configuration.verify_ssl),
        ca_file=files.ca,
        cert_file=files.cert,
        key_file=files.key,
        authorization=authorization,
        namespace=kubeconfig.namespace,
        tls_server_name=configuration.tls_server_name or "",
        proxy=check_proxy(configuration.proxy or "", "proxy-url") or find_proxy(server),
        find_files=find_files,
        impersonation=kubeconfig.impersonation,
    )


class _TokenFile:
    """The token in a file, read again each minute because the kubelet rotates it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = f"Bearer {path.read_text().strip()}"
        self._reload = _Reload()

    async def __call__(self) -> str:
        if self._reload.is_due():
            try:
                token, error = self._path.read_text().strip(), "the file is empty"
            except OSError as err:
                token, error = "", str(err)
            if token:
                self._token = f"Bearer {token}"
            else:
                # The file cannot be read at the moment; the old token may still be valid.
                log.warning(
                    "Cannot reload the credentials, keeping the old ones",
                    token=str(self._path),
                    error=error,
                )
        return self._token

    def refuse(self) -> None:
        """Read the file again before the next request."""
        self._reload.ask()


class _Kubeconfig:
    """The credentials of a kubeconfig, reloaded each minute."""

    def __init__(self, kubeconfig: Kubeconfig, paths: str) -> None:
        self._kubeconfig = kubeconfig
        self._paths = paths
        self._reload = _Reload()
        self._failure: ConfigError | None = None

    async def __call__(self) -> str:
        if self._reload.is_due():
            try:
                await self._kubeconfig.read()
                self._failure = None
            except ConfigError as err:
                # Without a credential, requests would be anonymous or refused.
                self._failure = ConfigError(f"Cannot use the kubeconfig {self._paths}: {err}")
            except Exception as err:  # noqa: BLE001 as above; the present credentials may live on
                log.warning(
                    "Cannot reload the credentials, keeping the old ones",
                    kubeconfig=self._paths,
                    error=str(err),
                )
        if self._failure is not None:
            self._reload.ask()
            raise self._failure
        configuration = self._kubeconfig.configuration
        return _bearer(await configuration.get_api_key_with_prefix("BearerToken"))

    def refuse(self) -> None:
        """Reload the kubeconfig before the next request."""
        self._kubeconfig.forget_credential()
        self._reload.ask()


class _Reload:
    """Decides when credentials must be read again."""

    def __init__(self) -> None:
        self._read_at = time.monotonic()
        self._refused = False
        self._refused_at = -math.inf

    def ask(self) -> None:
        """Request a reload because the credentials were refused; at most once a second."""
        now = time.monotonic()
        if now - self._refused_at > _REFUSED_SECONDS:
            self._refused, self._refused_at = True, now

    def is_due(self) -> bool:
        if not self._refused and time.monotonic() - self._read_at <= _RELOAD_SECONDS:
            return False
        self._read_at, self._refused = time.monotonic(), False
        return True


def _bearer(token: str | None) -> str:
    if not token:
        return ""
    scheme, _, credentials = token.partition(" ")
    # The scheme in the kubeconfig may be in lower case.
    return f"Bearer {credentials}" if scheme.lower() == "bearer" else token


_RELOAD_SECONDS: Final = 60.0
_REFUSED_SECONDS: Final = 1.0
"""Minimum time between two reloads of refused credentials: a plugin may be slow."""
