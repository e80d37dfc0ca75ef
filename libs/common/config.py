"""How to reach a cluster: in-cluster service account or kubeconfig, read by the official client.

`kubernetes.aio.config` knows exec plugins, OIDC, token files and their refresh; this module only
turns what it found into what our client and kopf need.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config, kube_config
from kubernetes.aio.config.config_exception import ConfigException

from libs.common.errors import ConfigError

log = structlog.get_logger(__name__)

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

type HeaderSource = Callable[[], Awaitable[str]]
"""Give the value of the `Authorization` header that is valid now; empty for none."""


async def _no_authorization() -> str:
    return ""


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

    def ssl_context(self) -> ssl.SSLContext | None:
        """Build the TLS context; None for a plain HTTP server.

        Raises:
            ConfigError: A certificate file cannot be read.
        """
        if not self.server.startswith("https:"):
            return None
        if self.tls is not None:
            return self.tls
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except (OSError, ssl.SSLError) as err:
            raise ConfigError(f"Cannot load the certificates for {self.server}: {err}") from err
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
        incluster_config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # the official client is not annotated
    except ConfigException as err:
        raise ConfigError(f"Cannot use the pod's service account: {err}") from err
    namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
    return _from_configuration(configuration, namespace, _token_source(configuration))


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
    return ConnectionConfig(
        server=configuration.host.rstrip("/"),
        verify=bool(configuration.verify_ssl),
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        authorization=authorization,
        namespace=namespace,
        tls_server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
    )


def _token_source(configuration: Configuration) -> HeaderSource:
    async def authorization() -> str:
        # The hook of the official client reads the token file again each minute: bound service
        # account tokens are rotated by the kubelet.
        token = await configuration.get_api_key_with_prefix("BearerToken")
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
