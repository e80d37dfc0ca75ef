"""Parts of the spec that say where the broker is, and how to log in."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from libs.common.crd import DnsSubdomain, KubernetesModel, Rule, ShortText

_HOST: Final = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
_HOSTS: Final = rf"({_HOST})(:[0-9]{{1,5}})?(,({_HOST})(:[0-9]{{1,5}})?)*"

ServerAddress = Annotated[
    str, Field(max_length=2048, pattern=rf"^(pulsar|pulsar\+ssl|http|https)://{_HOSTS}/?$")
]
"""The service URL of a Pulsar cluster; several hosts are joined by commas."""

HttpAddress = Annotated[
    str,
    Field(max_length=2048, pattern=rf"^https?://({_HOST})(:[0-9]{{1,5}})?(/[A-Za-z0-9._/-]*)?$"),
]
"""An HTTP URL without credentials, query and fragment."""

IssuerUrl = Annotated[
    str,
    Field(max_length=2048, pattern=rf"^https?://({_HOST})(:[0-9]{{1,5}})?(/[A-Za-z0-9._~/-]*)?$"),
]
"""The URL of an OAuth2 issuer."""

_NAME: Final = r"[^/,\s]*[^/,.\s][^/,\s]*"
"""A segment of a path of the admin API: `.` and `..` name other paths."""

TopicName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=512,
        pattern=rf"^(((persistent|non-persistent)://)?{_NAME}/{_NAME}/)?{_NAME}$",
    ),
]
"""A topic: `persistent://tenant/namespace/name`, `tenant/namespace/name`, or a name in
`public/default`."""

TopicPattern = Annotated[
    str,
    Field(
        min_length=1,
        max_length=512,
        pattern=rf"^(persistent://)?[^/:\s]*[^/:.\s][^/:\s]*/{_NAME}/[^\s]+$",
    ),
]
"""A regular expression for the names of topics in one namespace of Pulsar, with or without
`persistent://`."""

SubscriptionName = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[^\s/]*[^./\s][^\s/]*$")
]
"""The name of a subscription."""

FileKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
"""A key of a Secret or ConfigMap."""


def _drop_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


UNSTORED: Final = Field(json_schema_extra=_drop_default)
"""Marks a field whose default the operator applies: the API server does not store it, so that an
object shows only what its author wrote."""


class Switch(StrEnum):
    """Switch turns something on or off."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class AuthenticationType(StrEnum):
    """AuthenticationType names the ways to log in."""

    TOKEN = "Token"  # noqa: S105 the name of a type, no password
    OAUTH2 = "OAuth2"
    BASIC = "Basic"
    TLS = "TLS"
    SERVICE_ACCOUNT_TOKEN = "ServiceAccountToken"  # noqa: S105 the name of a type, no password


class KeyReference(KubernetesModel):
    """KeyReference names one key of a Secret or ConfigMap in the same namespace."""

    name: DnsSubdomain
    """name is the name of the Secret or ConfigMap."""
    key: FileKey
    """key is the key in the Secret or ConfigMap."""


class TokenAuthentication(KubernetesModel):
    """TokenAuthentication logs in by a token such as a JWT."""

    secret_key_ref: KeyReference
    """secretKeyRef names the Secret and the key that hold the token."""


class OAuth2Authentication(KubernetesModel):
    """OAuth2Authentication logs in by the client credentials flow."""

    issuer_url: Annotated[IssuerUrl, Field(alias="issuerURL")]
    """issuerURL is the URL of the issuer, which serves its OpenID configuration."""
    audience: ShortText = ""
    """audience is the audience of the token, such as urn:pulsar:cluster."""
    scope: ShortText = ""
    """scope is the requested scope."""
    credentials_secret_ref: KeyReference
    """credentialsSecretRef names the key file: JSON with client_id and client_secret."""


class BasicAuthentication(KubernetesModel):
    """BasicAuthentication logs in by user name and password."""

    secret_name: DnsSubdomain
    """secretName is a Secret with the keys username and password."""


class TLSAuthentication(KubernetesModel):
    """TLSAuthentication logs in by a client certificate."""

    secret_name: DnsSubdomain
    """secretName is a Secret with the keys tls.crt and tls.key."""


class ServiceAccountTokenAuthentication(KubernetesModel):
    """ServiceAccountTokenAuthentication logs in by a token of the pods' ServiceAccount."""

    audience: Annotated[ShortText, Field(min_length=1)]
    """audience is the audience of the token, which the brokers must accept. Use one that other
    services, such as the Kubernetes API server, do not accept."""
    expiration_seconds: Annotated[int, Field(ge=600, le=86_400)] = 3600
    """expirationSeconds is the requested lifetime of the token. The kubelet renews the token before
    it expires."""


def _only_for(name: str, of: str) -> Rule:
    return Rule(
        f"has(self.{name}) == (self.type == '{of}')",
        f"{name} must be set when type is {of}, and only then",
        field_path=f".{name}",
    )


class Authentication(
    KubernetesModel,
    rules=(
        _only_for("token", "Token"),
        _only_for("oauth2", "OAuth2"),
        _only_for("basic", "Basic"),
        _only_for("tls", "TLS"),
        _only_for("serviceAccountToken", "ServiceAccountToken"),
    ),
):
    """Authentication configures how consumers, or the operator, authenticate to the broker.

    Consumers read Secrets from files, which are updated when the Secret is rotated.
    """

    type: AuthenticationType
    """type is Token, OAuth2, Basic, TLS or ServiceAccountToken."""
    token: TokenAuthentication | None = None
    """token configures the login with a token. Required for type Token."""
    oauth2: OAuth2Authentication | None = None
    """oauth2 configures the login with OAuth2 client credentials. Required for type OAuth2."""
    basic: BasicAuthentication | None = None
    """basic configures the login with user name and password. Required for type Basic."""
    tls: TLSAuthentication | None = None
    """tls configures the login with a client certificate. Required for type TLS."""
    service_account_token: ServiceAccountTokenAuthentication | None = None
    """serviceAccountToken configures the login with the token of a service account, which only
    consumers can use. Required for type ServiceAccountToken."""


class TransportSecurity(KubernetesModel):
    """TransportSecurity configures how the certificate of the broker is verified."""

    trusted_ca_secret_ref: Annotated[KeyReference | None, Field(alias="trustedCASecretRef")] = None
    """trustedCASecretRef names the certificates to trust, as PEM. Defaults to the certificates of
    the image."""
    hostname_verification: Switch = Switch.ENABLED
    """hostnameVerification checks that the certificate is valid for the requested host."""
    certificate_verification: Switch = Switch.ENABLED
    """certificateVerification checks who signed the certificate. Use Disabled for tests only."""
