"""Runner: the workers of a controller, from a key in the queue to a finished reconcile.

At most one worker processes a key, and each reconcile has a time limit. The result of a reconcile
decides about the next one: none (until something changes), after `requeue_after`, or after the
back-off of the key.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Final, Literal

import structlog

from libs.common import finalizers
from libs.common.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    NotLeading,
    SlipwayError,
    TerminalError,
    TransientError,
    UnknownOutcome,
    Unreachable,
    patch_error,
)
from libs.common.kinds import Key, Kind, Manifest, describe, is_deleting, uid_of
from libs.common.labels import PAUSED
from libs.common.logs import reconcile_context
from libs.common.metrics import ControllerMetrics
from libs.common.runtime.confirmation import PrimaryChanged, PrimaryGone
from libs.common.runtime.context import Context
from libs.common.runtime.controller import Controller, Result
from libs.common.runtime.informer import Origin
from libs.common.runtime.objects import ObjectCounter
from libs.common.runtime.queue import MIN_DELAY, QueueClosed, WorkQueue
from libs.common.runtime.repairs import Repairs
from libs.common.runtime.services import Services
from libs.common.runtime.statuses import build_error_status
from libs.common.runtime.triggers import Triggers
from libs.common.runtime.unchanged_applies import UnchangedApplies
from libs.common.runtime.writer import Writer, look_up

log = structlog.get_logger(__name__)

_STALE_RETRY: Final = 0.2
"""Seconds until the retry of a reconcile that used an outdated version; the event of the new
version will arrive soon, so an exponential back-off would only delay it."""
_UNKNOWN_RETRY: Final = 1.0
_VISIBLE_FAILURES: Final = 5
"""Failures in a row after which an error is an Event of the object, not only a line in the log."""
SERVER_WARNING: Final = "ServerWarning"
"""Reason of Events that quote warnings, for example about unknown fields of a pod template."""

type Ending = Literal["success", "error", "requeue", "requeue_after"]


class Runner:
    """The workers of a controller.

    Args:
        controller: Declaration of the controller.
        queue: Queue of keys.
        services: Services that all runners of the process share.
        metrics: Metrics of the controller.
        timeout: Maximum seconds of a reconcile.
    """

    def __init__(
        self,
        controller: Controller,
        queue: WorkQueue,
        services: Services,
        metrics: ControllerMetrics,
        *,
        timeout: float,
    ) -> None:
        """Connect the controller to the informers of its watched kinds."""
        self.controller = controller
        self.queue = queue
        self._services = services
        self._metrics = metrics
        self._timeout = timeout
        self._unknown: dict[Key, set[tuple[Kind, Key]]] = {}
        self._unchanged = UnchangedApplies()
        self._repairs = Repairs(services.clock)
        self.reconciles = 0
        self._store = services.cache.store(controller.primary)
        services.queues.append((controller.primary, queue))
        ObjectCounter(
            controller.name,
            services.cache.informer(controller.primary),
            services.metrics,
            reports_ready=controller.reports_ready,
        )
        self._triggers = Triggers(
            controller, queue, services.cache, forget=self._forget, clock=services.clock
        )

    def _forget(self, key: Key) -> None:
        self._unknown.pop(key, None)

    def begin(self) -> None:
        """Request a reconcile of every primary, and from now on of those affected by changes."""
        self._triggers.begin()

    def resync(self) -> None:
        """Request a reconcile of every primary."""
        self._triggers.resync()

    # One worker, one reconcile.

    async def work(self) -> None:
        """Take keys until the queue is closed."""
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            self._metrics.worker_started()
            try:
                await self.process(key)
            finally:
                self._metrics.worker_finished()
                self.queue.done(key)

    async def process(self, key: Key) -> None:
        """Reconcile a key once and schedule the next reconcile. Never raises an error."""
        controller, started, reconcile_id = self.controller, time.monotonic(), str(uuid.uuid4())
        with (
            reconcile_context(controller.name, controller.primary, key, reconcile_id),
            self._services.telemetry.reconcile_span(
                controller.name, controller.primary, key, reconcile_id
            ) as span,
        ):
            flags: dict[str, bool] = {}
            failure: BaseException | None = None
            result: Result | None = None
            scope = asyncio.timeout(self._timeout)
            try:
                async with scope:
                    result = await self._process_object(key)
                    ending = self._schedule_next(key, result)
            except (Exception, asyncio.CancelledError) as err:
                # A bug in one reconcile must not end the worker.
                if _is_cancellation_requested(err):
                    raise
                failure = err
                # A TimeoutError from the reconciler itself is a bug like any other.
                if scope.expired() and isinstance(err, TimeoutError):
                    flags["timeout"] = True
                    log.error("Reconcile timed out", seconds=self._timeout)
                    self.queue.retry(key)
                    ending = "error"
                else:
                    ending = await self._failed(key, err, flags)
                if result is None:
                    self._show_failure(key, err, timed_out=flags.get("timeout", False))
            span.set_result(ending, failure)
        self.reconciles += 1
        self._metrics.observe_reconcile(ending, time.monotonic() - started, **flags)

    async def _process_object(self, key: Key) -> Result | None:
        await self._look_up_unknown(key)
        primary = self._store.get(key)
        if primary is None:
            self.queue.drop(key)
            self._forget(key)
            return None
        if reason := self._triggers.find_blocked(key, primary):
            # Without all objects of a namespace, the plan would be wrong.
            log.warning("Namespace cannot be read, reconcile postponed", error=reason)
            return None
        if (primary["metadata"].get("annotations") or {}).get(PAUSED) == "true":
            log.info("Skipping a paused object")
            return None
        try:
            return await self._reconcile(key, primary)
        except PrimaryGone:
            log.info("Reconcile stopped: the object was deleted")
            return None
        except PrimaryChanged:
            log.info("Reconcile restarted: the spec was changed")
            return Result(requeue_after=0)

    async def _reconcile(self, key: Key, primary: Manifest) -> Result | None:
        ctx = self._build_context(key, primary)
        if is_deleting(primary):
            return await self._finalize(ctx)
        if await self._keep_finalizer(ctx):
            # Our own write enqueues nothing, so this reconcile continues with the new version. An
            # object with another UID was recreated under the same name; its event enqueues it.
            held = self._store.get(key)
            if held is None or uid_of(held) != uid_of(primary):
                return None
            ctx = self._build_context(key, held)
        return await self.controller.reconcile(ctx)

    def _schedule_next(self, key: Key, result: Result | None) -> Ending:
        if result is not None and result.error is not None:
            if result.requeue_after:
                # The retry may come much later.
                self.queue.add(key, after=result.requeue_after)
            raise result.error
        if (
            result is not None
            and result.requeue_after is not None
            and result.requeue_after < MIN_DELAY
        ):
            self.queue.requeue(key, after=max(0.0, result.requeue_after))
            return "requeue"
        self.queue.forget(key)
        if result is None or result.requeue_after is None:
            return "success"
        self.queue.add(key, after=result.requeue_after)
        return "requeue_after"

    async def _failed(self, key: Key, err: BaseException, flags: dict[str, bool]) -> Ending:
        match err:
            case TerminalError():
                flags["terminal"] = True
                log.warning(
                    "Terminal error, waiting for a change of the object",
                    reason=err.reason,
                    error=str(err),
                )
                if await self._report_terminal_error(key, err):
                    self.queue.forget(key)
                else:
                    self.queue.retry(key)
                return "error"
            case UnknownOutcome():
                delay = self.queue.retry(key, at_least=_UNKNOWN_RETRY)
            case Conflict() | NotFound():
                # A short fixed delay for the first few conflicts, then the back-off.
                after = _STALE_RETRY if self.queue.failures(key) < 5 else None
                delay = self.queue.retry(key, after=after)
            case TransientError():
                delay = self.queue.retry(key, after=err.retry_after)
            case ApiError():
                delay = self.queue.retry(key, at_least=err.retry_after or 0.0)
            case SlipwayError():
                delay = self.queue.retry(key)
            case _:
                flags["panic"] = True
                delay = self.queue.retry(key)
                log.error(
                    "Unhandled error in reconcile (bug)", exc_info=err, retry_in=round(delay, 1)
                )
                return "error"
        level = log.info if isinstance(err, Conflict | Unreachable) else log.warning
        level("Reconcile failed, retrying", error=str(err), retry_in=round(delay, 1))
        return "error"

    def _show_failure(self, key: Key, err: BaseException, *, timed_out: bool) -> None:
        """Record an Event about an error that a reconcile raised again and again.

        A reconcile that returns an error (`Result.error`) reports it in the status itself.
        """
        primary = self._store.get(key)
        if primary is None or self.queue.failures(key) < _VISIBLE_FAILURES:
            return
        match err:
            case TerminalError() | Conflict() | Unreachable() | NotLeading():
                return
            case SlipwayError():
                cause = str(err)
            case _ if timed_out:
                cause = f"it did not finish within {self._timeout:g} s"
            case _:
                cause = f"unhandled error (bug of the operator): {type(err).__name__}: {err}"
        deleting = is_deleting(primary)
        what, reason = (
            ("Clean-up", "CleanUpFailed") if deleting else ("Reconcile", "ReconcileFailed")
        )
        self._services.recorder.event(
            self.controller.primary,
            primary,
            "Warning",
            reason,
            f"{what} fails and is retried: {cause}",
            action="Finalize" if deleting else "Reconcile",
        )

    # Finalizers.

    async def _keep_finalizer(self, ctx: Context) -> bool:
        """Add or remove the finalizer as needed; return whether the object was written."""
        finalizer, primary = self.controller.finalizer, ctx.primary
        if not finalizer:
            return False
        guard, namespace = self._services.guard, ctx.key.namespace
        if not self.controller.needs_finalizer(primary):
            patch = finalizers.build_remove_patch(primary, finalizer)
            written = await self._patch_finalizers(ctx, patch)
            if written:
                guard.settle(namespace)
            return written
        async with guard.adding(namespace):
            patch = finalizers.build_add_patch(primary, finalizer)
            return await self._patch_finalizers(ctx, patch)

    async def _finalize(self, ctx: Context) -> Result | None:
        controller, primary = self.controller, ctx.primary
        if controller.finalize is None or not finalizers.has_finalizer(
            primary, controller.finalizer
        ):
            return None
        if finalizers.is_forced(primary):
            note = f"{ctx} is released without clean-up, because its annotation requests this"
            ctx.event("Warning", "CleanUpSkipped", note, action="Finalize")
        else:
            result = await controller.finalize(ctx)
            if result is not None:
                return result
        # The clean-up may have changed the object, so build the patch, which tests the resource
        # version, from the newest version.
        held = self._store.get(ctx.key)
        if held is not None and uid_of(held) == uid_of(primary):
            patch = finalizers.build_remove_patch(held, controller.finalizer)
            await self._patch_finalizers(ctx, patch)
            self._services.guard.settle(ctx.key.namespace)
        return None

    async def _patch_finalizers(self, ctx: Context, operations: list[Manifest]) -> bool:
        if not operations:
            return False
        kind, client = self.controller.primary, self._services.client
        try:
            response = await client.patch(
                kind, ctx.key, operations, field_manager=self.controller.name
            )
        except NotFound:
            # Nothing that requires a clean-up may be created without the finalizer.
            raise PrimaryGone(str(ctx)) from None
        except Invalid as err:
            raise patch_error(err) from err
        informer = self._services.cache.informer(kind)
        if is_deleting(response) and not finalizers.is_deletion_delayed(response):
            informer.observe_deleted(ctx.key, uid_of(response))
        else:
            # The patch tests the version, so the response contains only our change.
            informer.wrote(response, self._origin(ctx.key))
        return True

    # Helpers.

    def _origin(self, key: Key) -> Origin:
        return Origin(self.controller.name, key)

    def _build_context(self, key: Key, primary: Manifest) -> Context:
        services, origin = self._services, self._origin(key)
        writer = Writer(
            services.client,
            services.cache,
            origin=origin,
            owner_uid=uid_of(primary),
            unknown=self._unknown.setdefault(key, set()),
            unchanged=self._unchanged,
            repairs=self._repairs,
            warn=lambda text: services.recorder.event(
                self.controller.primary,
                primary,
                "Warning",
                SERVER_WARNING,
                f"The API server warns about an object that was created: {text}",
                action="Reconcile",
            ),
        )
        return Context(
            kind=self.controller.primary,
            primary=primary,
            key=key,
            client=services.client,
            cache=services.cache,
            writer=writer,
            recorder=services.recorder,
            clock=services.clock,
            metrics=services.metrics,
            origin=origin,
            wake=services.wake,
            blocks_deletion=self.controller.blocks_deletion,
            stalls_after=self.controller.stalls_after,
            resting=self.controller.resting,
            status_subresource=self.controller.status_subresource,
            is_orphaning=self._triggers.is_orphaning(uid_of(primary)),
            requeue=lambda seconds: self.queue.add(key, after=seconds),
        )

    async def _look_up_unknown(self, key: Key) -> None:
        unknown = self._unknown.get(key)
        while unknown:
            kind, child = next(iter(unknown))
            log.info("No response to a write, reading its outcome", object=describe(kind, child))
            await look_up(self._services.client, self._services.cache, kind, child)
            unknown.discard((kind, child))

    async def _report_terminal_error(self, key: Key, err: TerminalError) -> bool:
        """Report a terminal error in the condition Ready; return whether that succeeded."""
        primary = self._store.get(key)
        if primary is None:
            return True
        ctx = self._build_context(key, primary)
        foreign = self._services.cache.foreign.types_of(self.controller.name, primary)
        seen, now = ctx.generation, ctx.now()
        try:
            status = build_error_status(primary, err, generation=seen, now=now, foreign=foreign)
            if await ctx.apply_status(status):
                ctx.event("Warning", err.reason, str(err))
        except Exception as failure:
            # A status that another client wrote may be invalid, which must not end the worker.
            is_bug = not isinstance(failure, SlipwayError)
            log.warning(
                "Cannot report the state of the object, retrying",
                error=str(failure),
                exc_info=is_bug,
            )
            return False
        return True


def _is_cancellation_requested(err: BaseException) -> bool:
    """Return whether the worker was cancelled, and not only a task that the reconcile awaited."""
    task = asyncio.current_task()
    return isinstance(err, asyncio.CancelledError) and task is not None and task.cancelling() > 0
