"""Credentials of the operator's own calls: what the spec and its Secrets become."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.kinds import SECRET, build_object
from libs.common.testing.fakeapi import FakeApi
from operators.pulsarconsumer.ask import SecretMissing, read_login
from operators.pulsarconsumer.broker.login import KeyFile, Login, LoginInvalid
from operators.pulsarconsumer.samples import parse_consumer

KEY = {"name": "own", "key": "value"}
SECRETS = {
    "value": "text",
    "username": "shop",
    "password": "correct horse",
    "tls.crt": "certificate",
    "tls.key": "key",
    "key.json": '{"client_id": "a", "client_secret": "b"}',
}
OAUTH2 = {"issuerURL": "https://i", "credentialsSecretRef": {"name": "own", "key": "key.json"}}
CASES: dict[str, tuple[dict[str, Any], Login]] = {
    "nobody": ({}, Login()),
    "token": (
        {"authentication": {"type": "Token", "token": {"secretKeyRef": KEY}}},
        Login(token="text"),
    ),
    "basic": (
        {"authentication": {"type": "Basic", "basic": {"secretName": "own"}}},
        Login(username="shop", password="correct horse"),
    ),
    "mtls": (
        {"authentication": {"type": "TLS", "tls": {"secretName": "own"}}},
        Login(certificate="certificate", key="key"),
    ),
    "oauth2": (
        {"authentication": {"type": "OAuth2", "oauth2": {**OAUTH2, "audience": "c", "scope": "d"}}},
        Login(key_file=KeyFile("https://i", "a", "b", "c", "d")),
    ),
    "separate": (
        {
            "authentication": {"type": "TLS", "tls": {"secretName": "own"}},
            "adminAuthentication": {"type": "Basic", "basic": {"secretName": "own"}},
        },
        Login(username="shop", password="correct horse"),
    ),
    "own authority": ({"tls": {"trustedCASecretRef": KEY}}, Login(trusted="text")),
    "any host": ({"tls": {"hostnameVerification": "Disabled"}}, Login(verify_hostname=False)),
    "anybody": ({"tls": {"certificateVerification": "Disabled"}}, Login(verify_certificate=False)),
    "strict": (
        {"tls": {"hostnameVerification": "Enabled", "certificateVerification": "Enabled"}},
        Login(),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_spec_becomes_a_login(fake_api: FakeApi, fake_client: Client, name: str) -> None:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in SECRETS.items()}
    fake_api.create(build_object(SECRET, "own", "default", data=data))
    spec, expected = CASES[name]

    assert await read_login(parse_consumer(**spec), fake_client) == expected


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("token", "spec.authentication.token"),
        ("basic", "spec.authentication.basic"),
        ("mtls", "spec.authentication.tls"),
        ("oauth2", "spec.authentication.oauth2"),
        ("separate", "spec.adminAuthentication.basic"),
        ("own authority", "spec.tls.trustedCASecretRef"),
    ],
)
async def test_missing_key_is_named(
    fake_api: FakeApi, fake_client: Client, name: str, field: str
) -> None:
    fake_api.create(build_object(SECRET, "own", "default", data={}))

    with pytest.raises(SecretMissing, match=f"^{re.escape(field)}: Secret own has no key "):
        await read_login(parse_consumer(**CASES[name][0]), fake_client)


async def test_key_file_of_another_form_is_refused(fake_api: FakeApi, fake_client: Client) -> None:
    data = {"key.json": base64.b64encode(b'{"client_id": 5}').decode()}
    fake_api.create(build_object(SECRET, "own", "default", data=data))

    with pytest.raises(LoginInvalid):
        await read_login(parse_consumer(**CASES["oauth2"][0]), fake_client)
