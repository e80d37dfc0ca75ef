"""Credentials come from files, and what is wrong with these is said without showing them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operators.pulsarconsumer.app.client import (
    CredentialsMissing,
    build_authentication,
    build_oauth2,
)
from operators.pulsarconsumer.app.settings import ConnectionSettings
from operators.pulsarconsumer.app.settings.load import load

SERVER = "pulsar+ssl://pulsar:6651"


def settings_of(**values: object) -> ConnectionSettings:
    environ = {name.upper(): str(value) for name, value in values.items()}
    return load(ConnectionSettings, {"SERVER": SERVER, **environ}, "")


def test_each_way_to_say_who_one_is_can_be_built(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t\n")
    credentials = tmp_path / "credentials.json"
    credentials.write_text('{"client_id": "a", "client_secret": "b", "issuer_url": "https://i"}')

    assert build_authentication(settings_of()) is None
    for settings in (
        settings_of(auth_type="Token", token_file=secret),
        settings_of(auth_type="Basic", basic_username_file=secret, basic_password_file=secret),
        settings_of(auth_type="OAuth2", oauth2_credentials_file=credentials),
        settings_of(auth_type="TLS", tls_certificate_file=secret, tls_key_file=secret),
    ):
        assert build_authentication(settings) is not None


def test_secret_of_oauth_stays_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text('{"client_id": "a", "client_secret": "s3cr3t"}')
    settings = settings_of(
        auth_type="OAuth2",
        oauth2_credentials_file=path,
        oauth2_issuer_url="https://issuer",
        oauth2_audience="pulsar",
    )

    assert build_oauth2(settings) == {
        "issuer_url": "https://issuer",
        "private_key": str(path),
        "audience": "pulsar",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no json s3cr3t", "is not a JSON object"),
        (json.dumps(["s3cr3t"]), "is not a JSON object"),
        (json.dumps({"client_id": "s3cr3t"}), "holds no issuer_url"),
        ("", "is empty"),
    ],
)
def test_fault_of_a_credentials_file_is_told_without_it(
    text: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(text)

    with pytest.raises(CredentialsMissing, match=expected) as caught:
        build_authentication(settings_of(auth_type="OAuth2", oauth2_credentials_file=path))

    assert str(path) in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_missing_token_file_is_named() -> None:
    with pytest.raises(CredentialsMissing, match="/none/token: No such file"):
        build_authentication(settings_of(auth_type="Token", token_file="/none/token"))
