"""Files of the consumers: Secrets and ConfigMaps, mounted read-only.

The kubelet updates a mounted Secret after a rotation. It does not update environment variables,
and these are easier to leak.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from libs.common.kinds import Manifest
from operators.pulsarconsumer.api.connection import (
    Authentication,
    ServiceAccountTokenAuthentication,
)
from operators.pulsarconsumer.api.consuming import Encryption
from operators.pulsarconsumer.api.v1 import PulsarConsumer

_ROOT: Final = "/etc/pulsar"
AUTH_DIRECTORY: Final = f"{_ROOT}/auth"
"""Directory of the token, the key file, or user name and password."""
CLIENT_TLS_DIRECTORY: Final = f"{_ROOT}/client-tls"
"""Directory of the client certificate and its key."""
TLS_DIRECTORY: Final = f"{_ROOT}/tls"
"""Directory of the trusted certificates."""
CA_FILE: Final = f"{TLS_DIRECTORY}/ca.crt"
"""File with the trusted certificates."""
SCHEMA_DIRECTORY: Final = f"{_ROOT}/schema"
"""Directory of the schema definition."""
SCHEMA_FILE: Final = f"{SCHEMA_DIRECTORY}/schema"
"""File with the schema definition."""
ENCRYPTION_DIRECTORY: Final = f"{_ROOT}/encryption"
"""Directory of the keys for end-to-end encryption."""
JOURNAL_DIRECTORY: Final = "/tmp/journal"  # noqa: S108 in the volume of the pod
"""Directory in which the app records messages in progress; the volume outlives the container."""
_SCRATCH: Final = "/tmp"  # noqa: S108 a volume of the pod's own
_GROUP_READABLE: Final = 0o440

type Mounted = tuple[Manifest, str]
"""A volume and its mount."""


def build_volumes(consumer: PulsarConsumer) -> tuple[list[Manifest], list[Manifest]]:
    """Build the volumes of a pod and the mounts of the container that consumes."""
    scratch = {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}
    mounted = list(_walk(consumer))
    volumes = [scratch, *(volume for volume, _ in mounted)]
    mounts = [
        {"name": "tmp", "mountPath": _SCRATCH},
        *({"name": v["name"], "mountPath": path, "readOnly": True} for v, path in mounted),
    ]
    return volumes, mounts


def _walk(consumer: PulsarConsumer) -> Iterator[Mounted]:
    spec = consumer.spec
    if spec.authentication is not None:
        yield from _login(spec.authentication)
    if spec.tls is not None and spec.tls.trusted_ca_secret_ref is not None:
        reference = spec.tls.trusted_ca_secret_ref
        yield _secret("tls", reference.name, {reference.key: "ca.crt"}), TLS_DIRECTORY
    schema = spec.message_schema
    if schema is not None and schema.config_map_key_ref is not None:
        source = schema.config_map_key_ref
        items = [{"key": source.key, "path": "schema"}]
        volume = {"name": "schema", "configMap": {"name": source.name, "items": items}}
        yield volume, SCHEMA_DIRECTORY
    if spec.encryption is not None:
        yield _keys(spec.encryption), ENCRYPTION_DIRECTORY


def _login(login: Authentication) -> Iterator[Mounted]:
    if login.token is not None:
        reference = login.token.secret_key_ref
        yield _secret("auth", reference.name, {reference.key: "token"}), AUTH_DIRECTORY
    if login.service_account_token is not None:
        yield _project(login.service_account_token), AUTH_DIRECTORY
    if login.oauth2 is not None:
        reference = login.oauth2.credentials_secret_ref
        items = {reference.key: "credentials.json"}
        yield _secret("auth", reference.name, items), AUTH_DIRECTORY
    if login.basic is not None:
        items = {"username": "username", "password": "password"}
        yield _secret("auth", login.basic.secret_name, items), AUTH_DIRECTORY
    if login.tls is not None:
        items = {"tls.crt": "tls.crt", "tls.key": "tls.key"}
        yield _secret("client-tls", login.tls.secret_name, items), CLIENT_TLS_DIRECTORY


def _keys(encryption: Encryption) -> Manifest:
    references = {"private.pem": encryption.private_key_secret_ref}
    if encryption.public_key_secret_ref is not None:
        references["public.pem"] = encryption.public_key_secret_ref
    sources = [
        {"secret": {"name": source.name, "items": [{"key": source.key, "path": path}]}}
        for path, source in references.items()
    ]
    projected = {"defaultMode": _GROUP_READABLE, "sources": sources}
    return {"name": "encryption", "projected": projected}


def _project(token: ServiceAccountTokenAuthentication) -> Manifest:
    source = {
        "audience": token.audience,
        "expirationSeconds": token.expiration_seconds,
        "path": "token",
    }
    projected = {
        "defaultMode": _GROUP_READABLE,
        "sources": [{"serviceAccountToken": source}],
    }
    return {"name": "auth", "projected": projected}


def _secret(name: str, secret: str, items: Mapping[str, str]) -> Manifest:
    listed = [{"key": key, "path": path} for key, path in items.items()]
    source = {"secretName": secret, "defaultMode": _GROUP_READABLE, "items": listed}
    return {"name": name, "secret": source}
