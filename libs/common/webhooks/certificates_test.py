"""Certificates of webhooks: made, judged, replaced in time."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from libs.common.webhooks.certificates import (
    LIFETIME,
    Certificate,
    find_flaw,
    find_problem,
    issue,
    load_certificate,
)

NAMES = ("hook.ns.svc", "127.0.0.1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = issue(NAMES, NOW)
OTHER = issue(NAMES, NOW)
# A key of a kind that nobody knows (1.2.3.4), as some other tool may put it there.
ALIEN = b"-----BEGIN PRIVATE KEY-----\nMAwCAQAwBQYDKgMEBAA=\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        (timedelta(0), ""),
        (LIFETIME / 2, ""),
        (LIFETIME * 0.7, "expires on 2026-04-01"),
        (LIFETIME * 2, "expired on 2026-04-01"),
        (-timedelta(days=1), "is not valid yet"),
    ],
)
def test_certificate_is_replaced_long_before_its_end(after: timedelta, problem: str) -> None:
    assert find_problem(GOOD, NAMES, NOW + after) == problem


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        (Certificate(b"x", GOOD.key, b"x"), "cannot be read: ValueError"),
        (Certificate(GOOD.certificate, b"x", GOOD.trusted), "cannot be read: ValueError"),
        (
            Certificate(GOOD.certificate, ALIEN, GOOD.trusted),
            "cannot be read: UnsupportedAlgorithm",
        ),
        (Certificate(GOOD.certificate, OTHER.key, GOOD.trusted), "does not match its key"),
        (Certificate(GOOD.certificate, GOOD.key, OTHER.trusted), "is not trusted"),
        (issue(["else.ns.svc"], NOW), "is not for hook.ns.svc"),
    ],
    ids=["no certificate", "no key", "alien key", "other key", "not trusted", "other name"],
)
def test_unusable_certificate_is_replaced(held: Certificate, problem: str) -> None:
    assert find_problem(held, NAMES, NOW) == problem


def test_short_key_is_refused_before_it_is_served() -> None:
    key = rsa.generate_private_key(65537, 1024)  # noqa: S505  # Too short on purpose.
    source = x509.load_pem_x509_certificate(GOOD.certificate)
    builder = x509.CertificateBuilder(
        source.issuer,
        source.subject,
        key.public_key(),
        source.serial_number,
        source.not_valid_before_utc,
        source.not_valid_after_utc,
        list(source.extensions),
    )
    pem = serialization.Encoding.PEM
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(pem)
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

    flaw = find_flaw(Certificate(certificate, private, certificate), NAMES, NOW)

    assert flaw == "cannot be served: EE_KEY_TOO_SMALL"


def test_values_without_a_newline_at_their_end_are_served() -> None:
    held = Certificate(GOOD.certificate.rstrip(), GOOD.key.rstrip(), GOOD.trusted)

    assert find_flaw(held, NAMES, NOW) == ""
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), held)


def test_certificate_before_stays_trusted_while_replicas_may_show_it() -> None:
    second = issue(NAMES, NOW, before=GOOD)
    third = issue(NAMES, NOW, before=second)

    assert GOOD.certificate in second.trusted
    assert second.certificate in third.trusted
    assert GOOD.certificate not in third.trusted, "the bundle must not grow for ever"


def test_key_is_never_shown() -> None:
    assert "PRIVATE" not in repr(GOOD)
