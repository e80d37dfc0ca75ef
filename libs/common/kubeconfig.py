"""Kubeconfigs: the reader of the official client, with the rules of client-go where it differs.

The official reader ignores impersonation, and makes anonymous requests if a plugin fails. Import
this module only to read a kubeconfig: it imports the official client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import structlog
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import kube_config
from kubernetes.aio.config.exec_provider import ExecProvider

from libs.common.errors import ConfigError

log = structlog.get_logger(__name__)

_MARGIN: Final = timedelta(seconds=10)
"""A credential that expires within this time is requested again."""
_USER_FIELDS: Final = frozenset(
    {
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
        *("token", "tokenFile", "username", "password", "auth-provider", "exec", "extensions"),
        *("as", "as-uid", "as-groups", "as-user-extra"),
    }
)
_CLUSTER_FIELDS: Final = frozenset(
    {
        *("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "extensions"),
        *("certificate-authority", "certificate-authority-data"),
    }
)
_CREDENTIALS: Final = frozenset({"token", "tokenFile", "username", "auth-provider", "exec"})


@dataclass(slots=True)
class PluginCredential:
    """What a plugin returned, kept until it expires or is refused."""

    plugin: str = ""
    status: Mapping[str, Any] | None = None

    def find(self, plugin: str) -> Mapping[str, Any] | None:
        """Return the credential of a plugin if it can still be used."""
        if self.status is None or self.plugin != plugin:
            return None
        expires = self.status.get("expirationTimestamp")
        if expires and datetime.fromisoformat(expires) - _MARGIN <= datetime.now(UTC):
            return None
        return self.status


class Kubeconfig:
    """The configuration of one context, which can be read again.

    Args:
        paths: Paths of the files, separated by colons.
        context: Name of the context; empty for the current one.
    """

    def __init__(self, paths: str, context: str) -> None:
        """Initialize; `read` fills the configuration."""
        self.configuration = Configuration()
        self.namespace = "default"
        self.impersonation: tuple[tuple[str, str], ...] = ()
        self._paths = paths
        self._context = context
        self._credential = PluginCredential()

    def forget_credential(self) -> None:
        """Run the plugin at the next read, because its credential was refused."""
        self._credential = PluginCredential()

    async def read(self) -> None:
        """Read the files again.

        Raises:
            ConfigError: The plugin failed, so there is no valid credential.
            Exception: The files are broken or incomplete; the official client raises any error.
        """
        merged = kube_config.KubeConfigMerger(self._paths)  # type: ignore[no-untyped-call]
        if merged.config is None:
            raise ValueError("the file is missing or empty")
        loader = _Loader(merged, self._context, self._credential)
        configuration = Configuration()
        await loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        user = loader.user
        if _CREDENTIALS & set(user) and not (
            configuration.api_key.get("BearerToken") or configuration.cert_file
        ):
            raise ValueError("the user has no credentials: its token is empty")
        self.impersonation = read_impersonation(user)
        self.namespace = loader.current_context.get("context", {}).get("namespace") or "default"
        _warn_of_ignored("user", set(user) - _USER_FIELDS)
        _warn_of_ignored("cluster", set(loader.cluster) - _CLUSTER_FIELDS)
        self.configuration = configuration


class _Loader(kube_config.KubeConfigLoader):
    """The reader of the official client, with plugins and token files as client-go reads them."""

    def __init__(
        self, merged: kube_config.KubeConfigMerger, context: str, credential: PluginCredential
    ) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            merged.config, active_context=context or None, config_persister=merged.save_changes
        )
        self._credential = credential
        self._config_base_path = None
        user = self._user
        token_file = self.user.get("tokenFile")
        if user and token_file:
            base = Path(user.path).parent
            # The file takes precedence, because it is renewed.
            user.value["token"] = (base / token_file).read_text(encoding="utf-8").strip()

    @property
    def user(self) -> dict[str, Any]:
        """Fields of the user."""
        return self._user.value if self._user else {}

    @property
    def cluster(self) -> dict[str, Any]:
        """Fields of the cluster."""
        fields: dict[str, Any] = self._cluster.value if self._cluster else {}
        return fields

    async def load_from_exec_plugin(self) -> bool:
        """Take the credential of the plugin, or run it.

        Raises:
            ConfigError: The plugin failed; the message has its error output.
        """
        plugin = json.dumps(self.user["exec"], sort_keys=True, default=str)
        status = self._credential.find(plugin)
        if status is None:
            status = await _run_plugin(self._user and self._user["exec"])
            self._credential.plugin, self._credential.status = plugin, status
        if status.get("token"):
            self.token = f"Bearer {status['token'].strip()}"
        if status.get("clientCertificateData"):
            for name in ("clientCertificateData", "clientKeyData"):
                path = kube_config.FileOrData(  # type: ignore[no-untyped-call]
                    status, name, data_key_name=name, base64_file_content=False
                ).as_file()
                setattr(self, "cert_file" if "Certificate" in name else "key_file", path)
        return True


async def _run_plugin(settings: Any) -> Mapping[str, Any]:
    command = settings.safe_get("command") or "without a command"
    if settings.safe_get("interactiveMode") == "Always":
        raise ConfigError(f"the plugin {command} needs a terminal: log in with kubectl first")
    try:
        status = await ExecProvider(settings).run()  # type: ignore[no-untyped-call]
    except Exception as err:
        # The official client raises errors of many types, and the errors of the system.
        raise ConfigError(f"the plugin {command} failed: {err}") from err
    has_certificate = status.get("clientCertificateData") and status.get("clientKeyData")
    if not (status.get("token") or has_certificate):
        raise ConfigError(f"the plugin {command} returned no credential")
    found: Mapping[str, Any] = status
    return found


def read_impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the headers by which the API server acts for another user, as kubectl sends them.

    Raises:
        ConfigError: Groups or other attributes are set without a user.
    """
    headers = [("Impersonate-Uid", str(user["as-uid"]))] if user.get("as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    headers += [
        (f"Impersonate-Extra-{quote(str(key).lower(), safe='')}", str(value))
        for key, values in (user.get("as-user-extra") or {}).items()
        for value in values
    ]
    if not user.get("as"):
        if headers:
            raise ConfigError("as-uid, as-groups and as-user-extra of the user need the field as")
        return ()
    return (("Impersonate-User", str(user["as"])), *headers)


_warned: set[str] = set()


def _warn_of_ignored(part: str, fields: Iterable[str]) -> None:
    for field in sorted(set(fields) - _warned):
        _warned.add(field)
        log.warning("Kubeconfig field has no effect", part=part, field=field)
