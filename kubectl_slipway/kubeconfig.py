"""Kubeconfig files: the API server and its credentials.

Files are merged as by kubectl: the first file that defines a name wins.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kubectl_slipway.errors import Exit, PluginError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HINT = "Set --kubeconfig, KUBECONFIG or --context."

Json = dict[str, Any]


@dataclass(frozen=True)
class Connection:
    """The address and credentials of one API server.

    Attributes:
        server: URL of the API server.
        namespace: Namespace of the context.
        context: Name of the context; empty in a pod.
        headers: Return the headers that log in.
        tls: Build the TLS context; None for plain HTTP.
        server_name: Name in the certificate if it is not the host.
        proxy: URL of an HTTP proxy.
        impersonation: Headers with which the API server acts for another user.
    """

    server: str
    namespace: str = "default"
    context: str = ""
    headers: Callable[[], Mapping[str, str]] = field(default=dict, compare=False)
    tls: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context, compare=False)
    server_name: str = ""
    proxy: str = ""
    impersonation: Sequence[tuple[str, str]] = ()


def load(
    kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ
) -> Connection:
    """Find the connection: a kubeconfig, or the service account of the pod.

    Raises:
        PluginError: No kubeconfig can be used; the message says why.
    """
    listed = kubeconfig or environ.get("KUBECONFIG", "")
    home = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    paths = [Path(each) for each in listed.split(os.pathsep) if each] or [home]
    if kubeconfig and not paths[0].exists():
        raise PluginError(f"There is no kubeconfig {kubeconfig}.", _HINT, Exit.UNREACHABLE)
    existing = [path for path in paths if path.exists()]
    if not existing:
        if environ.get("KUBERNETES_SERVICE_HOST") and not listed and not context:
            return _load_pod(environ)
        tried = ", ".join(map(str, paths))
        raise PluginError(f"There is no kubeconfig at {tried}.", _HINT, Exit.UNREACHABLE)
    return build(merge([(path.parent, read(path)) for path in existing]), context)


def read(path: Path) -> Json:
    """Read one kubeconfig file.

    Raises:
        PluginError: The file cannot be read or is not a kubeconfig.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as err:
        raise PluginError(
            f"Cannot read the kubeconfig {path}: {err}", _HINT, Exit.UNREACHABLE
        ) from err
    if not isinstance(content, dict):
        if content is None:
            return {}
        raise PluginError(f"{path} is not a kubeconfig.", _HINT, Exit.UNREACHABLE)
    return content


def merge(files: Sequence[tuple[Path, Json]]) -> Json:
    """Merge kubeconfig files, and make relative paths absolute."""
    merged: Json = {"current-context": "", "clusters": {}, "users": {}, "contexts": {}}
    for folder, content in files:
        merged["current-context"] = merged["current-context"] or content.get("current-context")
        for section, part in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for entry in content.get(section) or ():
                value = _absolute(folder, dict(entry.get(part) or {}))
                merged[section].setdefault(entry.get("name"), value)
    return merged


def _absolute(folder: Path, value: Json) -> Json:
    for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
        if value.get(key):
            value[key] = str(folder / value[key])
    return value


def build(merged: Json, context: str = "") -> Connection:
    """Build the connection of a context from merged kubeconfig files.

    Raises:
        PluginError: The context or a part of it is not defined.
    """
    name = context or merged.get("current-context") or ""
    if not name:
        raise PluginError("The kubeconfig has no current context.", _HINT, Exit.UNREACHABLE)
    chosen = merged["contexts"].get(name)
    if chosen is None:
        known = ", ".join(sorted(map(str, merged["contexts"]))) or "none"
        raise PluginError(
            f"The kubeconfig has no context {name!r}.", f"Contexts: {known}.", Exit.UNREACHABLE
        )
    cluster = merged["clusters"].get(chosen.get("cluster"))
    if not cluster or not cluster.get("server"):
        raise PluginError(
            f"Context {name!r} names the cluster {chosen.get('cluster')!r}, which has no server.",
            _HINT,
            Exit.UNREACHABLE,
        )
    user = merged["users"].get(chosen.get("user")) or {}
    login = _Login(user, cluster)
    return Connection(
        server=str(cluster["server"]).rstrip("/"),
        namespace=chosen.get("namespace") or "default",
        context=name,
        headers=login.headers,
        tls=login.tls,
        server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
        impersonation=_list_impersonation(user),
    )


