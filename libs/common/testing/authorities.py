"""Certificate authorities that issue for any time, as cert-manager would write it into a Secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from libs.common.webhooks.certificates import Certificate

_SIGNS: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_YEAR: Final = timedelta(days=365)
_PEM: Final = serialization.Encoding.PEM


def _identify(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True)
class Authority:
    """A certificate authority.

    Attributes:
        key: Its private key.
        certificate: Its certificate.
        above: The authority that signed it; None for a root.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    above: Authority | None = None

    @classmethod
    def create(cls, name: str, now: datetime, above: Self | None = None) -> Self:
        """Create a root, or an authority below another one."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _build(name, above.certificate.subject if above else _name(name), key, now, _YEAR)
        builder = (
            builder.add_extension(x509.BasicConstraints(True, None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(_identify((above.key if above else key).public_key()), critical=False)
        )
        return cls(key, builder.sign(above.key if above else key, hashes.SHA256()), above)

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return self.certificate.public_bytes(_PEM)

    def issue(
        self,
        names: Sequence[str],
        now: datetime,
        *,
        lifetime: timedelta = timedelta(days=90),
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    ) -> Certificate:
        """Issue a certificate for names and addresses of a server, with its chain and the root."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        builder = (
            _build(names[0], self.certificate.subject, key, now, lifetime)
            .add_extension(alternatives, critical=False)
            .add_extension(x509.BasicConstraints(False, None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(_identify(self.key.public_key()), critical=False)
        )
        chain = [builder.sign(self.key, hashes.SHA256()).public_bytes(_PEM)]
        root = self
        while root.above is not None:
            chain.append(root.pem)
            root = root.above
        secret = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate(b"".join(chain), secret, root.pem)


def _build(
    name: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
