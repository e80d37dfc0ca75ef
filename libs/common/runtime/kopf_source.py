"""kopf as a read-only event source.

kopf provides watching, resumption, login and workarounds for peculiarities of the API. It must not
write anything: this module uses raw event handlers that return None, storages that store nothing,
no posting of events, no peering, and a finalizer name that nobody uses, because kopf removes its
own finalizer from every object that it handles. The following is added here and in
`libs.common.runtime.kopf_sessions`:

* kopf lists all objects in one response, parses it in one step and yields the objects one by one.
  So kopf gets an empty listing, from which it only learns the version for its watch; after that,
  our own client lists the objects page by page. Nothing is missed: kopf's watch delivers changes
  between the two listings, and the store keeps the newer version;
* a further listing of kopf means that there was a gap. There are no events for deletions in the
  gap: our own listing finds them;
* kopf exits, for all namespaces, on a refusal in one of them: refusals are hidden from it;
* kopf exits on errors that a watch should survive: it is restarted after a pause;
* kopf runs discovery once, at its start, and never watches kinds that were missing then: it is
  restarted if it does not list each kind;
* kopf starts a new stream immediately after one has ended: there is a pause if the server ends each
  stream.

kopf runs in a separate thread with its own event loop: on exit it cancels every task of its loop
that was created after it, and in the main thread it would install signal handlers. Both would break
the loop in which workers are drained.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock, SystemClock
from libs.common.config import ConnectionConfig
from libs.common.decoding import limit_depth
from libs.common.errors import SlipwayError, api_error
from libs.common.kinds import Manifest
from libs.common.runtime.informer import Informer, run_in_scopes
from libs.common.runtime.kopf_sessions import EXIT_SECONDS, REFUSED, Pause, Sessions
from libs.common.runtime.kopf_settings import build_settings
from libs.common.runtime.light_kopf import kopf
from libs.common.runtime.listing import check_storage, list_scope
from libs.common.runtime.scope import Scope
from libs.common.runtime.streams import RECONNECT
from libs.common.tasks import wait_first

log = structlog.get_logger(__name__)

_LASTING_SECONDS: Final = 60.0
"""If kopf ran for at least this long, its exit counts as a first failure."""
_BEGIN_SECONDS: Final = 60.0
"""Time for kopf to list each kind; it gives up on failing requests sooner."""
_CANCEL_SECONDS: Final = 0.5
_IDENTITY: Final[Any] = "slipway"
"""Name of this operator among its peers, of which it has none; kopf does not export its type."""
_NEW_NAMESPACES: Final = "the list of namespaces changed"


class KopfSource:
    """An event source that uses kopf's raw event handlers.

    Args:
        config: Address of the API server and credentials.
        client: Client that lists the objects of watched kinds.
        clock: Time source of the waits before kopf is restarted.
        rng: Source of jitter.
        pause: Waits, in kopf's thread, before a request is sent again.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        client: Client,
        *,
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Initialize; kopf starts in `run`."""
        self._config = config
        self._client = client
        self._clock = clock or SystemClock()
        self._rng = rng
        self._pause = pause

    async def run(self, informers: Sequence[Informer], stop: asyncio.Event) -> None:
        """Feed the informers until `stop` is set.

        kopf exits on errors that a reflector retries, such as an error in a stream other than an
        expired version. It is stopped if it runs without a kind that the server did not serve at
        discovery, and if namespaces are added or removed. The next kopf lists everything, so
        nothing is lost. If kopf repeatedly fails early, the watches deliver nothing and the
        liveness probe fails.
        """
        # kopf warns that only the main thread can handle signals, which is intended.
        logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
        # One line for each event, which adds nothing to the lines of a reconcile.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        # kopf would log each refusal as an error; a namespace that cannot be read is reported only
        # once.
        logging.getLogger("kopf._cogs.clients.watching").addFilter(_is_relevant)
        async with asyncio.TaskGroup() as group:
            listing = [
                group.create_task(run_in_scopes(informer, partial(work, informer)))
                for informer in informers
                for work in (self._list_after_kopf, self._check_after_kopf)
            ]
            try:
                await self._keep_running(informers, stop)
            finally:
                for task in listing:
                    task.cancel()

    async def _keep_running(self, informers: Sequence[Informer], stop: asyncio.Event) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            why = await self._run_once(informers, stop)
            if stop.is_set():
                return
            if why == _NEW_NAMESPACES:
                continue
            lasted = self._clock.monotonic() - started
            failures = 1 if lasted >= _LASTING_SECONDS else failures + 1
            delay = RECONNECT.delay(failures, self._rng())
            log.warning("Restarting kopf", seconds=round(delay, 1), error=why)
            await wait_first(stop.wait(), self._clock.sleep(delay))
            if stop.is_set():
                return

    async def _list_after_kopf(self, informer: Informer, scope: Scope) -> None:
        """List a scope each time after kopf has listed it."""
        failures = 0
        while True:
            await scope.relisted.wait()
            scope.relisted.clear()
            try:
                await list_scope(self._client, informer, scope.namespace)
                failures = 0
            except SlipwayError as err:
                failures += 1
                delay = RECONNECT.delay(failures, self._rng())
                if not informer.note_failure(scope.namespace, err):
                    name = {"resource": informer.kind.resource, "namespace": str(scope)}
                    log.warning(
                        "List failed, waiting to retry",
                        **name,
                        seconds=round(delay, 1),
                        error=str(err),
                    )
                await self._clock.sleep(delay)
                scope.relisted.set()

    async def _check_after_kopf(self, informer: Informer, scope: Scope) -> None:
        """Check the storage each time after kopf has begun a watch, which may be silent."""
        while True:
            await scope.watched.wait()
            scope.watched.clear()
            # A later watch or a sweep checks again.
            with contextlib.suppress(SlipwayError):
                await check_storage(self._client, informer, scope.namespace)

    async def _run_once(self, informers: Sequence[Informer], stop: asyncio.Event) -> str:
        """Run kopf until `stop` is set or kopf must be restarted; return the reason."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        ready = threading.Event()
        flags: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        watched = _Watched(informers, loop)

        def target() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._operate(informers, loop, flags, ready, watched))
            except BaseException as err:  # noqa: BLE001 carried to the loop that waits
                error = err
            ready.set()
            # A crash has closed the loop, so nobody needs the call.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_finish, ended, error)

        thread = threading.Thread(target=target, name="kopf", daemon=True)
        thread.start()
        why = ""
        try:
            why = await self._wait_ended(ended, stop, watched)
        finally:
            # The flag belongs to kopf's loop, which may still be starting.
            await asyncio.to_thread(ready.wait, EXIT_SECONDS)
            for kopf_loop, flag in flags:
                # The loop has ended, so there is nothing left to stop.
                with contextlib.suppress(RuntimeError):
                    kopf_loop.call_soon_threadsafe(flag.set)
            await asyncio.wait({ended}, timeout=EXIT_SECONDS)
        return why or (repr(ended.exception()) if ended.done() else "")

    async def _wait_ended(
        self, ended: asyncio.Future[None], stop: asyncio.Event, watched: _Watched
    ) -> str:
        """Wait until kopf has exited or must exit; return why it must, or an empty text."""
        begun = asyncio.create_task(self._clock.sleep(_BEGIN_SECONDS))
        changes = [asyncio.create_task(each.wait_scopes_changed()) for each in watched.informers]
        others = {asyncio.create_task(stop.wait()), *changes}
        waits: set[asyncio.Future[Any]] = {ended, begun, *others}
        try:
            while True:
                done, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if any(change in done for change in changes):
                    return _NEW_NAMESPACES
                if done != {begun}:
                    return ""
                if unlisted := watched.find_unlisted():
                    return f"not listed yet: {', '.join(sorted(unlisted))}"
        finally:
            for task in (begun, *others):
                task.cancel()

    async def _operate(
        self,
        informers: Sequence[Informer],
        loop: asyncio.AbstractEventLoop,
        flags: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
        ready: threading.Event,
        watched: _Watched,
    ) -> None:
        flag = asyncio.Event()
        flags.append((asyncio.get_running_loop(), flag))
        ready.set()
        namespaces = sorted({scope for informer in informers for scope in informer.namespaces})
        # kopf leaves tasks alone that are older than itself.
        ending = asyncio.create_task(end_watchers(flag))
        async with Sessions(self._config, watched, self._pause, self._rng) as sessions:
            try:
                await kopf.operator(
                    registry=_build_registry(informers, sessions, loop, flag),
                    settings=build_settings(informers),
                    standalone=True,
                    # By default, kopf looks up the name of the user, which a user that a platform
                    # assigned does not have.
                    identity=_IDENTITY,
                    clusterwide=not namespaces,
                    namespaces=namespaces,
                    stop_flag=flag,
                )
            finally:
                ending.cancel()


