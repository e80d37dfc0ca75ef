"""Settings of the connection to Pulsar: where, over TLS or not, as whom."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class AuthType(StrEnum):
    """How the app says who it is."""

    NONE = "None"
    TOKEN = "Token"  # noqa: S105 the name of a method
    OAUTH2 = "OAuth2"
    BASIC = "Basic"
    TLS = "TLS"


class ConnectionSettings(BaseSettings):
    """How to reach Pulsar; paths are of files, which are read again when they change."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    server: str
    """server is the address of the brokers: `pulsar://host:6650`, or `pulsar+ssl://` for TLS;
    several hosts are separated by commas. With `http://` or `https://` it is the address of their
    HTTP service, which names the brokers."""

    listener_name: str = ""
    """listener_name is the advertised listener of the brokers to connect to (listenerName of
    Pulsar's clients); empty means the default listener."""

    tls_trusted_ca_file: str = ""
    """tls_trusted_ca_file contains the trusted certificate authorities; empty means
    the authorities that browsers trust."""

    tls_verify_hostname: bool = True
    """tls_verify_hostname sets whether the certificate of the broker must match its
    host name."""

    tls_allow_insecure: bool = False
    """tls_allow_insecure sets whether any certificate is accepted; for tests only."""

    tls_certificate_file: str = ""
    """tls_certificate_file contains the client certificate of the app (mTLS)."""

    tls_key_file: str = ""
    """tls_key_file holds the key of tls_certificate_file."""

    auth_type: AuthType = AuthType.NONE
    """auth_type is the authentication method: None, Token, OAuth2, Basic or TLS."""

    token_file: str = ""
    """token_file holds the token for Token; it is read at each connection and each time that the
    broker asks, so a new token needs no restart."""

    oauth2_credentials_file: str = ""
    """oauth2_credentials_file holds JSON with client_id and client_secret for OAuth2, and may hold
    issuer_url."""

    oauth2_issuer_url: str = ""
    """oauth2_issuer_url is the issuer of tokens; empty means the issuer in the
    credentials file."""

    oauth2_audience: str = ""
    """oauth2_audience is the audience of the tokens."""

    oauth2_scope: str = ""
    """oauth2_scope is the scope of the tokens."""

    basic_username_file: str = ""
    """basic_username_file holds the user's name for Basic."""

    basic_password_file: str = ""
    """basic_password_file holds the password for Basic."""

    operation_timeout_seconds: int = Field(default=30, ge=1, le=600)
    """operation_timeout_seconds is how long to wait for the response of the broker to a
    request such as a subscription."""

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.server.startswith(("pulsar+ssl://", "https://"))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what load_settings() found, and nothing else."""
        return (init_settings,)

    @field_validator("server")
    @classmethod
    def _check_server(cls, value: str) -> str:
        if not value.startswith(("pulsar://", "pulsar+ssl://", "http://", "https://")):
            raise ValueError("must begin with pulsar://, pulsar+ssl://, http:// or https://")
        if "[" in value:
            raise ValueError(
                "contains an IPv6 address, which the Pulsar client does not support: use a host"
                " name that has an IPv4 address"
            )
        return value

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        needed = {
            AuthType.TOKEN: ("token_file",),
            AuthType.OAUTH2: ("oauth2_credentials_file",),
            AuthType.BASIC: ("basic_username_file", "basic_password_file"),
            AuthType.TLS: ("tls_certificate_file", "tls_key_file"),
        }.get(self.auth_type, ())
        if missing := [name for name in needed if not getattr(self, name)]:
            raise ValueError(f"auth_type {self.auth_type} needs {' and '.join(missing)}")
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise ValueError("set both tls_certificate_file and tls_key_file, or neither")
        if self.auth_type is AuthType.TLS and not self.uses_tls:
            raise ValueError("auth_type TLS needs a server that begins with pulsar+ssl://")
        return self
