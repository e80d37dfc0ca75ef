"""Credentials for the admin API: as headers, as a client certificate, or from an OAuth2 issuer."""

from __future__ import annotations

import base64
import functools
import hashlib
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

_CONTEXTS: Final = 64
"""Maximum number of cached TLS contexts; loading the certificates of the system takes 20 ms."""
_LARGEST: Final = 262_144
"""Most characters of certificates, enough for those of a system; 1 MB takes two seconds to load."""


class LoginInvalid(Exception):
    """Credentials have an invalid format; the message contains no part of them."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The client credentials for an OAuth2 issuer.

    Attributes:
        issuer: Base URL of the configuration of the issuer.
    """

    issuer: str
    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    audience: str = ""
    scope: str = ""

    @classmethod
    def parse(cls, raw: bytes, *, issuer: str, audience: str = "", scope: str = "") -> KeyFile:
        """Parse a key file of Pulsar: JSON with client_id and client_secret.

        Raises:
            LoginInvalid: The content is not such a key file.
        """
        try:
            content = orjson.loads(raw)
        except orjson.JSONDecodeError:
            content = None
        values = content if isinstance(content, dict) else {}
        client_id, secret = values.get("client_id"), values.get("client_secret")
        if not isinstance(client_id, str) or not isinstance(secret, str):
            raise LoginInvalid("is not JSON with client_id and client_secret")
        return cls(issuer, client_id, secret, audience, scope)


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials and the trusted certificates of a connection.

    Attributes:
        token: Bearer token; empty for none.
        username: User name of basic authentication; empty for none.
        password: Password of basic authentication.
        key_file: For an OAuth2 issuer; None for none.
        certificate: Certificate of the client as PEM; empty for none.
        key: Private key of the client as PEM.
        trusted: Trusted certificates as PEM; empty for the certificates of the system.
        verify_hostname: Whether the certificate must match the host name.
        verify_certificate: Whether the certificate must be signed by a trusted authority.
    """

    token: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    key_file: KeyFile | None = None
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    trusted: str = field(default="", repr=False)
    verify_hostname: bool = True
    verify_certificate: bool = True

    def header(self) -> str:
        """Return the value of `Authorization`; empty for none."""
        if self.token:
            return f"Bearer {self.token}"
        if self.username:
            pair = f"{self.username}:{self.password}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        return ""

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context.

        Raises:
            LoginInvalid: A certificate or key is invalid.
        """
        if max(map(len, (self.trusted, self.certificate, self.key))) > _LARGEST:
            raise LoginInvalid(f"has a certificate or key of more than {_LARGEST} characters")
        try:
            return _build_context(
                self.trusted,
                self.certificate,
                self.key,
                self.verify_hostname,
                self.verify_certificate,
            )
        except (ssl.SSLError, ValueError) as err:
            raise LoginInvalid("has a certificate or key that cannot be read") from err

    def fingerprint(self) -> str:
        """Return a hash that changes with the credentials and does not reveal them."""
        parts = (self.token, self.username, self.password, self.certificate, self.key, self.trusted)
        secret = self.key_file.client_secret if self.key_file else ""
        return hashlib.sha256("\0".join((*parts, secret)).encode()).hexdigest()[:16]


NOBODY: Final = Login()
"""No credentials."""


@functools.lru_cache(maxsize=_CONTEXTS)
def _build_context(
    trusted: str, certificate: str, key: str, verify_hostname: bool, verify_certificate: bool
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As strict as the client of the consumers: many certificates lack extensions that RFC 5280
    # requires; otherwise the consumers would accept such a certificate and the operator refuse it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = verify_hostname and verify_certificate
    if not verify_certificate:
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        # The ssl module loads certificate chains only from files; this file is deleted immediately
        # afterwards.
        with tempfile.TemporaryDirectory(prefix="login-") as folder:
            path = Path(folder) / "chain.pem"
            path.touch(mode=0o600)
            path.write_text(f"{key}\n{certificate}\n")
            context.load_cert_chain(path)
    return context
