"""Runner: the workers of one controller, from a key in the queue to a pass that is done.

For each key at most one worker is at it, for one pass at most so long. What a pass ends with
decides when the next one comes: nothing more (until something changes), a wish (`requeue_after`),
or the back-off of the key.
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
from libs.common.ownership import controller_of
from libs.common.runtime.context import Context, PrimaryChanged, PrimaryGone
from libs.common.runtime.controller import Controller, Mapper, Result
from libs.common.runtime.informer import Handler, Origin
from libs.common.runtime.lookup import look_up
from libs.common.runtime.queue import (
    PRIORITY_EXPEDITE,
    PRIORITY_LIVE,
    PRIORITY_RESYNC,
    QueueClosed,
    WorkQueue,
)
from libs.common.runtime.services import Services
from libs.common.runtime.statuses import build_error_status
from libs.common.runtime.store import Change
from libs.common.runtime.writer import Writer

log = structlog.get_logger(__name__)

_STALE_RETRY: Final = 0.2
"""Seconds until a pass that met a newer version than it looked at is tried again; the new version
is on its way already, so an exponential back-off would only make it late."""
_UNKNOWN_RETRY: Final = 1.0

type Ending = Literal["success", "error", "requeue", "requeue_after"]


class Runner:
    """Run the passes of one controller.

    Args:
        controller: What is reconciled and how.
        queue: Keys to work on.
        services: Shared by all runners of the process.
        metrics: Metrics of the controller.
        timeout: Seconds that one pass may take.
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
        """Hook the controller up to the informers of what it watches."""
        self.controller = controller
        self.queue = queue
        self._services = services
        self._metrics = metrics
        self._timeout = timeout
        self._unknown: dict[Key, set[tuple[Kind, Key]]] = {}
        self._settled: dict[str, tuple[str, str]] = {}
        self._begun = False
        self.passes = 0
        cache = services.cache
        self._store = cache.store(controller.primary)
        services.queues.append((controller.primary, queue))
        cache.informer(controller.primary).add_handler(self._primary_changed)
        for watch in controller.watched:
            handler = self._build_handler(watch.mapper)
            cache.informer(watch.kind).add_handler(handler)
        for kind in {watch.kind for watch in controller.watched if watch.optional}:
            cache.informer(kind).add_served_handler(self.resync)

    # What an event asks for.

    def _primary_changed(self, change: Change, origin: Origin | None) -> None:
        key, old, new = change.key, change.old, change.new
        if old is not None and (new is None or uid_of(new) != uid_of(old)):
            # Nothing is left to do for it, and what comes after it has done no harm yet.
            self.queue.drop(key)
            self._unknown.pop(key, None)
        if new is not None and (origin is None or origin != self._origin(key)):
            self._enqueue(key, PRIORITY_EXPEDITE if is_deleting(new) else PRIORITY_LIVE)

    def _build_handler(self, mapper: Mapper | None) -> Handler:
        def handle(change: Change, origin: Origin | None) -> None:
            if not self._begun:
                return
            for manifest in (change.old, change.new):
                if manifest is None:
                    continue
                keys = mapper(manifest, self._services.cache) if mapper else self._owners(manifest)
                for key in keys:
                    if origin is None or origin != self._origin(key):
                        self._enqueue(key, PRIORITY_LIVE)

        return handle

    def _enqueue(self, key: Key, priority: int) -> None:
        if self._begun:
            self.queue.add(key, priority=priority)

    def _owners(self, manifest: Manifest) -> list[Key]:
        """Return the primary that controls an object, if it is the one that is named, by UID."""
        reference = controller_of(manifest)
        primary = self.controller.primary
        if reference is None or not primary.matches(reference):
            return []
        namespace = manifest["metadata"].get("namespace") or "" if primary.namespaced else ""
        key = Key(namespace, reference["name"])
        held = self._store.get(key)
        if held is not None and uid_of(held) != reference["uid"]:
            # Left over from an earlier incarnation: the garbage collector's business.
            return []
        return [key]

    def begin(self) -> None:
        """Ask for a pass over every primary, and from now on for those that a change concerns.

        A standby fills its caches and no queue: nobody would take from it what is gone, and keys
        that wait for days would tell of workers that are stuck.
        """
        self._begun = True
        self.resync()

    def resync(self) -> None:
        """Ask for a pass over every primary."""
        for key in self._store:
            primary = self._store.get(key)
            going = primary is not None and is_deleting(primary)
            self._enqueue(key, PRIORITY_EXPEDITE if going else PRIORITY_RESYNC)

    # One worker, one pass.

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
        """Make one pass over a key and decide when the next one comes. Never raises an error."""
        controller, started, reconcile_id = self.controller, time.monotonic(), str(uuid.uuid4())
        with (
            reconcile_context(controller.name, controller.primary, key, reconcile_id),
            self._services.telemetry.reconcile_span(
                controller.name, controller.primary, key, reconcile_id
            ) as span,
        ):
            flags: dict[str, bool] = {}
            failure: BaseException | None = None
            scope = asyncio.timeout(self._timeout)
            try:
                async with scope:
                    ending = self._settle(key, await self._pass(key))
            except (Exception, asyncio.CancelledError) as err:
                # A defect in one pass must not end the worker.
                if _is_asked_to_end(err):
                    raise
                failure = err
                # A TimeoutError of the reconciler's own is a defect like any other.
                if scope.expired() and isinstance(err, TimeoutError):
                    flags["timeout"] = True
                    log.error("Giving up on a pass", seconds=self._timeout)
                    self.queue.retry(key)
                    ending = "error"
                else:
                    ending = await self._failed(key, err, flags)
            span.set_result(ending, failure)
        self.passes += 1
        self._metrics.observe_reconcile(ending, time.monotonic() - started, **flags)

    async def _pass(self, key: Key) -> Result | None:
        await self._look_up_unknown(key)
        primary = self._store.get(key)
        if primary is None:
            self.queue.drop(key)
            self._unknown.pop(key, None)
            return None
        if (primary["metadata"].get("annotations") or {}).get(PAUSED) == "true":
            log.info("Leaving a paused object alone")
            return None
        try:
            return await self._reconcile(key, primary)
        except PrimaryGone:
            log.info("Stopping, since the object was deleted meanwhile")
            return None
        except PrimaryChanged:
            log.info("Beginning anew, since the spec was changed")
            return Result(requeue_after=0)

    async def _reconcile(self, key: Key, primary: Manifest) -> Result | None:
        context = self._build_context(key, primary)
        if is_deleting(primary):
            return await self._finalize(context)
        if await self._keep_finalizer(context):
            # The write comes back as a change of our own, which enqueues nothing: go on with it.
            held = self._store.get(key)
            if held is None or uid_of(held) != uid_of(primary):
                return None
            context = self._build_context(key, held)
        return await self.controller.reconcile(context)

    def _settle(self, key: Key, result: Result | None) -> Ending:
        if result is not None and result.error is not None:
            raise result.error
        self.queue.forget(key)
        if result is None or result.requeue_after is None:
            return "success"
        if result.requeue_after <= 0:
            self.queue.add(key)
            return "requeue"
        self.queue.add(key, after=result.requeue_after)
        return "requeue_after"

    async def _failed(self, key: Key, err: BaseException, flags: dict[str, bool]) -> Ending:
        match err:
            case TerminalError():
                flags["terminal"] = True
                log.warning("Waiting for a change", reason=err.reason, error=str(err))
                if await self._show(key, err):
                    self.queue.forget(key)
                else:
                    self.queue.retry(key)
                return "error"
            case UnknownOutcome():
                delay = self.queue.retry(key, at_least=_UNKNOWN_RETRY)
            case Conflict() | NotFound():
                delay = self.queue.retry(key, after=self._stale_delay(key))
            case TransientError():
                delay = self.queue.retry(key, after=err.retry_after)
            case ApiError():
                delay = self.queue.retry(key, at_least=err.retry_after or 0.0)
            case SlipwayError():
                delay = self.queue.retry(key)
            case _:
                flags["panic"] = True
                delay = self.queue.retry(key)
                log.error("Failing on a defect", exc_info=err, retry_in=round(delay, 1))
                return "error"
        level = log.info if isinstance(err, Conflict | Unreachable) else log.warning
        level("Trying again", error=str(err), retry_in=round(delay, 1))
        return "error"

    def _stale_delay(self, key: Key) -> float | None:
        """Return a short fixed delay for the first few conflicts, then the back-off."""
        return _STALE_RETRY if self.queue.failures(key) < 5 else None

    # Finalizers.

    async def _keep_finalizer(self, context: Context) -> bool:
        """Make the finalizer be there exactly if it is needed; tell whether it was written."""
        finalizer, primary = self.controller.finalizer, context.primary
        if not finalizer:
            return False
        build = (
            finalizers.build_add_patch
            if self.controller.needs_finalizer(primary)
            else finalizers.build_remove_patch
        )
        return await self._patch_finalizers(context, build(primary, finalizer))

    async def _finalize(self, context: Context) -> Result | None:
        controller, primary = self.controller, context.primary
        if controller.finalize is None or not finalizers.has_finalizer(
            primary, controller.finalizer
        ):
            return None
        if finalizers.is_forced(primary):
            note = f"{context} is let go without clean-up, as its annotation asks"
            context.event("Warning", "CleanUpSkipped", note, action="Finalize")
        else:
            result = await controller.finalize(context)
            if result is not None:
                return result
        # The clean-up may have written the object, so the newest version is what is guarded.
        held = self._store.get(context.key)
        if held is not None and uid_of(held) == uid_of(primary):
            patch = finalizers.build_remove_patch(held, controller.finalizer)
            await self._patch_finalizers(context, patch)
        return None

    async def _patch_finalizers(self, context: Context, operations: list[Manifest]) -> bool:
        if not operations:
            return False
        kind, client = self.controller.primary, self._services.client
        try:
            answer = await client.patch(
                kind, context.key, operations, field_manager=self.controller.name
            )
        except NotFound:
            # Without the finalizer nothing may be done that would be left to clean up.
            raise PrimaryGone(str(context)) from None
        except Invalid as err:
            raise patch_error(err) from err
        informer = self._services.cache.informer(kind)
        if is_deleting(answer) and not finalizers.lingers(answer):
            informer.vanished(context.key, uid_of(answer))
        else:
            # The patch tests the version, so the answer holds nothing but our change.
            informer.wrote(answer, self._origin(context.key))
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
            settled=self._settled,
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
        )

    async def _look_up_unknown(self, key: Key) -> None:
        unknown = self._unknown.get(key)
        while unknown:
            kind, child = next(iter(unknown))
            log.info("Looking up a write without answer", object=describe(kind, child))
            await look_up(self._services.client, self._services.cache, kind, child)
            unknown.discard((kind, child))

    async def _show(self, key: Key, err: TerminalError) -> bool:
        """State an error in the condition Ready, keeping the rest; tell whether it is stated."""
        primary = self._store.get(key)
        if primary is None:
            return True
        context = self._build_context(key, primary)
        foreign = self._services.cache.foreign.types_of(self.controller.name, primary)
        seen, now = context.generation, context.now()
        try:
            status = build_error_status(primary, err, generation=seen, now=now, foreign=foreign)
            if await context.apply_status(status):
                context.event("Warning", err.reason, str(err))
        except Exception as failure:
            # A status that others wrote may make no sense; that must not end the worker either.
            defect = not isinstance(failure, SlipwayError)
            log.warning("Trying again to tell", error=str(failure), exc_info=defect)
            return False
        return True


def _is_asked_to_end(err: BaseException) -> bool:
    """Tell a worker that is canceled from a pass that awaited what somebody else canceled."""
    task = asyncio.current_task()
    return isinstance(err, asyncio.CancelledError) and task is not None and task.cancelling() > 0
