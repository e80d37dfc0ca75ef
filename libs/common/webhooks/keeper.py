"""Keeps the certificate of a webhook: in a Secret that all replicas share, and trusted.

Every replica does the same: look, and renew what is due. A write names the version that was looked
at, so of several that renew at once one wins and the others take what it wrote. What the chart has
made (the Secret, the webhook configuration, the CRDs with conversions) is only filled in: no right
to create is needed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.errors import Conflict, Invalid, patch_error
from libs.common.kinds import SECRET, Key, Kind, Manifest, key_of
from libs.common.reading import map_at
from libs.common.webhooks.certificates import (
    LIFETIME,
    Certificate,
    find_problem,
    is_certificate,
    issue,
)

log = structlog.get_logger("webhooks")

_TRIES: Final = 5
_FIELDS: Final = ("tls.crt", "tls.key", "ca.crt")


@dataclass(frozen=True, slots=True)
class TrustingObject:
    """A cluster-scoped object that says which webhooks the API server calls and trusts.

    Attributes:
        kind: A kind of webhook configuration, or CustomResourceDefinition.
        name: Its name; it must exist.
    """

    kind: Kind
    name: str


class CertificateKeeper:
    """The keeper of one certificate: it creates, renews and publishes the certificate.

    Args:
        client: Connection that writes on standbys too.
        clock: Time source.
        secret: Where the certificate is kept; it must exist.
        trusting: Objects in which the certificate is published.
        names: DNS names of the webhook.
        lifetime: How long a certificate is valid.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        secret: Key,
        trusting: Sequence[TrustingObject],
        names: Sequence[str],
        *,
        lifetime: timedelta = LIFETIME,
    ) -> None:
        """Take what is kept; nothing is sent before `ensure`."""
        self._client = client
        self._clock = clock
        self._secret = secret
        self._trusting = tuple(trusting)
        self._names = names
        self._lifetime = lifetime
        self._shown: Certificate | None = None

    async def ensure(self) -> Certificate:
        """Return the certificate to show, renewed when it is due; the API server trusts it.

        Raises:
            SlipwayError: Secret or trusting objects cannot be read or written.
        """
        for left in reversed(range(_TRIES)):
            # Read first what is written last. A replica that renews between the two reads makes
            # the write conflict; the other way round its bundle would be put back to ours.
            found = [
                (each.kind, await self._client.get(each.kind, Key("", each.name)))
                for each in self._trusting
            ]
            certificate = await self._renew_if_due()
            try:
                # First of all trusted, then shown: never do the two not fit.
                for kind, manifest in found:
                    await self._trust(certificate, kind, manifest)
            except Conflict:
                if not left:
                    raise
                continue
            self._shown = certificate
            return certificate
        raise AssertionError  # The last try returns or raises.

    async def _renew_if_due(self) -> Certificate:
        for left in reversed(range(_TRIES)):
            secret = await self._client.get(SECRET, self._secret)
            held = parse_secret(secret)
            problem = find_problem(held, self._names, self._clock.now()) if held else "is missing"
            if held is not None and not problem:
                return held
            # Of a Secret that was emptied or spoiled: other replicas show what this one does.
            known = held if held is not None and is_certificate(held.certificate) else self._shown
            fresh = issue(self._names, self._clock.now(), lifetime=self._lifetime, before=known)
            try:
                await self._client.replace(SECRET, {**secret, "data": render_data(fresh)})
            except Conflict:
                # Another replica was faster; look at what it wrote.
                if not left:
                    raise
                continue
            log.info("Renewing the certificate of the webhook", because=problem)
            return fresh
        raise AssertionError  # The last try returns or raises.

    async def _trust(self, certificate: Certificate, kind: Kind, found: Manifest) -> None:
        bundle = base64.b64encode(certificate.trusted).decode()
        operations: list[Manifest] = [
            {"op": "add", "path": f"{path}/caBundle", "value": bundle}
            for path, config in _list_client_configs(found)
            if self._is_ours(config) and config.get("caBundle") != bundle
        ]
        if not operations:
            return
        # The webhooks are counted in the version that was looked at.
        version = found["metadata"]["resourceVersion"]
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        try:
            await self._client.patch(kind, key_of(found), [test, *operations])
        except Invalid as error:
            raise patch_error(error) from error

    def _is_ours(self, config: Mapping[str, Any]) -> bool:
        # Releases share a CRD, and only one of them converts its objects. The chart gives Service
        # and Secret the same name.
        service = map_at(config, "service")
        return not service or Key(service["namespace"], service["name"]) == self._secret


def _list_client_configs(found: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each `clientConfig` of an object with its JSON pointer."""
    for index, webhook in enumerate(found.get("webhooks") or ()):
        yield f"/webhooks/{index}/clientConfig", webhook["clientConfig"]
    if config := map_at(found, "spec", "conversion", "webhook", "clientConfig"):
        yield "/spec/conversion/webhook/clientConfig", config


def parse_secret(secret: Mapping[str, Any]) -> Certificate | None:
    """Read the certificate of a Secret; None when there is none."""
    data = secret.get("data") or {}
    try:
        certificate, key, trusted = (
            base64.b64decode(data.get(name) or "", validate=True) for name in _FIELDS
        )
    except ValueError:
        return None
    return Certificate(certificate, key, trusted) if certificate and key else None


def render_data(certificate: Certificate) -> dict[str, str]:
    """Render a certificate as the data of a Secret."""
    values = (certificate.certificate, certificate.key, certificate.trusted)
    return {
        name: base64.b64encode(value).decode() for name, value in zip(_FIELDS, values, strict=True)
    }
