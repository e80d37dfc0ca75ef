"""How the plugin logs in: tokens, client certificates and exec plugins, on local servers."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubectl_slipway import kubeconfig
from kubectl_slipway.api import Api
from kubectl_slipway.errors import PluginError
from libs.common.testing.certificates import create_certificates


class Server(ThreadingHTTPServer):
    """A TLS server that requests a client certificate and records the user of each request."""

    def __init__(self, folder: Path) -> None:
        self.callers: list[tuple[str, str]] = []
        self.impersonated: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.load_verify_locations(folder / "ca.crt")
        context.verify_mode = ssl.CERT_OPTIONAL
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    """Respond to every request with an empty object."""

    server: Server

    def do_GET(self) -> None:
        certificate = self.request.getpeercert() or {}
        names = dict(pair for group in certificate.get("subject", ()) for pair in group)
        name = names.get("commonName", "")
        self.server.callers.append((name, self.headers.get("Authorization", "")))
        self.server.impersonated = [
            (name, value) for name, value in self.headers.items() if name.startswith("Imperson")
        ]
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_certificates(tmp_path_factory.mktemp("tls"), clients=("alice",))


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    server = Server(certificates)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def call(server: Server, certificates: Path, user: dict[str, Any], folder: Path) -> None:
    """Send one request as a user of a kubeconfig."""
    cluster = {
        "server": f"https://127.0.0.1:{server.server_port}",
        "tls-server-name": "localhost",
        "certificate-authority": str(certificates / "ca.crt"),
    }
    content = {
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    api = Api(kubeconfig.load(str(path)))
    try:
        assert api.get("/version") == {}
    finally:
        api.close()


def write_plugin(folder: Path, status: dict[str, str]) -> Path:
    """Write a login plugin that repeats the API version that it was asked for."""
    credential = json.dumps({"kind": "ExecCredential", "status": status})
    plugin = folder / "login"
    plugin.write_text(
        "#!/bin/sh\n"
        f'echo "$KUBERNETES_EXEC_INFO $REGION $1" > {folder}/asked\n'
        f"cat <<'END'\n{credential}\nEND\n"
    )
    plugin.chmod(0o755)
    return plugin


def encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_client_certificate_is_of_a_file_or_in_the_kubeconfig(
    server: Server, certificates: Path, tmp_path: Path
) -> None:
    certificate, key = certificates / "alice.crt", certificates / "alice.key"
    files = {"client-certificate": str(certificate), "client-key": str(key)}
    data = {"client-certificate-data": encode(certificate), "client-key-data": encode(key)}

    call(server, certificates, files, tmp_path)
    call(server, certificates, data, tmp_path)

    assert server.callers == [("alice", ""), ("alice", "")]


def test_token_is_of_the_file_at_the_time_of_the_request(
    server: Server, certificates: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first\n")
    # A relative path is relative to the kubeconfig.
    call(server, certificates, {"tokenFile": "token", "token": "old"}, tmp_path)
    (tmp_path / "token").write_text("second\n")
    call(server, certificates, {"tokenFile": "token"}, tmp_path)

    assert server.callers == [("", "Bearer first"), ("", "Bearer second")]


def test_exec_plugin_gives_a_token(server: Server, certificates: Path, tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path, {"token": "issued"})
    version = "client.authentication.k8s.io/v1"
    login = {
        "apiVersion": version,
        "command": str(plugin),
        "args": ["get-token"],
        "env": [{"name": "REGION", "value": "eu"}],
        "provideClusterInfo": True,
    }
    call(server, certificates, {"exec": login}, tmp_path)
    asked = (tmp_path / "asked").read_text().strip()
    info = json.loads(asked.removesuffix(" eu get-token"))

    assert server.callers == [("", "Bearer issued")]
    assert (info["apiVersion"], info["spec"]["interactive"]) == (version, False)
    assert info["spec"]["cluster"]["tls-server-name"] == "localhost"


def test_exec_plugin_gives_a_client_certificate(
    server: Server, certificates: Path, tmp_path: Path
) -> None:
    status = {
        "clientCertificateData": (certificates / "alice.crt").read_text(),
        "clientKeyData": (certificates / "alice.key").read_text(),
    }
    plugin = write_plugin(tmp_path, status)
    call(server, certificates, {"exec": {"command": str(plugin)}}, tmp_path)

    assert server.callers == [("alice", "")]


@pytest.mark.parametrize(
    ("script", "hint", "reported"),
    [
        ("exit 1", "Install cloudctl.", "failed"),
        ("echo no JSON", "", "failed"),
        (None, "", "No such file"),
    ],
)
def test_failing_plugin_is_named_with_a_remedy(
    server: Server, certificates: Path, tmp_path: Path, script: str | None, hint: str, reported: str
) -> None:
    plugin = tmp_path / "login"
    if script is not None:
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(0o755)
    login = {"command": str(plugin), "installHint": hint}

    with pytest.raises(PluginError) as caught:
        call(server, certificates, {"exec": login}, tmp_path)

    assert reported in caught.value.message
    assert caught.value.remedy == (hint or "Run the command yourself to see why it fails.")


def test_requests_are_made_as_the_user_of_the_kubeconfig(
    server: Server, certificates: Path, tmp_path: Path
) -> None:
    user = {"token": "t", "as": "dev", "as-groups": ["a", "b"], "as-user-extra": {"Scope": ["x"]}}
    call(server, certificates, user, tmp_path)

    assert server.impersonated == [
        ("Impersonate-User", "dev"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scope", "x"),
    ]
    with pytest.raises(PluginError, match="without as"):
        call(server, certificates, {"token": "t", "as-groups": ["admins"]}, tmp_path)


def test_proxy_that_is_not_supported_is_refused(
    server: Server, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "_find_proxy", lambda _: "socks5://user:secret@p:1080")
    with pytest.raises(PluginError, match="scheme socks5") as caught:
        call(server, certificates, {"token": "t"}, tmp_path)
    assert "secret" not in str(caught.value)


def test_first_file_that_defines_a_name_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    cluster = {"name": "c", "cluster": {"server": "http://one/"}}
    other = {"name": "c", "cluster": {"server": "http://two"}}
    context = {"name": "x", "context": {"cluster": "c", "namespace": "shop"}}
    first.write_text(json.dumps({"clusters": [cluster]}))
    second.write_text(
        json.dumps({"clusters": [other], "contexts": [context], "current-context": "x"})
    )

    found = kubeconfig.load(environ={"KUBECONFIG": f"{first}:{second}", "HOME": str(tmp_path)})

    assert (found.server, found.namespace, found.context) == ("http://one", "shop", "x")
