"""Which chains a CA bundle lets an API server trust."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from libs.common.testing.authorities import Authority
from libs.common.webhooks.bundles import is_trusted, parse_bundle, render_bundle
from libs.common.webhooks.certificates import issue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["hook.default.svc"]
ROOT = Authority.create("root", NOW)
SAME_NAME = Authority.create("root", NOW)
BETWEEN = Authority.create("between", NOW, ROOT)
DIRECT = ROOT.issue(NAMES, NOW)
CHAIN = BETWEEN.issue(NAMES, NOW)
OWN = issue(NAMES, NOW)
OWN_KEY = serialization.load_pem_private_key(OWN.key, password=None)
assert isinstance(OWN_KEY, ec.EllipticCurvePrivateKey)
# A certificate that was signed by the key of another one that is no authority.
FORGED = Authority(OWN_KEY, x509.load_pem_x509_certificate(OWN.certificate)).issue(NAMES, NOW)


@pytest.mark.parametrize(
    ("chain", "bundle", "trusted"),
    [
        (DIRECT.certificate, ROOT.pem, True),
        (DIRECT.certificate, SAME_NAME.pem, False),
        (DIRECT.certificate, SAME_NAME.pem + ROOT.pem, True),
        (DIRECT.certificate, b"", False),
        (CHAIN.certificate, ROOT.pem, True),
        (CHAIN.certificate, BETWEEN.pem, True),
        (render_bundle(parse_bundle(CHAIN.certificate)[:1]), ROOT.pem, False),
        (OWN.certificate, OWN.certificate, True),
        (OWN.certificate, issue(NAMES, NOW).certificate, False),
        (FORGED.certificate, OWN.certificate, False),
        (b"", ROOT.pem, False),
    ],
    ids=[
        "root",
        "other key",
        "one of two",
        "empty bundle",
        "chain",
        "authority between",
        "incomplete chain",
        "itself",
        "other self-signed",
        "no authority",
        "empty chain",
    ],
)
def test_chain_is_trusted_by_its_issuer_or_itself(
    chain: bytes, bundle: bytes, trusted: bool
) -> None:
    assert is_trusted(chain, bundle) == trusted


def build_root(*extensions: x509.ExtensionType) -> x509.Certificate:
    """Build a certificate with the name and key of the root."""
    builder = x509.CertificateBuilder(
        ROOT.certificate.subject,
        ROOT.certificate.subject,
        ROOT.key.public_key(),
        ROOT.certificate.serial_number,
        ROOT.certificate.not_valid_before_utc,
        ROOT.certificate.not_valid_after_utc,
    )
    for each in extensions:
        builder = builder.add_extension(each, critical=False)
    return builder.sign(ROOT.key, hashes.SHA256())


def test_authority_with_an_extension_twice_is_not_trusted() -> None:
    """Go refuses it as well."""
    one, other = (
        x509.UnrecognizedExtension(x509.ObjectIdentifier(each), b"\x05\x00")
        for each in ("1.2.3.4", "1.2.3.5")
    )
    built = build_root(one, other, x509.BasicConstraints(True, None))
    text = built.public_bytes(serialization.Encoding.DER)
    # The builder refuses to add an extension twice.
    twice = text.replace(b"\x06\x03\x2a\x03\x05", b"\x06\x03\x2a\x03\x04")
    authority = x509.load_der_x509_certificate(twice)

    assert twice != text
    assert not is_trusted(DIRECT.certificate, render_bundle([authority]))


@pytest.mark.parametrize("signs", [True, False])
def test_authority_must_be_allowed_to_sign_certificates(signs: bool) -> None:
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    authority = build_root(usage, x509.BasicConstraints(True, None))

    assert is_trusted(DIRECT.certificate, render_bundle([authority])) == signs


def test_bundle_ignores_text_duplicates_and_what_is_broken() -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

    found = parse_bundle(b"# root\n" + ROOT.pem + broken + ROOT.pem.replace(b"\n", b"\r\n"))

    assert found == [ROOT.certificate]
    assert render_bundle(found) == ROOT.pem
