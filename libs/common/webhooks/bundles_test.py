"""Which chains a CA bundle lets an API server trust."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
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


def test_bundle_ignores_text_duplicates_and_what_is_broken() -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

    found = parse_bundle(b"# root\n" + ROOT.pem + broken + ROOT.pem.replace(b"\n", b"\r\n"))

    assert found == [ROOT.certificate]
    assert render_bundle(found) == ROOT.pem
