"""Builds Pulsar clients from the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import orjson
import pulsar

from operators.pulsarconsumer.app.settings import AuthType, ConnectionSettings

_CONNECT_MILLISECONDS: Final = 10_000


class CredentialsMissing(Exception):
    """A file with credentials cannot be read or has invalid content."""


def build_client(settings: ConnectionSettings) -> pulsar.Client:
    """Build a client, which connects at its first use.

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
        # Always set explicitly, because the client does not warn if it verifies nothing.
        tls_validate_hostname=settings.tls_verify_hostname and not settings.tls_allow_insecure,
        tls_allow_insecure_connection=settings.tls_allow_insecure,
        tls_trust_certs_file_path=settings.tls_trusted_ca_file or None,
        tls_certificate_file_path=(settings.tls_certificate_file or None) if tls else None,
        tls_private_key_file_path=(settings.tls_key_file or None) if tls else None,
        # A Python logger would need the GIL in threads of the client, which causes a deadlock when
        # the client closes. The console logger writes to stdout, which is redirected to stderr: see
        # streams.py.
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn),
    )


def build_authentication(settings: ConnectionSettings) -> pulsar.Authentication | None:
    """Build the authentication of the client; None without authentication.

    Raises:
        CredentialsMissing: A file cannot be read.
    """
    match settings.auth_type:
        case AuthType.NONE:
            return None
        case AuthType.TOKEN:
            path = settings.token_file
            read_secret(path)  # Read it now, to raise an error that names the file.
            # Called at each connection and each challenge of the broker.
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
        CredentialsMissing: The file cannot be read, or no issuer is configured.
    """
    path = settings.oauth2_credentials_file
    try:
        held = orjson.loads(read_secret(path))
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
    """Return the content of a file, without a trailing newline.

    Raises:
        CredentialsMissing: The file cannot be read or is empty.
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
    # token, and the next connection reads the file again.
    try:
        return read_secret(path)
    except CredentialsMissing:
        return ""
