"""Runs the election in a separate thread and notifies the main loop.

A blocked main loop must neither hide the loss of the Lease nor cause it, so the thread has its own
event loop and its own client.
"""

import asyncio
import inspect
import os
import random
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import structlog

from libs.common.election.core import LeaseCore, Step, Timing, Verb
from libs.common.election.interfaces import BootClock, ElectionClock, LeaseClient
from libs.common.election.lease import LeaseRecord, build_lease, parse_lease
from libs.common.errors import AlreadyExists, Conflict, NotFound
from libs.common.kinds import LEASE, Key, Manifest
from libs.common.metrics import LeaderMetrics

# Time-out of the release, which only saves the next leader a wait.
_RELEASE_SECONDS: Final = 2.0
_LAST_REQUEST_SECONDS: Final = 1.0

log = structlog.get_logger("election")


class LeaseElector:
    """Takes part in the election for one Lease.

    Once the leadership is lost, `is_leader` is false immediately and permanently: the process must
    exit and be restarted. If it has not called stop() by the time at which another replica can take
    over, the elector kills the process.
    """

    def __init__(
        self,
        client_factory: Callable[[], LeaseClient | Awaitable[LeaseClient]],
        key: Key,
        identity: str,
        timing: Timing | None = None,
        *,
        on_started_leading: Callable[[], object] = lambda: None,
        on_stopped_leading: Callable[[], object] = lambda: None,
        metrics: LeaderMetrics | None = None,
        clock: ElectionClock | None = None,
        hard_exit: Callable[[int], object] = os._exit,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Initialize; nothing happens before start().

        Args:
            client_factory: Creates a client in the elector's own event loop.
            key: Namespace and name of the Lease.
            identity: See build_identity().
            timing: Durations; by default, the defaults of client-go.
            on_started_leading: Called in the main loop when this process becomes the leader.
            on_stopped_leading: Called in the main loop when it is no longer the leader.
            metrics: Metrics of the election.
            clock: For tests.
            hard_exit: Ends the process with an exit status; for tests.
            chance: Returns a random number from 0 to 1; for tests.
        """
        self._client_factory = client_factory
        self._key = key
        self._core = LeaseCore(identity, timing or Timing())
        self._on_started = on_started_leading
        self._on_stopped = on_stopped_leading
        self._metrics = metrics
        self._clock: ElectionClock = clock or BootClock()
        self._hard_exit = hard_exit
        self._chance = chance
        self._main_loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._stop_event: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._exit_timer: threading.Timer | None = None
        self._stopping = False
        self._announced = False
        self._beat = 0.0
        self._base: Manifest | None = None
        self._last_error = ""

    @property
    def identity(self) -> str:
        """Identity of this process in the Lease."""
        return self._core.me

    @property
    def fencing_token(self) -> int:
        """LeaseTransitions of the Lease, which increases with each new leader."""
        return self._core.record.transitions

    @property
    def holder(self) -> str:
        """Identity of the last known leader; empty for none."""
        return self._core.record.holder

    def is_leader(self) -> bool:
        """Return whether this process leads, by its own deadline; can be called from any thread.

        False as soon as the last renewal is too old, even if the elector's thread has had no time
        to notice, as after the process was paused.
        """
        return self._core.is_leader(self._clock.monotonic())

    def start(self) -> None:
        """Start; must be called in the main loop, which then runs the callbacks."""
        self._main_loop = asyncio.get_running_loop()
        self._beat = self._clock.monotonic()
        self._thread = threading.Thread(target=self._main, name="elector", daemon=True)
        self._thread.start()

    def check(self) -> str | None:
        """Return what is wrong with the election, or None; being a standby is not an error."""
        if self._stopping or self._thread is None:
            return None
        if not self._thread.is_alive():
            return "the elector thread is dead"
        if self._core.lost_reason:
            return f"lost the Lease {self._key}: {self._core.lost_reason}"
        silent = self._clock.monotonic() - self._beat
        limit = self._core.timing.lease_duration + self._core.timing.renew_deadline
        return f"the elector made no progress for {silent:.0f} s" if silent > limit else None

    async def stop(self) -> None:
        """Release the Lease if this process holds it, and end the thread, within a few seconds.

        Call this after all work has been drained: from here on, another replica can lead.
        """
        self._stopping = True
        if self._own_loop is not None and self._stop_event is not None:
            # The loop is closed, so there is nothing left to stop.
            with suppress(RuntimeError):
                self._own_loop.call_soon_threadsafe(self._stop_event.set)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _RELEASE_SECONDS + 2 * _LAST_REQUEST_SECONDS)
        if self._exit_timer is not None:
            self._exit_timer.cancel()

    # The following methods run in the elector's thread.

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException:
            # Stop leading first: logging may block.
            self._core.lose("the elector thread died")
            log.exception("Unexpected error in the elector thread, stopping it")
        finally:
            self._announce(leading=False)
            if not self._stopping:
                self._arm_hard_exit()

    async def _run(self) -> None:
        self._stop_event = asyncio.Event()
        self._own_loop = asyncio.get_running_loop()
        if self._stopping:
            return
        made = self._client_factory()
        client = await made if inspect.isawaitable(made) else made
        stop = asyncio.ensure_future(self._stop_event.wait())
        try:
            while not stop.done():
                self._beat = now = self._clock.monotonic()
                step = self._core.next_step(now, self._clock.now(), self._chance())
                if step.verb is Verb.STOP:
                    self._announce(leading=False)
                    self._arm_hard_exit()
                    log.error("Lost leadership", reason=self._core.lost_reason)
                    # The Lease is handed over when the work is drained.
                    await stop
                    break
                await self._do(client, step, stop)
            await self._release(client)
        finally:
            stop.cancel()
            await client.close()

    async def _do(self, client: LeaseClient, step: Step, stop: "asyncio.Future[Any]") -> None:
        action = asyncio.ensure_future(
            self._clock.sleep(step.seconds)
            if step.verb is Verb.WAIT
            else self._request(client, step)
        )
        await asyncio.wait((action, stop), return_when=asyncio.FIRST_COMPLETED)
        if not action.done() and step.verb is not Verb.WAIT:
            # After an interrupted write, the version of the Lease is unknown.
            await asyncio.wait((action,), timeout=_LAST_REQUEST_SECONDS)
        if action.done():
            # An exception here is a bug, and ends the thread.
            action.result()
        action.cancel()

    async def _request(self, client: LeaseClient, step: Step) -> None:
        try:
            async with asyncio.timeout(step.seconds):
                if step.verb is Verb.READ:
                    await self._read(client)
                else:
                    await self._write(client, step)
        except (Conflict, AlreadyExists, NotFound):
            # The Lease was changed or deleted since it was read.
            if self._metrics and self._core.leading:
                self._metrics.slow_path()
            self._core.failed(self._clock.monotonic(), self._chance(), conflict=True)
        except Exception as err:  # noqa: BLE001 whatever it is, the next try may succeed
            self._log_once(err)
            self._core.failed(self._clock.monotonic(), self._chance())
        else:
            self._last_error = ""

    async def _read(self, client: LeaseClient) -> None:
        before = self._core.record.holder
        record: LeaseRecord | None = None
        try:
            self._base = await client.get(LEASE, self._key)
            record = parse_lease(self._base)
        except NotFound:
            self._base = None
        self._core.was_read(record, self._clock.monotonic())
        holder = self._core.record.holder
        if holder not in (before, "", self.identity):
            log.info("Standing by", lease=str(self._key), holder=holder)

    async def _write(self, client: LeaseClient, step: Step) -> None:
        manifest = build_lease(self._key, step.record, self._base)
        started = self._clock.monotonic()
        if step.verb is Verb.CREATE:
            self._base = await client.create(LEASE, manifest)
        else:
            self._base = await client.replace(LEASE, manifest)
        record = parse_lease(self._base)
        self._core.was_written(record, started, self._clock.monotonic(), self._chance())
        if self.is_leader() and not self._stopping:
            self._announce(leading=True)

    async def _release(self, client: LeaseClient) -> None:
        record = self._core.release(self._clock.now())
        self._announce(leading=False)
        if record is None:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                try:
                    await client.replace(LEASE, build_lease(self._key, record, self._base))
                except Conflict:
                    # The last renewal may have succeeded although its response was lost.
                    await self._read(client)
                    if record := self._core.release(self._clock.now()):
                        await client.replace(LEASE, build_lease(self._key, record, self._base))
        except NotFound:
            # Helm deleted the Lease with its release; it must not be recreated.
            return
        except Exception as err:  # noqa: BLE001 the Lease then expires by itself
            log.warning("Cannot release the Lease", lease=str(self._key), error=repr(err))
        else:
            log.info("Released the Lease", lease=str(self._key))

    def _announce(self, *, leading: bool) -> None:
        if leading == self._announced:
            return
        self._announced = leading
        if self._metrics is not None:
            self._metrics.set_leading(leading)
        if self._main_loop is not None:
            # The main loop is closed, so nobody needs the callback.
            with suppress(RuntimeError):
                self._main_loop.call_soon_threadsafe(
                    self._on_started if leading else self._on_stopped
                )
        if leading:
            log.info("Acquired leadership", lease=str(self._key), fencing_token=self.fencing_token)

    def _arm_hard_exit(self) -> None:
        if self._exit_timer is not None or self._stopping or not self._core.was_leader:
            return
        left = max(0.0, self._core.expires_at - self._clock.monotonic())
        self._exit_timer = threading.Timer(left, self._exit)
        self._exit_timer.daemon = True
        self._exit_timer.start()

    def _exit(self) -> None:
        try:
            log.error("Exiting immediately: reconciles did not stop before the Lease expires")
        finally:
            self._hard_exit(1)

    def _log_once(self, err: Exception) -> None:
        # Log each kind of error once: attempts happen every two seconds.
        if type(err).__name__ != self._last_error:
            self._last_error = type(err).__name__
            log.warning("Cannot reach the Lease", lease=str(self._key), error=repr(err))
