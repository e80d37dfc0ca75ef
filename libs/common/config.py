"""How to reach a cluster: in-cluster service account or kubeconfig, read by the official client.

`kubernetes.aio.config` knows exec plugins, OIDC, token files and their refresh; this module only
turns what it found into what our client and kopf need. Nothing is read once for all: tokens are
asked for before each request, certificates are looked at before each connection.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config, kube_config
from kubernetes.aio.config.config_exception import ConfigException

from libs.common.errors import ConfigError
from libs.common.tls import RenewingContext

log = structlog.get_logger(__name__)

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

type HeaderSource = Callable[[], Awaitable[str]]
"""Give the value of the `Authorization` header that is valid now; empty for none."""


async def _no_authorization() -> str:
    return ""


class TlsFiles(NamedTuple):
    """Name the files that a TLS connection is made with; empty for none."""

    ca: str = ""
    """Certificates that the server's must come from; empty for those of the system."""
    cert: str = ""
    """Client certificate."""
    key: str = ""
    """Key of the client certificate."""


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Hold what a client needs to talk to one API server.

    Attributes:
        server: URL of the API server, such as `https://10.0.0.1:443`.
        verify: Whether the server's certificate is checked.
        ca_file: File with the certificate authority; empty for the system's.
        cert_file: File with the client certificate; empty for none.
        key_file: File with the key of the client certificate.
        authorization: Gives the `Authorization` header; asked before each request.
        namespace: Namespace of the context or of the pod; `default` when nothing says.
        tls_server_name: Name to check the certificate against, when it is not the host.
        proxy: URL of an HTTP proxy; empty for none.
        tls: TLS context to use as it is, for credentials that are in no file; None builds one.
        find_files: Names the files of now, where others may take their place; None for those above.
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

    def ssl_context(self) -> ssl.SSLContext | None:
        """Build a TLS context, which follows its files; None for a plain HTTP server.

        Raises:
            ConfigError: A certificate file cannot be read.
        """
        if not self.server.startswith("https:"):
            return None
        if self.tls is not None:
            return self.tls
        return RenewingContext(self._load, self._files)

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
    """Find the connection: the kubeconfig given, the pod's service account, or ~/.kube/config.

    Args:
        kubeconfig: Path of a kubeconfig; empty looks at KUBECONFIG and the usual places.
        context: Context of the kubeconfig; empty takes its current one.

    Raises:
        ConfigError: Nothing usable was found; the message says what to set.
    """
    explicit = kubeconfig or context or os.environ.get("KUBECONFIG")
    if not explicit and os.environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
        return _load_incluster()
    return await _load_kubeconfig(kubeconfig, context)


def _load_incluster() -> ConnectionConfig:
    configuration = Configuration()
    try:
        incluster_config.load_incluster_config(  # type: ignore[no-untyped-call]  # the official client is not annotated
            configuration, try_refresh_token=False
        )
    except ConfigException as err:
        raise ConfigError(f"Cannot use the pod's service account: {err}") from err
    namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
    source = _token_source(configuration, Path(incluster_config.SERVICE_TOKEN_FILENAME))
    return _from_configuration(configuration, namespace, source)


async def _load_kubeconfig(kubeconfig: str, context: str) -> ConnectionConfig:
    paths = kubeconfig or os.environ.get("KUBECONFIG") or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    configuration = Configuration()
    try:
        loader = await kube_config.load_kube_config(  # type: ignore[no-untyped-call]  # as above
            config_file=paths, context=context or None, client_configuration=configuration
        )
    except Exception as err:
        # A broken file may be any error: the official client parses without looking.
        raise ConfigError(
            f"Cannot use the kubeconfig {paths}: {err}; set --kubeconfig or KUBECONFIG, "
            "or run in a pod with a service account"
        ) from err
    current = loader.current_context.get("context", {}) if loader else {}
    source = _reloading_source(configuration, paths, context)
    return _from_configuration(configuration, current.get("namespace") or "default", source)


def _from_configuration(
    configuration: Configuration, namespace: str, authorization: HeaderSource
) -> ConnectionConfig:
    def find_files() -> TlsFiles:
        # A kubeconfig that is loaded again may name others, as certificates that are in it do.
        return TlsFiles(
            configuration.ssl_ca_cert or "",
            configuration.cert_file or "",
            configuration.key_file or "",
        )

    files = find_files()
    return ConnectionConfig(
        server=configuration.host.rstrip("/"),
        verify=bool(configuration.verify_ssl),
        ca_file=files.ca,
        cert_file=files.cert,
        key_file=files.key,
        authorization=authorization,
        namespace=namespace,
        tls_server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
        find_files=find_files,
    )


def _token_source(configuration: Configuration, path: Path) -> HeaderSource:
    """Read the token again each minute: the kubelet rotates those of service accounts.

    The official client does so by the time of day, which may be set back for hours, and has a
    request fail for a file that cannot be read in one moment.
    """
    token = configuration.api_key.get("BearerToken")
    read_at = time.monotonic()

    async def authorization() -> str:
        nonlocal token, read_at
        if time.monotonic() - read_at > _RELOAD_SECONDS:
            read_at = time.monotonic()
            try:
                token = f"Bearer {path.read_text().strip()}"
            except OSError as err:
                log.warning("Keeping the credentials", token=str(path), error=str(err))
        return _bearer(token)

    return authorization


def _reloading_source(configuration: Configuration, paths: str, context: str) -> HeaderSource:
    """Load the kubeconfig again each minute: exec plugins and OIDC tokens expire."""
    loaded_at = time.monotonic()

    async def authorization() -> str:
        nonlocal loaded_at
        if time.monotonic() - loaded_at > _RELOAD_SECONDS:
            loaded_at = time.monotonic()
            try:
                await kube_config.load_kube_config(  # type: ignore[no-untyped-call]  # as above
                    config_file=paths, context=context or None, client_configuration=configuration
                )
            except Exception as err:  # noqa: BLE001 as above; the present credentials may live on
                log.warning("Keeping the credentials", kubeconfig=paths, error=str(err))
        token = await configuration.get_api_key_with_prefix("BearerToken")
        return _bearer(token)

    return authorization


def _bearer(token: str | None) -> str:
    if not token:
        return ""
    scheme, _, credentials = token.partition(" ")
    # The in-cluster loader of the official client writes the scheme in lower case.
    return f"Bearer {credentials}" if scheme.lower() == "bearer" else token


_RELOAD_SECONDS: Final = 60.0
