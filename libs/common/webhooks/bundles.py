"""CA bundles: which certificates are in one, and whether an API server trusts a chain by it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from libs.common.webhooks.certificates import UNREADABLE

_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def parse_bundle(text: bytes) -> list[x509.Certificate]:
    """Return the certificates in a text, each once, in order. Like Go, ignore everything else."""
    found: list[x509.Certificate] = []
    for block in _BLOCK.findall(text):
        try:
            certificate = x509.load_pem_x509_certificate(block)
        except ValueError:
            continue
        if certificate not in found:
            found.append(certificate)
    return found


def render_bundle(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates in PEM."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def is_trusted(chain: bytes, bundle: bytes) -> bool:
    """Return whether a bundle contains the first certificate of a chain, or its issuer.

    Args:
        chain: The certificate of a server, then the authorities between it and the bundle.
        bundle: What a client trusts.
    """
    anchors, path = parse_bundle(bundle), parse_bundle(chain)
    current = path.pop(0) if path else None
    while current is not None:
        if current in anchors or any(_is_issued_by(current, each) for each in anchors):
            return True
        issuer = next((each for each in path if _is_issued_by(current, each)), None)
        if issuer is not None:
            path.remove(issuer)
        current = issuer
    return False


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether an authority issued a certificate, by the rules that an API server applies."""
    try:
        constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints)
        usages = [each.value for each in issuer.extensions if isinstance(each.value, x509.KeyUsage)]
        certificate.verify_directly_issued_by(issuer)
    except (*UNREADABLE, InvalidSignature):
        return False
    return constraints.value.ca and all(each.key_cert_sign for each in usages)
