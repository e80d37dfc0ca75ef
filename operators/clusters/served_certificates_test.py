"""The certificates that APIs serve, over real TLS."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from libs.common.testing.clock import FakeClock
from operators.clusters.samples import authorities, credentials
from operators.clusters.served_certificates import ServedCertificates
from operators.clusters.workload import Access, build_tls

HOST = "edge-api.default.svc"
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=20)
LATER = SOON + timedelta(days=700)


class Apis:
    """Nodes of a control plane behind one address, each with a certificate of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[asyncio.Server] = []
        files = authorities().files
        self._ca = x509.load_pem_x509_certificate(files["ca.crt"].encode())
        key = serialization.load_pem_private_key(files["ca.key"].encode(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._signer = key

    async def serve(self, expires: datetime) -> str:
        """Serve a certificate that expires at a given time; returns the URL."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._sign(expires))
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=tls)
        self._servers.append(server)
        return f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    def _sign(self, expires: datetime) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._ca.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
            .not_valid_after(expires)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._signer.public_key()), False
            )
            .sign(self._signer, hashes.SHA256())
        )
        path = self._folder / f"{certificate.serial_number}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
        return path

    def close(self) -> None:
        """Stop all of them."""
        for server in self._servers:
            server.close()


@pytest.fixture
def apis(tmp_path: Path) -> Apis:
    return Apis(tmp_path)


@pytest.fixture
def tls() -> ssl.SSLContext:
    return build_tls(Access("https://unused", HOST, authorities().ca, credentials()[0]))


async def test_certificate_that_expires_first_counts_whoever_answers(
    apis: Apis, tls: ssl.SSLContext
) -> None:
    """One of three timers may have failed; the condition must not flap with the load balancer."""
    clock = FakeClock()
    served = ServedCertificates(clock)
    early, late = await apis.serve(SOON), await apis.serve(LATER)

    assert await served.look(late, HOST, tls) == LATER
    clock.advance(600)
    assert await served.look(early, HOST, tls) == SOON
    clock.advance(600)
    assert await served.look(late, HOST, tls) == SOON

    for _ in range(11):
        clock.advance(601)
        await served.look(late, HOST, tls)
    clock.advance(601)
    assert await served.look(late, HOST, tls) == LATER, "nobody serves the other one any more"
    apis.close()


async def test_handshake_is_made_now_and_then(apis: Apis, tls: ssl.SSLContext) -> None:
    clock = FakeClock()
    served = ServedCertificates(clock)
    late, early = await apis.serve(LATER), await apis.serve(SOON)
    await served.look(late, HOST, tls)

    clock.advance(599)
    assert await served.look(early, HOST, tls) == LATER
    clock.advance(1)
    assert await served.look(early, HOST, tls) == SOON
    apis.close()


async def test_api_that_cannot_be_reached_shows_no_certificate(tls: ssl.SSLContext) -> None:
    assert await ServedCertificates(FakeClock()).look("https://127.0.0.1:1", HOST, tls) is None
