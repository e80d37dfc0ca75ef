"""Keeps the certificate of a webhook: in a Secret that all replicas share, and trusted.

Every replica does the same: look, and renew what is due. A write names the version that was looked
at, so of several that renew at once one wins and the others take what it wrote. What the chart has
made (the Secret, the webhook configuration) is only filled in: no right
to create is needed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import structlog

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.kinds import SECRET, Key
from libs.common.webhooks.certificates import (
    LIFETIME,
    Certificate,
    find_problem,
    is_certificate,
    issue,
)
from libs.common.webhooks.trust import TrustingObject, TrustPublisher, retry_conflicts

log = structlog.get_logger("webhooks")

_FIELDS: Final = ("tls.crt", "tls.key", "ca.crt")


class Keeper(Protocol):
    """Whoever has the certificate of a webhook."""

    async def ensure(self) -> Certificate:
        """Return the certificate to show, which the API server trusts.

        Raises:
            SlipwayError: There is none, or it cannot be published.
        """
        ...


class CertificateKeeper:
    """The keeper of a certificate of its own: it creates, renews and publishes the certificate.

    Args:
        client: Connection that writes on standbys too.
        clock: Time source.
        secret: Where the certificate is kept; it must exist. The Service has the same name.
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
        self._publisher = TrustPublisher(client, secret, trusting)
        self._names = names
        self._lifetime = lifetime
        self._shown: Certificate | None = None

    async def ensure(self) -> Certificate:
        """Return the certificate to show, renewed when it is due; the API server trusts it.

        Raises:
            SlipwayError: Secret or trusting objects cannot be read or written.
        """
        self._shown = await retry_conflicts(self._publish)
        return self._shown

    async def _publish(self) -> Certificate:
        found = await self._publisher.read()
        certificate = await retry_conflicts(self._renew_if_due)
        # First of all trusted, then shown: never do the two not fit.
        for each in found:
            await self._publisher.publish(each, lambda _: certificate.trusted)
        return certificate

    async def _renew_if_due(self) -> Certificate:
        secret = await self._client.get(SECRET, self._secret)
        held = parse_secret(secret)
        problem = find_problem(held, self._names, self._clock.now()) if held else "is missing"
        if held is not None and not problem:
            return held
        # Of a Secret that was emptied or spoiled: other replicas show what this one does.
        known = held if held is not None and is_certificate(held.certificate) else self._shown
        fresh = issue(self._names, self._clock.now(), lifetime=self._lifetime, before=known)
        await self._client.replace(SECRET, {**secret, "data": render_data(fresh)})
        log.info("Renewing the certificate of the webhook", because=problem)
        return fresh


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
