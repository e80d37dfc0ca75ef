"""Builders of the components of a manager, and what it waits for before it uses them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.config import ConnectionConfig
from libs.common.election.core import Timing
from libs.common.election.elector import LeaseElector
from libs.common.election.interfaces import Elector, SoleLeader, build_identity
from libs.common.errors import SlipwayError
from libs.common.health import HealthServer
from libs.common.kinds import Key, Kind
from libs.common.metrics import Metrics
from libs.common.metrics_access import MetricsAccess
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.cache import Cache
from libs.common.runtime.controller import Controller
from libs.common.runtime.informer import Informer
from libs.common.runtime.queue import WorkQueue
from libs.common.settings import CommonSettings
from libs.common.tls import build_server_context

log = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 2.0
_SELF_SIGNED_LIFETIME: Final = timedelta(days=365)
"""A long lifetime does no harm: clients cannot verify a self-signed certificate in any case."""


def build_elector(
    settings: CommonSettings,
    config: ConnectionConfig,
    build_client: Callable[[], Client],
    metrics: Metrics,
    *,
    on_started_leading: Callable[[], object],
    on_stopped_leading: Callable[[], object],
    hard_exit: Callable[[int], object],
) -> Elector:
    """Build the elector; if leader election is disabled, every replica leads."""
    if not settings.leader_elect:
        return SoleLeader(on_started_leading)
    return LeaseElector(
        build_client,
        Key(settings.pod_namespace or config.namespace, settings.lease_name),
        build_identity(settings.pod_name),
        Timing(
            settings.lease_duration_seconds,
            settings.renew_deadline_seconds,
            settings.retry_period_seconds,
        ),
        on_started_leading=on_started_leading,
        on_stopped_leading=on_stopped_leading,
        metrics=metrics.leader(settings.lease_name),
        hard_exit=hard_exit,
    )


def build_health_server(
    settings: CommonSettings, metrics: Metrics, build_client: Callable[[], Client]
) -> HealthServer:
    """Build the server of probes and metrics.

    Raises:
        ConfigError: The certificate of the settings cannot be loaded.
    """
    tls = access = None
    if settings.metrics_secure:
        directory = settings.metrics_cert_dir
        tls = build_server_context(directory) if directory else _build_self_signed(settings)
        access = MetricsAccess(build_client())
    return HealthServer(
        metrics,
        settings.metrics_bind_address,
        settings.health_probe_bind_address,
        tls=tls,
        access=access,
    )


def _build_self_signed(settings: CommonSettings) -> ssl.SSLContext:
    # Imported here because it takes about 25 MiB of memory, and few operators need it.
    from libs.common.webhooks.certificates import issue, load_certificate

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    name = settings.pod_name or settings.operator_id()
    certificate = issue([name], datetime.now(UTC), lifetime=_SELF_SIGNED_LIFETIME)
    load_certificate(context, certificate)
    return context


def build_queue(
    settings: CommonSettings,
    controller: Controller,
    metrics: Metrics,
    clock: Clock,
    rng: Callable[[], float],
) -> WorkQueue:
    """Build the queue of a controller."""
    return WorkQueue(
        backoff=controller.backoff
        or BackoffPolicy(settings.backoff_base_seconds, settings.backoff_max_seconds),
        min_interval=settings.min_interval_seconds,
        clock=clock,
        rng=rng,
        metrics=metrics.queue(controller.name),
    )


def list_finalizers(controllers: Sequence[Controller]) -> list[tuple[Kind, str]]:
    """Return the primary of each controller that has a finalizer, with the finalizer."""
    return [(each.primary, each.finalizer) for each in controllers if each.finalizer]


def build_resource(
    settings: CommonSettings, config: ConnectionConfig, version: str
) -> dict[str, str]:
    """Build the attributes that identify the process in traces."""
    resource = {
        "service.version": version,
        "k8s.pod.name": settings.pod_name,
        "k8s.namespace.name": settings.pod_namespace or config.namespace,
    }
    return {name: value for name, value in resource.items() if value}


async def wait_served(client: Client, cache: Cache, clock: Clock) -> None:
    """Wait until all kinds of a cache are served: CRDs may be installed after the operator."""
    waiting = False
    while True:
        missing = [each.kind for each in cache if not await _is_served(client, each)]
        if not missing:
            return
        if not waiting:
            log.warning("Waiting for kinds to be served", kinds=[str(kind) for kind in missing])
            waiting = True
        await clock.sleep(_POLL_SECONDS)


async def _is_served(client: Client, informer: Informer) -> bool:
    if informer.optional:
        return True
    try:
        return await client.serves(informer.kind)
    except SlipwayError as err:
        log.warning("Waiting for the API server", error=str(err))
        return False