async def end_watchers(flag: asyncio.Event) -> None:
    """Cancel the watchers of an exiting kopf until they end; kopf cancels once and waits forever.

    A watcher that loses the cancellation would keep kopf, which has lost other watchers.
    """
    await flag.wait()
    while True:
        for task in asyncio.all_tasks():
            if task.get_name().startswith("watcher for "):
                task.cancel()
        await asyncio.sleep(_CANCEL_SECONDS)


class _Watched:
    """The watched kinds of one kopf and what it has listed; a listener in kopf's thread."""

    def __init__(self, informers: Sequence[Informer], loop: asyncio.AbstractEventLoop) -> None:
        self.informers = informers
        self._loop = loop
        self._paths = {
            informer.kind.path(scope.namespace): (informer, scope)
            for informer in informers
            for scope in informer.all_scopes
        }
        self._unlisted = set(self._paths)

    def find_unlisted(self) -> list[str]:
        """Return readable scopes that kopf has not listed."""
        return [path for path in self._unlisted if not self._paths[path][1].blocked]

    def concerns(self, path: str) -> bool:
        """Return whether a path belongs to a watched kind."""
        return self._find(path) is not None

    def succeeded(self, path: str, watching: bool) -> None:
        """Record, in kopf's thread, that kopf listed a path or began to watch it."""
        self._call(self._note_read, path, watching)

    def failed(self, path: str, status: int, text: str) -> None:
        """Record, in kopf's thread, that a request was refused."""
        self._call(self._note_refusal, path, status, text)

    def _call[*Ts](self, work: Callable[[*Ts], None], *args: *Ts) -> None:
        # A crash has closed the loop, so nobody needs the call.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work, *args)

    def _find(self, path: str) -> str | None:
        # The URL of the API server may have a path prefix.
        return path if path in self._paths else next(filter(path.endswith, self._paths), None)

    def _note_read(self, path: str, watching: bool) -> None:
        tail = self._find(path)
        if tail is None:
            return
        informer, scope = self._paths[tail]
        if watching:
            # kopf does not pass bookmarks on; the beginning of a stream, every few minutes, is the
            # sign of life.
            informer.mark_alive(scope.namespace)
            if scope.synced:
                scope.watched.set()
            return
        self._unlisted.discard(tail)
        scope.relisted.set()

    def _note_refusal(self, path: str, status: int, text: str) -> None:
        tail = self._find(path)
        if tail is not None:
            informer, scope = self._paths[tail]
            error = api_error(status, {"message": text}, operation=f"GET {path}")
            informer.note_failure(scope.namespace, error)


