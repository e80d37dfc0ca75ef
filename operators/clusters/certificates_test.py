"""Certificates: who is believed, for how long, and that keys do not show."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509

from operators.clusters.certificates import (
    ADMIN_GROUP,
    Authorities,
    BadCertificate,
    Pair,
    is_valid,
    make_authorities,
    sign_client,
)
from operators.clusters.samples import NOW, authorities, credentials

DAY = timedelta(days=1)


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
