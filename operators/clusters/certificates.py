"""Certificates of a cluster: its authorities, and the certificates that they sign.

The operator creates the authorities itself, so that the kubeconfig of a cluster exists before its
first node, and nothing must be fetched from a guest. Anyone who has the keys of the authorities
controls the cluster. So the keys are stored only in one Secret and in the initial configuration of
the control plane, where kubeadm expects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_FILES: Final = ("ca", "etcd-ca", "front-proxy-ca")
"""Authorities that kubeadm uses; each has a certificate (.crt) and a key (.key)."""
ETCD_AUTHORITY: Final = "etcd-ca"
"""Authority of the servers and clients of etcd."""
ADMIN_GROUP: Final = "kubeadm:cluster-admins"
"""Group of the kubeconfig, which kubeadm binds to cluster-admin. Unlike for system:masters, the
binding can be deleted to revoke a lost kubeconfig."""
JOIN_GROUP: Final = "system:bootstrappers:kubeadm:default-node-token"
"""Group of joining nodes: kubeadm allows it little more than to request a node certificate."""

_AUTHORITY_YEARS: Final = 10
_KEY_SIZE: Final = 1000
"""Characters of a key; P-521 has 365. The library checks for minutes whether the numbers of a large
RSA key are primes."""
_CERTIFICATE_SIZE: Final = 65_536
"""Characters of a certificate with its chain; loading 1 MB of certificates takes a second."""
_CLOCKS_DIFFER: Final = timedelta(minutes=10)
"""Certificates are valid from a time in the past, for guests whose clock is behind."""


class BadCertificate(ValueError):
    """A certificate or key cannot be read, or does not belong to its authority."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key.

    Attributes:
        key: As PEM; secret.
    """

    certificate: str
    key: str

    def __repr__(self) -> str:
        """Hide both, because this text appears in logs and in messages of failed tests."""
        return "Pair(...)"


@dataclass(frozen=True, slots=True)
class Authorities:
    """The certificate authorities of a control plane.

    Attributes:
        files: Content by the name of the file that kubeadm looks for below /etc/kubernetes/pki,
            with `etcd/ca` as `etcd-ca`; secret.
    """

    files: Mapping[str, str]

    def __repr__(self) -> str:
        """Return only the names, without keys."""
        return f"Authorities({', '.join(sorted(self.files))})"

    @property
    def ca(self) -> str:
        """Certificate of the authority of the API as PEM; not secret."""
        return self.files["ca.crt"]

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Self:
        """Parse the files of a Secret.

        Raises:
            BadCertificate: A file is missing or invalid; the message names it.
        """
        names = [f"{name}{end}" for name in AUTHORITY_FILES for end in (".crt", ".key")]
        for name in (*names, "sa.pub", "sa.key"):
            if not files.get(name):
                raise BadCertificate(f"{name} is missing")
        for name in AUTHORITY_FILES:
            _load(Pair(files[f"{name}.crt"], files[f"{name}.key"]), name)
        return cls(dict(files))


def make_authorities(cluster: str, now: datetime) -> Authorities:
    """Create the authorities of a new cluster, and the keys that sign service account tokens."""
    files: dict[str, str] = {}
    for name in AUTHORITY_FILES:
        pair = _make_authority(f"{cluster}-{name}", now)
        files[f"{name}.crt"], files[f"{name}.key"] = pair.certificate, pair.key
    key = ec.generate_private_key(ec.SECP256R1())
    files["sa.key"] = _render_key(key)
    files["sa.pub"] = (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
    return Authorities(files)


def sign_client(
    authorities: Authorities,
    user: str,
    group: str,
    now: datetime,
    lifetime: timedelta,
    *,
    authority: str = "ca",
) -> Pair:
    """Create a certificate for a client of the API of the cluster, or of etcd.

    Args:
        authorities: Certificate authorities of the cluster.
        user: Name that the server sees.
        group: Group that the server sees.
        now: Time.
        lifetime: Lifetime of the certificate.
        authority: Authority in `AUTHORITY_FILES` that signs it: `ca` for the API, `etcd-ca` for
            etcd.
    """
    files = authorities.files
    ca, signer = _load(Pair(files[f"{authority}.crt"], files[f"{authority}.key"]), authority)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    certificate = (
        _begin(subject, key.public_key(), now, lifetime)
        .issuer_name(ca.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return Pair(_render(certificate), _render_key(key))


def expiry_of(certificate: str) -> datetime:
    """Return when a certificate expires."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def is_valid(pair: Pair, ca: str, at: datetime) -> bool:
    """Return whether an authority signed a certificate that is valid at a given time."""
    try:
        certificate, _ = _load(pair, "client")
        issuer = x509.load_pem_x509_certificate(ca.encode())
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # noqa: BLE001 any invalid certificate is replaced
        return False
    return certificate.not_valid_before_utc <= at < certificate.not_valid_after_utc


def _make_authority(name: str, now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _begin(subject, key.public_key(), now, timedelta(days=365 * _AUTHORITY_YEARS))
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(_render(certificate), _render_key(key))


def _begin(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    moment = now.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _CLOCKS_DIFFER)
        .not_valid_after(moment + lifetime)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _load(pair: Pair, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if len(pair.key) > _KEY_SIZE:
        raise BadCertificate(f"{name}.key is not a key of an elliptic curve")
    if len(pair.certificate) > _CERTIFICATE_SIZE:
        raise BadCertificate(f"{name}.crt is longer than {_CERTIFICATE_SIZE} characters")
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        key = serialization.load_pem_private_key(pair.key.encode(), password=None)
        matches = key.public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without the message of the library, which may contain a part of the secret.
        raise BadCertificate(f"{name}.crt or {name}.key cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadCertificate(f"{name}.key is not a key of an elliptic curve")
    if not matches:
        raise BadCertificate(f"{name}.key does not belong to {name}.crt")
    return certificate, key


def _render(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _render_key(key: ec.EllipticCurvePrivateKey) -> str:
    # The format that kubeadm uses.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()
