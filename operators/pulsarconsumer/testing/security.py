"""Logins of a broker in tests: its configuration, and an issuer of tokens."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qs

SUPERUSER: Final = "admin"
"""The role that may do everything where the broker asks who it is."""
PASSWORD_ROLE: Final = "reader"
"""User of basic authentication, with all rights."""
PASSWORD: Final = "correct horse"
"""Password of that user."""
CERTIFICATE_ROLE: Final = "machine"
"""Name in the certificate of a client that has all rights."""

_PROVIDERS: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


def build_security(
    folder: Path, secret: bytes, token: str, authority: Path | None
) -> Mapping[str, str]:
    """Build the configuration of a broker that asks who it is, by token, password or certificate.

    Args:
        folder: Where its files go.
        secret: Key by which tokens are signed.
        token: What the broker shows to itself.
        authority: Certificate that verifies the certificates of clients; None for none.
    """
    key, passwords = folder / "token.key", folder / "passwords"
    key.write_bytes(secret)
    key.chmod(0o600)
    passwords.write_text(f"{PASSWORD_ROLE}:{_hash_password(PASSWORD)}\n")
    names = ["Token", "Basic", *(["Tls"] if authority else [])]
    trusted = {"tlsTrustCertsFilePath": str(authority)} if authority else {}
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(f"{_PROVIDERS}{name}" for name in names),
        "authenticationRefreshCheckSeconds": "1",
        "authorizationEnabled": "true",
        "superUserRoles": f"{SUPERUSER},{PASSWORD_ROLE},{CERTIFICATE_ROLE}",
        "tokenSecretKey": f"file://{key}",
        "basicAuthConf": f"file://{passwords}",
        "brokerClientAuthenticationPlugin": (
            "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        ),
        "brokerClientAuthenticationParameters": f"token:{token}",
        **trusted,
    }


class FakeIssuer:
    """A minimal OAuth2 issuer with a single client.

    Idiomatic use:

        with PlayedIssuer(lambda: broker.token(seconds=60), seconds=60) as issuer:
            (folder / "key.json").write_text(issuer.key_file)
    """

    def __init__(self, mint: Callable[[], str], *, seconds: float) -> None:
        """Take what makes tokens, and the seconds that they are said to live."""
        self.issued = 0
        """How many tokens were given out."""
        self._mint = mint
        self._seconds = seconds
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"issuer": issuer.url, "token_endpoint": f"{issuer.url}/token"})

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                form = parse_qs(self.rfile.read(length).decode())
                if form.get("client_secret") != ["known"]:
                    self._answer(401, {"error": "invalid_client"})
                else:
                    self._answer(200, issuer.issue())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def _answer(self, status: int, content: object) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The URL of the issuer."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def key_file(self, secret: str = "known") -> str:  # noqa: S107 a played one
        """Return the key file of the client, or one with another secret."""
        return json.dumps({"client_id": "app", "client_secret": secret, "issuer_url": self.url})

    def issue(self) -> dict[str, object]:
        """Return the response with a new token."""
        self.issued += 1
        return {
            "access_token": self._mint(),
            "token_type": "Bearer",
            "expires_in": round(self._seconds),
        }


def _hash_password(password: str) -> str:
    command = ["openssl", "passwd", "-apr1", "-stdin"]
    done = subprocess.run(command, input=password, capture_output=True, text=True, check=True)
    return done.stdout.strip()
