"""Manager: the process of an operator, from the first probe to the last drained reconcile.

The order matters for safety. Probes respond first, so that the kubelet can distinguish a waiting
process from a hanging one. Then the caches are filled on every replica, so that standbys are hot.
Only then does the process try to acquire the Lease. A new leader first compares its caches with the
API server, because events of the last leader's writes may still be on their way, and then starts
its workers. The shutdown has the reverse order: no new reconciles, the running ones are completed,
and then the Lease is released.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from libs.common.client import Client
from libs.common.clock import Clock, SystemClock
from libs.common.config import ConnectionConfig
from libs.common.errors import NotLeading
from libs.common.events import EventRecorder
from libs.common.health import LoopLagMonitor
from libs.common.kinds import Key, Kind
from libs.common.metric_specs import BUILD_INFO, SCOPE_UP, WORKING, MetricSpec
from libs.common.metrics import Metrics
from libs.common.runtime.assembly import (
    build_elector,
    build_health_server,
    build_queue,
    build_resource,
    list_finalizers,
    wait_served,
)
from libs.common.runtime.controller import Controller
from libs.common.runtime.guard import BindingGuard
from libs.common.runtime.informer import EventSource, Informer, SourceName
from libs.common.runtime.kopf_source import KopfSource
from libs.common.runtime.namespaces import NamespaceSelection, find_excess
from libs.common.runtime.reflector import Reflector
from libs.common.runtime.runner import Runner
from libs.common.runtime.scope import PATIENCE_SECONDS
from libs.common.runtime.services import Services
from libs.common.runtime.sweep import Sweeper
from libs.common.runtime.wiring import build_cache
from libs.common.settings import CommonSettings
from libs.common.tasks import wait_first
from libs.common.telemetry import Telemetry
from libs.common.telemetry_setup import build_telemetry

log = structlog.get_logger(__name__)

_CLOSE_SECONDS: Final = 3.0
_CANCEL_SECONDS: Final = 5.0
"""The drain (20 s), this and the rest of the shutdown fit into the 60 s grace period of the
charts."""

type RunnableBuilder = Callable[[Manager], Coroutine[Any, Any, None] | None]
"""Builds a task that runs next to the controllers, on standbys as well, or returns None."""


class Manager:
    """The process of an operator with its controllers.

    Args:
        operator_id: Id of the operator.
        settings: Settings of the process.
        config: Client configuration of the API server.
        controllers: Controllers to run.
        metrics: Metrics of the operator itself.
        runnables: Builders of further tasks.
        version: Version of the operator, for the build metric and for traces.
        clock: Time source of the runtime.
        rng: Source of jitter.
        telemetry: Telemetry; None builds it from the settings.
        hard_exit: Ends the process if it lost the leadership and does not exit by itself.
        on_synced: Called when the caches are filled, for example `gc.freeze`.
    """

    def __init__(
        self,
        operator_id: str,
        settings: CommonSettings,
        config: ConnectionConfig,
        controllers: Sequence[Controller],
        *,
        metrics: Sequence[MetricSpec] = (),
        runnables: Sequence[RunnableBuilder] = (),
        version: str = "dev",
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
        telemetry: Telemetry | None = None,
        hard_exit: Callable[[int], object] = os._exit,
        on_synced: Callable[[], object] = lambda: None,
    ) -> None:
        """Build all parts; nothing is sent before `run`."""
        self.id = operator_id
        self._on_synced = on_synced
        self._hard_exit = hard_exit
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
            resource=build_resource(settings, config, version),
        )
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()
        self.elector = build_elector(
            settings,
            config,
            lambda: self._build_client("/leader-election", None),
            self.metrics,
            on_started_leading=self._leading.set,
            on_stopped_leading=self._lost.set,
            hard_exit=hard_exit,
        )
        self.client = self._build_client("", self._fence)
        self.recorder = EventRecorder(
            self.client,
            operator_id,
            settings.pod_name or operator_id,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.cache = build_cache(
            controllers,
            self.namespaces,
            self.clock,
            self.metrics,
            patience=min(PATIENCE_SECONDS, settings.cache_sync_timeout_seconds / 4),
            dynamic=bool(settings.watch_namespace_selector),
            fields=settings.excluded_fields,
        )
        self._export_scopes()
        finalizers = list_finalizers(controllers)
        self.guard = BindingGuard(
            self.client, self.cache, settings.role_binding, finalizers, self.clock
        )
        self.sweeper = Sweeper(self.client, period=settings.sweep_period_seconds, clock=self.clock)
        self._services = Services(
            self.client,
            self.cache,
            self.recorder,
            self.clock,
            self.telemetry,
            self.metrics,
            self.guard,
        )
        self.runners = [self._build_runner(controller, rng) for controller in controllers]
        self.health = build_health_server(
            settings, self.metrics, lambda: self._build_client("/metrics-access", None)
        )
        self.working = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._rng = rng
        self._runnables = runnables
        self._lag = LoopLagMonitor(self.metrics)
        self._add_checks()

    async def run(self, stop: asyncio.Event) -> bool:
        """Run until a request to stop or a fatal error.

        Returns:
            Whether the stop was requested.
        """
        failed = asyncio.Event()
        tasks = self._tasks
        sources_stop = asyncio.Event()

        def start(name: str, work: Coroutine[Any, Any, None]) -> None:
            tasks.append(asyncio.create_task(self._supervise(name, work, failed), name=name))

        async with self.health:
            selector = self.settings.watch_namespace_selector
            where = [f"({selector})"] if selector else list(self.namespaces) or ["*"]
            log.info("Starting operator", operator=self.id, namespaces=where)
            start("loop-lag", self._lag.run())
            for number, part in enumerate(self._runnables):
                if (work := part(self)) is not None:
                    start(f"runnable-{number}", work)
            start("main", self._lead(start, sources_stop, failed))
            await wait_first(stop.wait(), failed.wait())
            log.info("Stopping operator", operator=self.id, asked=stop.is_set())
            await self._shut_down(sources_stop, tasks, asked=stop.is_set())
        return not failed.is_set()

    def build_client(self, name: str) -> Client:
        """Build a client that can write on a standby as well; the caller must close it.

        Args:
            name: Purpose of the client, which audit logs show.
        """
        return self._build_client(f"/{name}", None)

    def wake(self, kind: Kind, keys: Iterable[Key]) -> None:
        """Trigger reconciles of primaries, for tasks that run next to the controllers.

        Reconciles without such a trigger must have the same result: after a restart each object is
        reconciled. This has no effect on a standby.
        """
        if self.working.is_set():
            self._services.wake(kind, keys)

    async def abandon(self) -> None:
        """Close the connections of a cancelled run; for tests of crashes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_controllers()
        # Another Event would open the connections again.
        await self.recorder.abandon()
        await self.health.close()
        await self.client.close()

    async def _lead(
        self,
        start: Callable[[str, Coroutine[Any, Any, None]], None],
        sources_stop: asyncio.Event,
        failed: asyncio.Event,
    ) -> None:
        if excess := find_excess(self.cache, len(self.namespaces)):
            log.error("Cannot watch all namespaces, stopping", reason=excess[1])
            failed.set()
            return
        await wait_served(self.client, self.cache, self.clock)
        try:
            async with asyncio.timeout(self.settings.cache_sync_timeout_seconds):
                await self._select_namespaces(start)
                self._start_sources(start, sources_stop)
                for informer in self.cache:
                    await informer.wait_synced()
        except TimeoutError:
            missing = [str(informer.kind) for informer in self.cache if not informer.synced]
            log.error("Cannot fill the caches in time, stopping", kinds=missing)
            failed.set()
            return
        self._on_synced()
        log.info("Filled the caches", objects=sum(len(each.store) for each in self.cache))
        self.elector.start()
        await self._leading.wait()
        start("leadership", self._watch_leadership(failed))
        log.info("Acquired leadership", operator=self.id)
        await self._catch_up()
        for runner in self.runners:
            runner.begin()
            for number in range(self._count_workers(runner.controller)):
                start(f"{runner.controller.name}-{number}", runner.work())
        start("guard", self.guard.run())
        start("resync", self._resync())
        self.working.set()
        self.metrics.gauge(WORKING).set(1)

    async def _watch_leadership(self, failed: asyncio.Event) -> None:
        await self._lost.wait()
        log.error("Lost the Lease, stopping so that only the new leader works")
        failed.set()

    async def _catch_up(self) -> None:
        """Compare the caches with the API server before the first write.

        The watch of a standby may not have received the last writes of the previous leader yet.
        """
        async with asyncio.TaskGroup() as group:
            for informer in self.cache:
                group.create_task(self.sweeper.catch_up(informer))

    async def _shut_down(
        self, sources_stop: asyncio.Event, tasks: Sequence[asyncio.Task[None]], *, asked: bool
    ) -> None:
        for runner in self.runners:
            runner.queue.close()
        drained = [asyncio.ensure_future(runner.queue.drained()) for runner in self.runners]
        if drained:
            _, late = await asyncio.wait(drained, timeout=self.settings.drain_timeout_seconds)
            if late:
                log.warning(
                    "Cancelling reconciles that did not finish in time", controllers=len(late)
                )
        sources_stop.set()
        for task in tasks:
            if not task.get_name().startswith("source-"):
                task.cancel()
        _, stuck = await asyncio.wait([*tasks, *drained], timeout=_CANCEL_SECONDS)
        await self._close_controllers()
        if asked and self.working.is_set():
            # From here on, nobody finalizes objects in namespaces that are being deleted.
            await self.guard.leave(self.settings.pod_namespace)
        await self.recorder.close()
        # The last write: the next leader must not meet a later one.
        await self.elector.stop()
        await self.client.close()
        await self.telemetry.close()
        if stuck:
            # The fence refuses its writes since the Lease was released. Waiting longer would end
            # with a SIGKILL, which leaves no log line.
            names = sorted(task.get_name() for task in stuck & set(tasks))
            log.error("Exiting immediately: a reconcile ignores its cancellation", parts=names)
            self._hard_exit(1)
        log.info("Stopped operator", operator=self.id)

    async def _close_controllers(self) -> None:
        for runner in self.runners:
            if runner.controller.close is None:
                continue
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await runner.controller.close()
            except Exception:
                # The Lease must still be released.
                log.exception("Cannot close a component", controller=runner.controller.name)

    async def _select_namespaces(
        self, start: Callable[[str, Coroutine[Any, Any, None]], None]
    ) -> None:
        if not self.settings.watch_namespace_selector:
            return
        selection = NamespaceSelection(
            self.client,
            self.cache,
            self.settings.watch_namespace_selector,
            clock=self.clock,
            on_change=self._export_scopes,
            rng=self._rng,
        )
        start("namespaces", selection.run())
        await selection.ready.wait()

    def _export_scopes(self) -> None:
        self.cache.export_scopes(self.metrics.gauge(SCOPE_UP))

    def _start_sources(
        self, start: Callable[[str, Coroutine[Any, Any, None]], None], stop: asyncio.Event
    ) -> None:
        by_source: dict[SourceName, list[Informer]] = {}
        for informer in self.cache:
            by_source.setdefault(informer.source, []).append(informer)
            start(f"sweep {informer.kind}", self.sweeper.keep(informer))
        if reflected := by_source.get("reflector"):
            source: EventSource = Reflector(self.client, clock=self.clock, rng=self._rng)
            start("source-reflector", source.run(reflected, stop))
        if watched := by_source.get("kopf"):
            source = KopfSource(self.config, self.client, clock=self.clock, rng=self._rng)
            start("source-kopf", source.run(watched, stop))

    def _build_client(self, suffix: str, fence: Callable[[], None] | None) -> Client:
        settings = self.settings
        return Client(  # security: the own API server
            self.config,
            user_agent=f"slipway-{self.id}{suffix}",
            max_in_flight=settings.max_requests_in_flight,
            request_timeout=settings.request_timeout_seconds,
            metrics=self.metrics.client(urlsplit(self.config.server).netloc),
            telemetry=self.telemetry,
            fence=fence,
        )

    def _build_runner(self, controller: Controller, rng: Callable[[], float]) -> Runner:
        settings = self.settings
        queue = build_queue(settings, controller, self.metrics, self.clock, rng)
        metrics = self.metrics.controller(controller.name, self._count_workers(controller))
        timeout = settings.reconcile_timeout_seconds
        return Runner(controller, queue, self._services, metrics, timeout=timeout)

    def _count_workers(self, controller: Controller) -> int:
        return controller.max_concurrent_reconciles or self.settings.max_concurrent_reconciles

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
            log.exception("Stopping: a component of the runtime failed", part=name)
            failed.set()
