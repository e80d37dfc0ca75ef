"""Serves admission and conversion webhooks on every replica, from first certificate to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import structlog

from libs.common.clock import Clock
from libs.common.crd import Conversion
from libs.common.errors import SlipwayError
from libs.common.kinds import CRD, MUTATING_WEBHOOK_CONFIGURATION, Key, Kind
from libs.common.metric_specs import WEBHOOK_CERTIFICATE_EXPIRATION
from libs.common.runtime.manager import Manager
from libs.common.settings.addresses import parse_bind_address
from libs.common.webhooks.certificates import Certificate, find_expiration
from libs.common.webhooks.keeper import CertificateKeeper, TrustingObject
from libs.common.webhooks.review import Reviewer
from libs.common.webhooks.server import AdmissionServer
from libs.common.webhooks.settings import WebhookSettings

log = structlog.get_logger("webhooks")

_LOOK_SECONDS: Final = 60.0
"""Time between two looks at the certificate, which another replica may have renewed."""
_RETRY_SECONDS: Final = 2.0


def serve_webhooks(
    manager: Manager,
    reviewers: Mapping[str, Reviewer],
    kind: Kind = MUTATING_WEBHOOK_CONFIGURATION,
    *,
    conversions: Sequence[Conversion] = (),
) -> Coroutine[Any, Any, None] | None:
    """Return what serves the webhooks of an operator; None when its settings name none.

    Args:
        manager: The process, whose settings are `WebhookSettings`.
        reviewers: Who judges, by path.
        kind: Kind of the webhook configuration.
        conversions: Kinds whose objects the operator converts between versions.
    """
    settings = manager.settings
    if not isinstance(settings, WebhookSettings) or not settings.webhooks:
        return None
    address = parse_bind_address(settings.webhook_bind_address)
    if address is None:
        return None
    trusting = [TrustingObject(CRD, each.kind.resource) for each in conversions]
    if settings.webhook_configuration:
        trusting.insert(0, TrustingObject(kind, settings.webhook_configuration))

    def build_server(certificate: Certificate) -> AdmissionServer:
        return AdmissionServer(reviewers, address, certificate, conversions=conversions)

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
    serving = asyncio.Event()
    # Anyone who asks a Service is sent to what is ready, and must be answered there.
    manager.health.add_ready_check(
        "webhooks", lambda: None if serving.is_set() else "waiting for the certificate"
    )
    expiration = manager.metrics.gauge(WEBHOOK_CERTIFICATE_EXPIRATION)
    # Standbys answer too, so each replica writes here, guarded by versions and not by the Lease.
    async with manager.build_client("webhooks") as client:
        keeper = CertificateKeeper(
            client,
            manager.clock,
            service,
            trusting,
            name_service(service),
        )
        shown = await _ensure_first(keeper, manager.clock)
        async with build_server(shown) as server:
            log.info("Serving webhooks", port=server.port)
            serving.set()
            expiration.set(find_expiration(shown.certificate).timestamp())
            async for served in _follow(keeper, server, shown, manager.clock):
                expiration.set(find_expiration(served.certificate).timestamp())


async def _ensure_first(keeper: CertificateKeeper, clock: Clock) -> Certificate:
    while True:
        try:
            return await keeper.ensure()
        except SlipwayError as error:
            log.warning("Waiting for the certificate of the webhook", error=str(error))
        await clock.sleep(_RETRY_SECONDS)


async def _follow(
    keeper: CertificateKeeper, server: AdmissionServer, shown: Certificate, clock: Clock
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
        if found != shown and (found == last or shown.certificate not in found.trusted):
            server.show(found)
            shown = found
            log.info("Serving a new certificate")
            yield shown
        last = found
