"""Serves admission webhooks on every replica, from first certificate to end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from libs.common.clock import Clock
from libs.common.errors import SlipwayError
from libs.common.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Key,
    Kind,
)
from libs.common.metric_specs import WEBHOOK_CERTIFICATE_EXPIRATION
from libs.common.runtime.manager import Manager
from libs.common.settings.addresses import parse_bind_address
from libs.common.webhooks.bundles import is_trusted
from libs.common.webhooks.certificates import Certificate, find_expiration
from libs.common.webhooks.issued import IssuedCertificateKeeper
from libs.common.webhooks.keeper import CertificateKeeper, Keeper
from libs.common.webhooks.review import Reviewer
from libs.common.webhooks.server import AdmissionServer
from libs.common.webhooks.settings import WebhookSettings
from libs.common.webhooks.trust import TrustingObject

log = structlog.get_logger("webhooks")

_LOOK_SECONDS: Final = 60.0
"""Time between two looks at the certificate, which another replica may have renewed."""
_RETRY_SECONDS: Final = 2.0


def serve_webhooks(
    manager: Manager,
    reviewers: Mapping[str, Reviewer],
    kind: Kind = MUTATING_WEBHOOK_CONFIGURATION,
) -> Coroutine[Any, Any, None] | None:
    """Return what serves the webhooks of an operator; None when its settings name none.

    Args:
        manager: The process, whose settings are `WebhookSettings`.
        reviewers: Who judges, by path.
        kind: Kind of the webhook configuration.
    """
    settings = manager.settings
    if not isinstance(settings, WebhookSettings) or not settings.webhooks:
        return None
    address = parse_bind_address(settings.webhook_bind_address)
    if address is None:
        return None
    names = {
        kind: settings.webhook_configuration,
        VALIDATING_WEBHOOK_CONFIGURATION: settings.webhook_validating_configuration,
    }
    trusting = [TrustingObject(each, name) for each, name in names.items() if name]

    def build_server(certificate: Certificate) -> AdmissionServer:
        return AdmissionServer(reviewers, address, certificate)

    return _serve(manager, settings, trusting, build_server)


def name_service(service: Key) -> Sequence[str]:
    """Name a Service as an API server does."""
    return (f"{service.name}.{service.namespace}.svc",)


async def _serve(
    manager: Manager,
    settings: WebhookSettings,
    trusting: Sequence[TrustingObject],
    build_server: Callable[[Certificate], AdmissionServer],
) -> None:
    namespace = settings.pod_namespace or manager.config.namespace
    service = Key(namespace, settings.webhook_service)
    secret = Key(namespace, settings.webhook_certificate_secret)
    waiting = _Waiting()
    # Anyone who asks a Service is sent to what is ready, and must be answered there.
    manager.health.add_ready_check("webhooks", waiting.describe)
    expiration = manager.metrics.gauge(WEBHOOK_CERTIFICATE_EXPIRATION)
    # Standbys answer too, so each replica writes here, guarded by versions and not by the Lease.
    async with manager.build_client("webhooks") as client:
        keeper: Keeper
        clock, names = manager.clock, name_service(service)
        if secret.name:
            keeper = IssuedCertificateKeeper(client, clock, secret, service, trusting, names)
        else:
            keeper = CertificateKeeper(client, clock, service, trusting, names)
        shown = await _ensure_first(keeper, clock, waiting)
        async with build_server(shown) as server:
            log.info("Serving webhooks", port=server.port)
            waiting.is_over = True
            expiration.set(find_expiration(shown.certificate).timestamp())
            async for served in _follow(keeper, server, shown, clock):
                expiration.set(find_expiration(served.certificate).timestamp())


@dataclass
class _Waiting:
    """What the webhooks wait for before they are served."""

    is_over: bool = False
    cause: str = ""

    def describe(self) -> str | None:
        """Return what a probe reports; None once the webhooks are served."""
        if self.is_over:
            return None
        return ": ".join(filter(None, ("waiting for the certificate", self.cause)))


async def _ensure_first(keeper: Keeper, clock: Clock, waiting: _Waiting) -> Certificate:
    while True:
        try:
            return await keeper.ensure()
        except SlipwayError as error:
            if waiting.cause != str(error):
                log.warning("Waiting for the certificate of the webhook", error=str(error))
            waiting.cause = str(error)
        await clock.sleep(_RETRY_SECONDS)


async def _follow(
    keeper: Keeper, server: AdmissionServer, shown: Certificate, clock: Clock
) -> AsyncIterator[Certificate]:
    """Look after the certificate, and yield each one that takes its place in the server.

    API servers hear by a watch whom they should trust. So a certificate is shown with the second
    look at it, unless the one that is shown is trusted no more anyway.
    """
    last = shown
    while True:
        await clock.sleep(_LOOK_SECONDS)
        try:
            found = await keeper.ensure()
        except SlipwayError as error:
            log.warning(
                "Cannot maintain the certificate of the webhook, retrying", error=str(error)
            )
            continue
        still_trusted = is_trusted(shown.certificate, found.trusted)
        # A CA injector may not have published the new authority yet.
        known = _is_same(found, last) and is_trusted(found.certificate, found.trusted)
        if not _is_same(found, shown) and (known or not still_trusted):
            server.show(found)
            shown = found
            log.info("Serving a new certificate")
            yield shown
        last = found


def _is_same(one: Certificate, other: Certificate) -> bool:
    return (one.certificate, one.key) == (other.certificate, other.key)
