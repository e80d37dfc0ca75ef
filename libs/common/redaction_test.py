"""Tests that secrets do not get through, and that the rest does."""

import pytest
from pydantic import BaseModel, SecretStr

from libs.common.redaction import REDACTED, is_sensitive_key, redact, redact_items, redact_text

CANARY = "canary-s3cr3t"


@pytest.mark.parametrize(
    "key",
    ["token", "dbPassword", "secret", "client_secret", "Authorization", "apiKey", "privateKey",
     "Set-Cookie", "aws-credentials", "stringData", "tlsPrivateKey"],
)  # fmt: skip # one line reads better than eleven
def test_key_of_a_secret_is_sensitive(key: str) -> None:
    assert is_sensitive_key(key)


@pytest.mark.parametrize(
    "key", ["name", "secret_name", "secretRef", "tokenPath", "fencing_token", "keys", "pod", "kind"]
)
def test_key_of_a_name_is_harmless(key: str) -> None:
    assert not is_sensitive_key(key)


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"authorization: basic {CANARY}",
        f"pulsar://user:{CANARY}@broker:6650/x",
        f"https://:{CANARY}@host",
        f"GET /x?token={CANARY}&limit=1",
        f'{{"password": "{CANARY}"}}',
        f"{{'db-password': '{CANARY}'}}",
        f'{{"token": "a\\"{CANARY}"}}',
        f"--admin-token={CANARY}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}",
        f"eyJhbGciOiJSUzI1NiJ9.{CANARY}.sig",
        f"AWS_SECRET_ACCESS_KEY={CANARY}",
        f"spring.datasource.password: {CANARY}",
        f"psql --password {CANARY} -h db",
        f"X-Api-Key: {CANARY}",
        f'{{"name": "DB_PASSWORD", "value": "a\\"{CANARY}"}}',
        f"curl -u user:{CANARY} https://host",
        f"GET https://h/a.qcow2?X-Amz-Date=1&X-Amz-Signature={CANARY}",
        f"https://h/a?X-Goog-Signature={CANARY}&x=1",
        f"https://h.example.com/a?se=1&sig={CANARY}",
        f"https://{CANARY}@host/x.git",
        f"ghp{chr(95)}0123456789abcdef_{CANARY}",
        f"AK{chr(73)}A0123456789ABCDEF{CANARY}",
    ],
)
def test_credential_is_taken_out_of_a_text(text: str) -> None:
    result = redact_text(text)

    assert CANARY not in result
    assert REDACTED in result


@pytest.mark.parametrize(
    "text",
    [
        "Creating secret web-tls",
        "PodSet default/web: spec.replicas must be at least 0",
        "https://10.0.0.1:443/api/v1/namespaces/default/secrets/web",
        "token expired",
        "cannot read token: file not found",
        "--token is required",
        "Secret web-tls: key tls.crt is missing",
        '{"name": "MODE", "value": "fast"}',
        "basic health check passed",
    ],
)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", ["a.", "a-", "eyJ-", "--a", "://", '"name":', "token "])
def test_time_grows_with_the_length_of_a_text_and_not_with_its_square(part: str) -> None:
    """Tenants choose texts: two of these took most of a minute in an earlier form."""
    for _ in range(10):
        assert redact_text("token " + part * (16_000 // len(part))).startswith("token ")


def test_long_text_is_cut() -> None:
    assert redact_text("x" * 20_000).endswith("... (20000 characters)")


def test_secret_object_is_shown_by_name_only() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": "default", "name": "web"},
        "data": {"a": CANARY},
        "stringData": {"b": CANARY},
    }

    assert redact(secret) == f"Secret default/web {REDACTED}"
    assert CANARY not in str(redact({"items": [secret]}))
    assert CANARY not in str(redact({"apiVersion": "v1", "kind": "SecretList", "items": [CANARY]}))


def test_manifest_keeps_what_is_no_secret() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": CANARY},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "env": [
                        {"name": "DB_PASSWORD", "value": CANARY},
                        {"name": "MODE", "value": "fast"},
                        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}},
                    ]
                }
            ],
        },
    }

    text = str(redact(pod))

    assert CANARY not in text
    assert all(word in text for word in ("web-0", "fast", "secretKeyRef", "'name': 'db'"))
    assert "'automountServiceAccountToken': False" in text


class Login(BaseModel):
    """A model with secrets of both sorts."""

    user: str
    password: str
    token: SecretStr


def test_model_and_odd_values_are_redacted() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError(CANARY)

    model = Login(user="me", password=CANARY, token=SecretStr(CANARY))
    text = str(redact([model, CANARY.encode(), Broken(), {"x": Exception(f"token={CANARY}")}]))

    assert CANARY not in text
    assert "me" in text


def test_container_that_contains_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)

    assert "[...]" in str(redact(loop))


def test_named_values_lose_secrets_and_keep_their_absence() -> None:
    items = {"token": CANARY, "password": "", "count": 3, "secret_name": "web"}

    assert redact_items(items.items()) == {
        "token": REDACTED, "password": "", "count": 3, "secret_name": "web",
    }  # fmt: skip # a table
