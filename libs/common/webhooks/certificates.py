"""Certificates by which an API server knows a webhook of ours.

There is no authority: the certificate is signed by its own key, and the API server is told to trust
exactly this one. So there is no further key that could be stolen, and nothing else to renew.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=90)
"""How long a certificate is valid; it is renewed after two thirds of that."""

UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises of a certificate or key that somebody else has put there."""
_SERVER_USAGES: Final = frozenset(
    {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
)
_SKEW: Final = timedelta(hours=1)
"""How far a clock that looks at the certificate may be behind ours."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, its key, and the CA bundle for the API server; all PEM.

    Attributes:
        trusted: The certificate, and those before it that a replica may still show.
    """

    certificate: bytes
    key: bytes
    trusted: bytes

    def __repr__(self) -> str:
        """Render without the key."""
        return f"Certificate({len(self.certificate)} bytes)"


def issue(
    names: Sequence[str],
    now: datetime,
    *,
    lifetime: timedelta = LIFETIME,
    before: Certificate | None = None,
) -> Certificate:
    """Make a key and a certificate for it.

    Args:
        names: DNS names and addresses of the server; the first one is its subject.
        now: The time.
        lifetime: How long it is valid.
        before: The certificate that it takes the place of.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    # A common name has 64 characters at most; nobody but people reads it.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectAlternativeName(_parse_names(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # One generation back: it was renewed long before its end, so no older one is shown any more.
    return Certificate(certificate, secret, certificate + (before.certificate if before else b""))


def find_problem(held: Certificate, names: Sequence[str], now: datetime) -> str:
    """Say why a certificate of our own must be replaced; empty when it is good.

    Args:
        held: The certificate.
        names: What it must be for.
        now: The time.
    """
    if flaw := find_flaw(held, names, now):
        return flaw
    certificate = x509.load_pem_x509_certificate(held.certificate)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > begin + (end - begin) * 2 / 3:
        return f"expires on {end:%Y-%m-%d}"
    if held.certificate not in held.trusted:
        return "is not trusted"
    return ""


def find_flaw(held: Certificate, names: Sequence[str], now: datetime) -> str:
    """Say why no API server would accept a certificate; empty if one would that trusts it.

    Args:
        held: The certificate.
        names: What it must be for.
        now: The time.
    """
    try:
        certificate = x509.load_pem_x509_certificate(held.certificate)
        key = serialization.load_pem_private_key(held.key, password=None)
        fits = certificate.public_key() == key.public_key()
        extensions = certificate.extensions
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        usages = _read_usages(certificate)
    except UNREADABLE as error:
        return f"cannot be read: {type(error).__name__}"
    if not fits:
        return "does not match its key"
    if missing := [name for name in _parse_names(names) if not _covers(alternatives, name)]:
        return f"is not for {missing[0].value}"
    if usages is not None and not _SERVER_USAGES & set(usages):
        return "is not for servers: it lacks the usage `server auth`"
    if now < certificate.not_valid_before_utc:
        return "is not valid yet"
    if now > certificate.not_valid_after_utc:
        return f"expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    return _find_tls_flaw(held.certificate, held.key)


def load_certificate(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Give a TLS context a certificate that is not in a file, for its next connections.

    Raises:
        ssl.SSLError: OpenSSL refuses the key, the certificate or its chain.
    """
    with tempfile.TemporaryDirectory() as folder:
        # The ssl module takes files only; these are gone before anybody is served.
        path = Path(folder) / "tls.pem"
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            # Many tools that write Secrets remove the newline at the end of a value.
            file.write(certificate.key + b"\n" + certificate.certificate)
        context.load_cert_chain(path)


def find_expiration(certificate: bytes) -> datetime:
    """Return the time, with time zone, at which a certificate in PEM expires.

    Raises:
        ValueError: It is not a certificate.
    """
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def is_certificate(text: bytes) -> bool:
    """Return whether a text is a certificate in PEM, of whatever kind."""
    try:
        x509.load_pem_x509_certificate(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1)
def _find_tls_flaw(certificate: bytes, key: bytes) -> str:
    """Say why OpenSSL would not serve a certificate, such as a short key or a broken chain."""
    try:
        load_certificate(
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Certificate(certificate, key, b"")
        )
    except ssl.SSLError as error:
        return f"cannot be served: {error.reason}"
    return ""


def _read_usages(certificate: x509.Certificate) -> x509.ExtendedKeyUsage | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return None


def _covers(alternatives: x509.SubjectAlternativeName, name: x509.GeneralName) -> bool:
    if name in alternatives:
        return True
    _, dot, parent = str(name.value).partition(".")
    return bool(dot) and x509.DNSName(f"*.{parent}") in alternatives


def _parse_names(names: Sequence[str]) -> list[x509.GeneralName]:
    return [_parse_name(name) for name in names]


def _parse_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
