"""Certificates: who is believed, for how long, and that keys do not show."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from operators.clusters.certificates import (
    ADMIN_GROUP,
    AUTHORITY_FILES,
    Authorities,
    BadCertificate,
    Pair,
    is_valid,
    make_authorities,
    sign_client,
)
from operators.clusters.samples import NOW, authorities, credentials

DAY = timedelta(days=1)


def build_large_key() -> str:
    """Build an RSA key of two large primes, which need no search: Mersenne primes."""
    p, q, e = 2**9941 - 1, 2**4423 - 1, 65537
    d = pow(e, -1, (p - 1) * (q - 1))
    values = [0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p)]
    body = b"".join(encode(2, each.to_bytes(each.bit_length() // 8 + 1)) for each in values)
    text = base64.encodebytes(encode(0x30, body)).decode()
    label = "RSA PRIVATE KEY"
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"


def encode(tag: int, content: bytes) -> bytes:
    """Encode a value in DER."""
    return bytes([tag, 0x82]) + len(content).to_bytes(2) + content


LARGE_KEY = build_large_key()


def test_certificate_names_user_and_group() -> None:
    pair = sign_client(authorities(), "ada", ADMIN_GROUP, NOW, DAY)

    subject = x509.load_pem_x509_certificate(pair.certificate.encode()).subject
    assert subject.rfc4514_string() == f"CN=ada,O={ADMIN_GROUP}"


def test_certificate_is_valid_for_its_time_and_its_authority_alone() -> None:
    pair, ca = sign_client(authorities(), "ada", "group", NOW, DAY), authorities().ca

    assert is_valid(pair, ca, NOW)
    assert not is_valid(pair, ca, NOW + 2 * DAY)
    assert not is_valid(pair, ca, NOW - DAY)
    assert not is_valid(pair, make_authorities("other", NOW).ca, NOW)


@pytest.mark.parametrize("pair", [Pair("", ""), Pair("nonsense", "nonsense")])
def test_what_cannot_be_read_is_not_valid(pair: Pair) -> None:
    assert not is_valid(pair, authorities().ca, NOW)


def test_key_of_another_certificate_is_not_valid() -> None:
    admin, member = credentials()

    assert not is_valid(Pair(admin.certificate, member.key), authorities().ca, NOW)


@pytest.mark.parametrize("name", ["ca.crt", "etcd-ca.key", "sa.key"])
def test_authorities_without_a_file_are_refused_by_its_name(name: str) -> None:
    files = {each: text for each, text in authorities().files.items() if each != name}

    with pytest.raises(BadCertificate, match=name.replace(".", r"\.")):
        Authorities.parse(files)


@pytest.mark.parametrize("kind", ["large RSA", "encrypted"])
def test_key_is_refused_before_its_numbers_are_checked(kind: str) -> None:
    """Checking whether the numbers of this RSA key are primes takes minutes."""
    password = serialization.BestAvailableEncryption(b"x")
    text = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, password
    )
    files = {**authorities().files, "ca.key": text.decode() if kind == "encrypted" else LARGE_KEY}

    with pytest.raises(BadCertificate, match=r"ca\.key"):
        Authorities.parse(files)


@pytest.mark.parametrize("name", AUTHORITY_FILES)
def test_certificates_of_a_megabyte_are_refused_before_they_are_loaded(name: str) -> None:
    """Each query of the cluster would load them, for a second in which all others wait."""
    files = dict(authorities().files)
    files[f"{name}.crt"] *= 2**20 // len(files[f"{name}.crt"])

    with pytest.raises(BadCertificate, match=rf"{name}\.crt is longer than"):
        Authorities.parse(files)


def test_broken_authority_is_told_without_showing_it() -> None:
    files = {**authorities().files, "ca.key": "very secret nonsense"}

    with pytest.raises(BadCertificate) as caught:
        Authorities.parse(files)

    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_keys_never_show() -> None:
    shown = f"{authorities()!r} {credentials()[0]!r} {authorities()} {credentials()[0]}"

    assert "KEY" not in shown
    assert "BEGIN" not in shown
