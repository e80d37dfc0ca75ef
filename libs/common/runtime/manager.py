"""Manager: one process of an operator, from the first probe to the last drained pass.

The order is what makes it safe. Probes answer first, so that the kubelet can tell waiting from
hanging. Then the kinds must be served and the caches filled, on every replica, so that a standby is
hot. Only then is the Lease asked for. A new leader holds its caches against the API server once
more, since what the last leader wrote may still be on its way, and only then do its workers start.
The end goes the other way: no new passes, the running ones to their end, and then the Lease is
given back, so that the next leader never works beside us.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from libs.common.client import Client
from libs.common.clock import Clock, SystemClock
from libs.common.config import ConnectionConfig
from libs.common.election import Elector, LeaseElector, SoleLeader, Timing, build_identity
from libs.common.errors import NotLeading, SlipwayError
from libs.common.events import EventRecorder
from libs.common.health import HealthServer, LoopLagMonitor
from libs.common.kinds import Key
from libs.common.metric_specs import BUILD_INFO, MetricSpec
from libs.common.metrics import Metrics
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.controller import Controller
from libs.common.runtime.informer import EventSource, Informer, SourceName
from libs.common.runtime.kopf_source import KopfSource
from libs.common.runtime.queue import WorkQueue
from libs.common.runtime.reflector import Reflector
from libs.common.runtime.runner import Runner
from libs.common.runtime.services import Services
from libs.common.runtime.sweep import Sweeper
from libs.common.runtime.waiting import wait_first
from libs.common.runtime.wiring import build_cache
from libs.common.settings import CommonSettings
from libs.common.telemetry import Telemetry, build_telemetry

log = structlog.get_logger(__name__)

_SERVED_POLL: Final = 2.0
_CLOSE_SECONDS: Final = 3.0
"""The drain, this and the last Events fit into the 30 s that a pod has to end."""

type Sources = Mapping[SourceName, EventSource]
type Part = Callable[[Manager], Coroutine[Any, Any, None] | None]
"""Build what runs beside the controllers, on standbys too; None where there is nothing to run."""


class Manager:
    """Run the controllers of one operator in one process.

    Args:
        operator_id: Id of the operator.
        settings: Settings of the process.
        config: Connection to the API server.
        controllers: What to run.
        metrics: Metrics of the operator itself.
        beside: What runs beside the controllers.
        version: Version of the operator, for the metric of the build and for traces.
        clock: Time source of the runtime.
        rng: Source of jitter.
        telemetry: Where spans go; None builds it from the settings.
        hard_exit: Ends the process when leadership was lost and it does not end by itself.
    """

    def __init__(
        self,
        operator_id: str,
        settings: CommonSettings,
        config: ConnectionConfig,
        controllers: Sequence[Controller],
        *,
        metrics: Sequence[MetricSpec] = (),
        beside: Sequence[Part] = (),
        version: str = "dev",
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
        telemetry: Telemetry | None = None,
        hard_exit: Callable[[int], object] = os._exit,
    ) -> None:
        """Build everything; nothing is sent before `run`."""
        self.id = operator_id
        self.settings = settings
        self.config = config
        self.clock = clock or SystemClock()
        self.metrics = Metrics(metrics)
        self.namespaces = settings.namespaces(config.namespace)
        self.metrics.gauge(BUILD_INFO).labels(operator_id, version).set(1)
        self.telemetry = telemetry or build_telemetry(
            settings.otlp_endpoint,
            operator_id,
            sample_ratio=settings.trace_sample_ratio,
            resource=_build_resource(settings, config, version),
        )
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()
        self.elector = self._build_elector(hard_exit)
        self.client = self._build_client("", self._fence)
        self.recorder = EventRecorder(
            self.client,
            operator_id,
            settings.pod_name or operator_id,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.cache = build_cache(controllers, self.namespaces, self.clock, self.metrics)
        self.sweeper = Sweeper(self.client, period=settings.sweep_period_seconds, clock=self.clock)
        self._services = Services(
            self.client, self.cache, self.recorder, self.clock, self.telemetry, self.metrics
        )
        self.runners = [self._build_runner(controller, rng) for controller in controllers]
        self.health = HealthServer(
            self.metrics, settings.metrics_bind_address, settings.health_probe_bind_address
        )
        self.working = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._rng = rng
        self._beside = beside
        self._lag = LoopLagMonitor(self.metrics)
        self._add_checks()

    async def run(self, stop: asyncio.Event) -> bool:
        """Run until told to stop, or until something that cannot be mended happens.

        Returns:
            Whether the end was asked for.
        """
        failed = asyncio.Event()
        tasks = self._tasks
        sources_stop = asyncio.Event()

        def start(name: str, work: Coroutine[Any, Any, None]) -> None:
            tasks.append(asyncio.create_task(self._supervise(name, work, failed), name=name))

        async with self.health:
            log.info(
                "Starting operator", operator=self.id, namespaces=list(self.namespaces) or ["*"]
            )
            start("loop-lag", self._lag.run())
            for number, part in enumerate(self._beside):
                if (work := part(self)) is not None:
                    start(f"beside-{number}", work)
            start("main", self._lead(start, sources_stop, failed))
            await wait_first(stop.wait(), failed.wait())
            log.info("Stopping operator", operator=self.id, asked=stop.is_set())
            await self._shut_down(sources_stop, tasks)
        return not failed.is_set()

    def build_client(self, name: str) -> Client:
        """Build a connection that a standby may write by as well; whoever asks for it closes it.

        Args:
            name: What it is for, as audit logs show it.
        """
        return self._build_client(f"/{name}", None)

    async def resweep(self) -> None:
        """Hold all caches against the API server now."""
        for informer in self.cache:
            if informer.served:
                await self.sweeper.sweep(informer)

    async def abandon(self) -> None:
        """Close the connections of a run that was canceled; for tests of crashes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_controllers()
        # One more Event would open the connections again.
        await self.recorder.abandon()
        await self.health.close()
        await self.client.close()

    async def _lead(
        self,
        start: Callable[[str, Coroutine[Any, Any, None]], None],
        sources_stop: asyncio.Event,
        failed: asyncio.Event,
    ) -> None:
        await self._wait_served()
        self._start_sources(start, sources_stop)
        try:
            async with asyncio.timeout(self.settings.cache_sync_timeout_seconds):
                for informer in self.cache:
                    await informer.wait_synced()
        except TimeoutError:
            missing = [str(informer.kind) for informer in self.cache if not informer.synced]
            log.error("Giving up on filling the caches", kinds=missing)
            failed.set()
            return
        log.info("Filled the caches", objects=sum(len(each.store) for each in self.cache))
        self.elector.start()
        await self._leading.wait()
        start("leadership", self._watch_leadership(failed))
        log.info("Leading", operator=self.id)
        await self._catch_up()
        for runner in self.runners:
            runner.begin()
            for number in range(self.settings.max_concurrent_reconciles):
                start(f"{runner.controller.name}-{number}", runner.work())
        start("resync", self._resync())
        self.working.set()

    async def _watch_leadership(self, failed: asyncio.Event) -> None:
        await self._lost.wait()
        log.error("Lost the Lease, stopping so that nobody works beside the new leader")
        failed.set()

    async def _catch_up(self) -> None:
        """Hold the caches against the API server before the first write.

        The watch of a standby may be behind what the last leader wrote in its last moment.
        """
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    for informer in self.cache:
                        if informer.served:
                            group.create_task(self.sweeper.sweep(informer))
            except* SlipwayError as errors:
                log.warning("Trying again to catch up", error=str(errors.exceptions[0]))
                await self.clock.sleep(1.0)
            else:
                return

    async def _shut_down(
        self, sources_stop: asyncio.Event, tasks: Sequence[asyncio.Task[None]]
    ) -> None:
        for runner in self.runners:
            runner.queue.close()
        drained = [asyncio.ensure_future(runner.queue.drained()) for runner in self.runners]
        if drained:
            _, late = await asyncio.wait(drained, timeout=self.settings.drain_timeout_seconds)
            if late:
                log.warning("Cutting passes short", controllers=len(late))
        sources_stop.set()
        for task in tasks:
            if not task.get_name().startswith("source-"):
                task.cancel()
        await asyncio.gather(*tasks, *drained, return_exceptions=True)
        await self._close_controllers()
        await self.recorder.close()
        # Last of all writes: whoever leads next must not meet one of ours.
        await self.elector.stop()
        await self.client.close()
        await self.telemetry.close()
        log.info("Stopped operator", operator=self.id)

    async def _close_controllers(self) -> None:
        for runner in self.runners:
            if runner.controller.close is None:
                continue
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await runner.controller.close()
            except Exception:
                # The Lease is still to be given back.
                log.exception("Failing to close", controller=runner.controller.name)

    # What is watched.

    def _start_sources(
        self, start: Callable[[str, Coroutine[Any, Any, None]], None], stop: asyncio.Event
    ) -> None:
        by_source: dict[SourceName, list[Informer]] = {}
        for informer in self.cache:
            by_source.setdefault(informer.source, []).append(informer)
        if reflected := by_source.get("reflector"):
            source: EventSource = Reflector(self.client, clock=self.clock, rng=self._rng)
            start("source-reflector", source.run(reflected, stop))
        if watched := by_source.get("kopf"):
            source = KopfSource(self.config, clock=self.clock, rng=self._rng)
            start("source-kopf", source.run(watched, stop))
        for informer in self.cache:
            start(f"sweep {informer.kind}", self.sweeper.keep(informer))

    async def _wait_served(self) -> None:
        """Wait until the API server serves the kinds: the CRDs may come after the operator."""
        waiting = False
        while True:
            missing = [each.kind for each in self.cache if not await self._is_served(each)]
            if not missing:
                return
            if not waiting:
                log.warning("Waiting for kinds to be served", kinds=[str(kind) for kind in missing])
                waiting = True
            await self.clock.sleep(_SERVED_POLL)

    async def _is_served(self, informer: Informer) -> bool:
        if informer.optional:
            return True
        try:
            return await self.client.serves(informer.kind)
        except SlipwayError as err:
            log.warning("Waiting for the API server", error=str(err))
            return False

    # Parts.

    def _build_client(self, suffix: str, fence: Callable[[], None] | None) -> Client:
        settings = self.settings
        return Client(
            self.config,
            user_agent=f"slipway-{self.id}{suffix}",
            max_in_flight=settings.max_requests_in_flight,
            request_timeout=settings.request_timeout_seconds,
            metrics=self.metrics.client(urlsplit(self.config.server).netloc),
            telemetry=self.telemetry,
            fence=fence,
        )

    def _build_elector(self, hard_exit: Callable[[int], object]) -> Elector:
        settings = self.settings
        if not settings.leader_elect:
            return SoleLeader(self._leading.set)
        return LeaseElector(
            lambda: self._build_client("/leader-election", None),
            Key(settings.pod_namespace or self.config.namespace, settings.lease_name),
            build_identity(settings.pod_name),
            Timing(
                settings.lease_duration_seconds,
                settings.renew_deadline_seconds,
                settings.retry_period_seconds,
            ),
            on_started_leading=self._leading.set,
            on_stopped_leading=self._lost.set,
            metrics=self.metrics.leader(settings.lease_name),
            hard_exit=hard_exit,
        )

    def _build_runner(self, controller: Controller, rng: Callable[[], float]) -> Runner:
        settings = self.settings
        queue = WorkQueue(
            backoff=BackoffPolicy(settings.backoff_base_seconds, settings.backoff_max_seconds),
            min_interval=settings.min_interval_seconds,
            clock=self.clock,
            rng=rng,
            metrics=self.metrics.queue(controller.name),
        )
        metrics = self.metrics.controller(controller.name, settings.max_concurrent_reconciles)
        timeout = settings.reconcile_timeout_seconds
        return Runner(controller, queue, self._services, metrics, timeout=timeout)

    def _add_checks(self) -> None:
        self.health.add_health_check("event-loop", self._lag.check)
        self.health.add_health_check("leader-election", self.elector.check)
        self.health.add_health_check("watches", self.cache.check_watches)
        self.health.add_ready_check("caches", self.cache.check_synced)

    def _fence(self) -> None:
        if not self.elector.is_leader():
            raise NotLeading

    async def _resync(self) -> None:
        period = self.settings.resync_period_seconds
        while period:
            await self.clock.sleep(period * (0.9 + 0.2 * self._rng()))
            for runner in self.runners:
                runner.resync()

    async def _supervise(
        self, name: str, work: Coroutine[Any, Any, None], failed: asyncio.Event
    ) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("Stopping, since a part of the runtime failed", part=name)
            failed.set()


def _build_resource(
    settings: CommonSettings, config: ConnectionConfig, version: str
) -> dict[str, str]:
    """Name the process in traces."""
    resource = {
        "service.version": version,
        "k8s.pod.name": settings.pod_name,
        "k8s.namespace.name": settings.pod_namespace or config.namespace,
    }
    return {name: value for name, value in resource.items() if value}
