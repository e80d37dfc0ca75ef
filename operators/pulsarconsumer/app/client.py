"""Connections to Pulsar as the settings ask for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pulsar

from operators.pulsarconsumer.app.settings import AuthType, ConnectionSettings

_CONNECT_MILLISECONDS: Final = 10_000


class CredentialsMissing(Exception):
    """A file of the credentials cannot be read, or does not hold what it should."""


def build_client(settings: ConnectionSettings) -> pulsar.Client:
    """Build a client; it connects with the first use.

    Raises:
        CredentialsMissing: A file cannot be read.
    """
    tls = settings.uses_tls
    return pulsar.Client(
        settings.server,
        authentication=build_authentication(settings),
        operation_timeout_seconds=settings.operation_timeout_seconds,
        connection_timeout_ms=_CONNECT_MILLISECONDS,
        listener_name=settings.listener_name or None,
        # The client does not warn if it checks nothing, so the option is always set.
        tls_validate_hostname=settings.tls_verify_hostname and not settings.tls_allow_insecure,
        tls_allow_insecure_connection=settings.tls_allow_insecure,
        tls_trust_certs_file_path=settings.tls_trusted_ca_file or None,
        tls_certificate_file_path=(settings.tls_certificate_file or None) if tls else None,
        tls_private_key_file_path=(settings.tls_key_file or None) if tls else None,
        # Lines of a Python logger need the interpreter's lock in threads of the client, which ends
        # in a deadlock when it closes. The console is stdout, which is stderr here: see streams.py.
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn),
    )


def build_authentication(settings: ConnectionSettings) -> pulsar.Authentication | None:
    """Build what shows the broker who we are, or None.

    Raises:
        CredentialsMissing: A file cannot be read.
    """
    match settings.auth_type:
        case AuthType.NONE:
            return None
        case AuthType.TOKEN:
            path = settings.token_file
            read_secret(path)  # Now, for an error that names the file.
            # Asked at each connection and each challenge of the broker.
            return pulsar.AuthenticationToken(lambda: _read_or_empty(path))
        case AuthType.TLS:
            return pulsar.AuthenticationTLS(settings.tls_certificate_file, settings.tls_key_file)
        case AuthType.BASIC:
            name = read_secret(settings.basic_username_file)
            return pulsar.AuthenticationBasic(name, read_secret(settings.basic_password_file))
        case AuthType.OAUTH2:
            return pulsar.AuthenticationOauth2(json.dumps(build_oauth2(settings)))


def build_oauth2(settings: ConnectionSettings) -> dict[str, str]:
    """Build the parameters of OAuth2; the secret itself stays in its file.

    Raises:
        CredentialsMissing: The file cannot be read, or nobody names the issuer.
    """
    path = settings.oauth2_credentials_file
    try:
        held = json.loads(read_secret(path))
        issuer = settings.oauth2_issuer_url or str(held.get("issuer_url", ""))
    except (ValueError, AttributeError):
        raise CredentialsMissing(f"{path}: is not a JSON object with client_id") from None
    if not issuer:
        raise CredentialsMissing(f"{path}: holds no issuer_url, and oauth2_issuer_url is not set")
    optional = {"audience": settings.oauth2_audience, "scope": settings.oauth2_scope}
    return {
        "issuer_url": issuer,
        "private_key": path,
        **{key: value for key, value in optional.items() if value},
    }


def read_secret(path: str) -> str:
    """Return what a file holds, without the line end that editors add.

    Raises:
        CredentialsMissing: It cannot be read, or is empty.
    """
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "is not text"
        raise CredentialsMissing(f"{path}: {reason}") from None
    if not text:
        raise CredentialsMissing(f"{path}: is empty")
    return text


def _read_or_empty(path: str) -> str:
    # An exception in a thread of the client would end the process. The broker refuses an empty
    # token, and the next connection asks again.
    try:
        return read_secret(path)
    except CredentialsMissing:
        return ""