def _build_registry(
    informers: Sequence[Informer],
    sessions: Sessions,
    loop: asyncio.AbstractEventLoop,
    flag: asyncio.Event,
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: object) -> kopf.AiohttpSession:
        return await sessions.login()

    @kopf.on.cleanup(registry=registry)
    async def stop_waiting(**_: object) -> None:
        # On exit, kopf would wait five seconds for its own task that waits for the flag.
        flag.set()

    for informer in informers:
        kind = informer.kind
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(
            _build_handler(informer, loop)
        )
    return registry


def _build_handler(informer: Informer, loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    async def deliver(event: Any, **_: object) -> None:
        # Only the outermost dictionary is a copy. Its values are shared with kopf, which only reads
        # them, because no handler makes it write.
        with contextlib.suppress(RuntimeError):  # As above.
            loop.call_soon_threadsafe(_deliver, informer, event["type"], dict(event["object"]))

    return deliver


def _deliver(informer: Informer, event_type: str | None, manifest: Manifest) -> None:
    manifest = limit_depth(manifest)
    if event_type == "DELETED":
        informer.remove(manifest)
        return
    informer.put(manifest)


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return whether a log record of kopf is neither about a refusal nor about a request to wait.

    kopf repeats a watch after a 429, which the API server sends while a new CRD is being prepared.
    """
    text = record.getMessage()
    return REFUSED not in text and "APITooManyRequestsError" not in text


def _finish(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