def _list_impersonation(user: Json) -> list[tuple[str, str]]:
    """List the headers by which the API server acts for another user, as kubectl sends them."""
    found = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    if user.get("as-uid"):
        found.append(("Impersonate-Uid", str(user["as-uid"])))
    found += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    found += [
        (f"Impersonate-Extra-{quote(str(key).lower(), safe='')}", str(value))
        for key, values in (user.get("as-user-extra") or {}).items()
        for value in values
    ]
    if found and not user.get("as"):
        raise PluginError(
            "The user of the kubeconfig has as-uid, as-groups or as-user-extra without as.",
            "Name the user in as, or remove the other fields.",
            Exit.UNREACHABLE,
        )
    return found


class _Login:
    """Credentials of one user; an exec plugin runs once, when it is needed."""

    def __init__(self, user: Json, cluster: Json) -> None:
        self._user = user
        self._cluster = cluster
        self._credential: Json | None = None

    def headers(self) -> dict[str, str]:
        user, found = self._user, {}
        token = user.get("token")
        if user.get("tokenFile"):
            token = _read_text(user["tokenFile"]).strip()
        if user.get("exec"):
            token = self._run_plugin().get("token")
        if user.get("auth-provider") and not token:
            raise PluginError(
                "The kubeconfig uses auth-provider, which Kubernetes has replaced.",
                "Configure an exec plugin instead.",
                Exit.UNREACHABLE,
            )
        if token:
            found["Authorization"] = f"Bearer {token}"
        elif user.get("username"):
            pair = f"{user['username']}:{user.get('password', '')}".encode()
            found["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return found

    def tls(self) -> ssl.SSLContext:
        cluster, user = self._cluster, self._user
        authority = _data(cluster, "certificate-authority")
        try:
            context = ssl.create_default_context(cadata=authority.decode() if authority else None)
            # Authorities of many clusters lack extensions that Python 3.13 demands by default.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if cluster.get("insecure-skip-tls-verify"):
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            pair = _data(user, "client-certificate"), _data(user, "client-key")
            if user.get("exec"):
                run = self._run_plugin()
                if run.get("clientCertificateData"):
                    certificate, key = run["clientCertificateData"], run.get("clientKeyData", "")
                    pair = certificate.encode(), key.encode()
            if pair[0]:
                with _as_files(pair[0], pair[1]) as (certificate_file, key_file):
                    context.load_cert_chain(certificate_file, key_file)
        except (ssl.SSLError, ValueError) as err:
            raise PluginError(
                f"Cannot use the certificates of the kubeconfig: {err}", _HINT, Exit.UNREACHABLE
            ) from err
        return context

    def _run_plugin(self) -> Json:
        if self._credential is None:
            self._credential = _run_exec(self._user["exec"], self._cluster)
        return self._credential


def _run_exec(plugin: Json, cluster: Json) -> Json:
    """Run an exec credential plugin and return the status of its ExecCredential."""
    version = plugin.get("apiVersion") or "client.authentication.k8s.io/v1"
    info: Json = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    if plugin.get("provideClusterInfo"):
        info["spec"]["cluster"] = {
            "server": cluster["server"],
            "tls-server-name": cluster.get("tls-server-name", ""),
            "certificate-authority-data": cluster.get("certificate-authority-data", ""),
        }
    extra = {each["name"]: each["value"] for each in plugin.get("env") or ()}
    environ = {**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    command = [plugin["command"], *(plugin.get("args") or ())]
    hint = plugin.get("installHint") or "Run the command yourself to see why it fails."
    try:
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
        return dict(json.loads(done.stdout)["status"])
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError, TypeError) as err:
        raise PluginError(
            f"The login plugin {command[0]} failed: {err}", hint, Exit.UNREACHABLE
        ) from err


def _data(section: Json, name: str) -> bytes:
    if section.get(f"{name}-data"):
        return base64.b64decode(section[f"{name}-data"])
    return _read_text(section[name]).encode() if section.get(name) else b""


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as err:
        raise PluginError(
            f"Cannot read {path}, which the kubeconfig names: {err.strerror}",
            _HINT,
            Exit.UNREACHABLE,
        ) from err


@contextmanager
def _as_files(*contents: bytes) -> Iterator[list[str]]:
    # Python loads client certificates from files only; these are readable by this user alone.
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(index) for index in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        yield [str(path) for path in paths]


def _load_pod(environ: Mapping[str, str]) -> Connection:
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = _SERVICE_ACCOUNT / "namespace"
    user = {"tokenFile": str(_SERVICE_ACCOUNT / "token")}
    cluster = {"certificate-authority": str(_SERVICE_ACCOUNT / "ca.crt")}
    login = _Login(user, cluster)
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        headers=login.headers,
        tls=login.tls,
    )
