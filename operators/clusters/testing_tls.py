"""Server certificates that are signed by the authorities of a cluster, for tests."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from operators.clusters.certificates import Authorities

HOST: Final = "edge-api.default.svc"
"""Name of the API server in its certificate."""
NODE_NAME: Final = "edge-control-plane-1"
"""Name of a node, which is in the certificate of its etcd."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Certificates and keys of servers, as files.

    Attributes:
        folder: Folder of the files.
        authorities: Authorities that sign them.
    """

    folder: Path
    authorities: Authorities

    def build_tls(self, authority: str, *names: str) -> ssl.SSLContext:
        """Build the TLS context of a server.

        Args:
            authority: Name of the authority that signs, such as `ca`.
            names: Names and addresses in the certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.sign(authority, names))
        return context

    def sign(self, authority: str, names: Sequence[str]) -> tuple[Path, Path]:
        """Create the certificate and the key of a server; arguments as `build_tls`."""
        files = self.authorities.files
        ca = x509.load_pem_x509_certificate(files[f"{authority}.crt"].encode())
        signer = serialization.load_pem_private_key(
            files[f"{authority}.key"].encode(), password=None
        )
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
            .issuer_name(ca.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([_render(each) for each in names]), False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
            )
            .sign(signer, hashes.SHA256())
        )
        encoding = serialization.Encoding.PEM
        private = key.private_bytes(
            encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        paths = self.folder / f"{names[0]}.crt", self.folder / f"{names[0]}.key"
        paths[0].write_bytes(certificate.public_bytes(encoding))
        paths[1].write_bytes(private)
        return paths


def _render(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
