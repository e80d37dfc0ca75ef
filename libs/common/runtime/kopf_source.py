"""kopf as a read-only event source.

kopf brings watching, resumption, login and the handling of the API's oddities. It is kept from
writing anything: raw event handlers that return None, storages that store nothing, no posting of
events, no peering, and a finalizer name that nobody uses, since kopf takes its own finalizer off
whatever it handles. What it lacks is added here and in `libs.common.runtime.sweep`:

* a store is synced when everything that a listing of metadata named has been seen or is gone;
* a listing of a kind that is synced means that kopf begins again after a gap. Deletions in the gap
  come with no event, and where nothing is left no event comes at all: so its requests are watched,
  and the informer is swept;
* kopf gives up on what a watcher should outlive: it is started anew, after a while;
* kopf looks once, at its start, what the server serves, and never watches what was not there: one
  that does not list each kind is started anew too;
* kopf begins a stream at once where one has ended: a server that ends each is given a pause.

kopf runs in a thread of its own, with an event loop of its own: it ends by canceling every task of
its loop that was created after it, and it installs signal handlers where it is in the main thread.
Neither is for the loop that the workers drain in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, Self

import aiohttp
import kopf
import structlog

from libs.common.clock import Clock, SystemClock
from libs.common.config import ConnectionConfig
from libs.common.kinds import Manifest
from libs.common.runtime.informer import Informer
from libs.common.runtime.streams import RECONNECT, STREAM_SECONDS, Pace
from libs.common.runtime.waiting import wait_first

log = structlog.get_logger(__name__)

_LASTING_SECONDS: Final = 60.0
"""A kopf that worked for so long failed for the first time when it ends."""
_BEGIN_SECONDS: Final = 60.0
"""Time for kopf to list each kind; it gives up on requests that fail sooner."""
_EXIT_SECONDS: Final = 5.0
_GOODBYE_SECONDS: Final = 0.1
_UNUSED_FINALIZER: Final = "slipway.dev/kopf-unused"


type Pause = Callable[[float], Awaitable[object]]
"""Wait for some seconds in the loop that calls."""


class KopfSource:
    """Feed informers by kopf's raw event handlers.

    Args:
        config: Where the API server is and how to log in.
        clock: Time source of the waits before kopf is started anew.
        rng: Source of jitter.
        pause: Waits before a stream after streams that ended at once, in kopf's thread.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Prepare; kopf starts in `run`."""
        self._config = config
        self._clock = clock or SystemClock()
        self._rng = rng
        self._pause = pause
        self._listed: set[str] = set()  # Paths that some kopf has listed.

    async def run(self, informers: Sequence[Informer], stop: asyncio.Event) -> None:
        """Feed the informers until `stop` is set.

        kopf ends on what a reflector waits out: an error in a stream other than an expired version,
        an HTTP 410, a server that answers 5xx for a minute. It is ended where it goes on without a
        kind that the server did not serve when it looked. A new one lists everything, and as any
        listing but the first it asks for a sweep, so nothing is lost by its end. Where it never
        gets far the watches fall silent, and the liveness probe says so.
        """
        # It says that signals are left to the main thread, which is what we want.
        logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
        # A line for each event, which says nothing that the lines of a pass do not.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        failures = 0
        while True:
            started = self._clock.monotonic()
            why = await self._run_once(informers, stop)
            if stop.is_set():
                return
            lasted = self._clock.monotonic() - started
            failures = 1 if lasted >= _LASTING_SECONDS else failures + 1
            delay = RECONNECT.delay(failures, self._rng())
            log.warning("Starting kopf anew", seconds=round(delay, 1), error=why)
            await wait_first(stop.wait(), self._clock.sleep(delay))
            if stop.is_set():
                return

    async def _run_once(self, informers: Sequence[Informer], stop: asyncio.Event) -> str:
        """Run kopf until `stop` is set or it is of no use any more; return why it is not."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        ready = threading.Event()
        flags: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        paths = {each.kind.path(scope): each for each in informers for scope in each.scopes}
        unlisted = set(paths)

        def note_read(path: str, watching: bool) -> None:
            for tail, informer in paths.items():
                if path.endswith(tail):
                    loop.call_soon_threadsafe(self._note, informer, tail, watching, unlisted)

        def target() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._operate(informers, loop, flags, ready, note_read))
            except BaseException as err:  # noqa: BLE001 carried to the loop that waits
                error = err
            ready.set()
            # A loop that was closed meanwhile, by a crash, has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_finish, ended, error)

        thread = threading.Thread(target=target, name="kopf", daemon=True)
        thread.start()
        deaf = False
        try:
            deaf = await self._wait_ended(ended, stop, unlisted)
        finally:
            # The flag lives in kopf's loop, which may still be starting.
            await asyncio.to_thread(ready.wait, _EXIT_SECONDS)
            for kopf_loop, flag in flags:
                # A loop that has ended has nothing left to stop.
                with contextlib.suppress(RuntimeError):
                    kopf_loop.call_soon_threadsafe(flag.set)
            await asyncio.wait({ended}, timeout=_EXIT_SECONDS)
        if deaf:
            return f"no listing of {', '.join(sorted(unlisted))}"
        return repr(ended.exception()) if ended.done() else ""

    async def _wait_ended(
        self, ended: asyncio.Future[None], stop: asyncio.Event, unlisted: Collection[str]
    ) -> bool:
        """Wait until kopf has ended or is to end; tell whether that is since it is deaf."""
        stopping = asyncio.create_task(stop.wait())
        begun = asyncio.create_task(self._clock.sleep(_BEGIN_SECONDS))
        ends: set[asyncio.Future[Any]] = {stopping, ended}
        try:
            await asyncio.wait({*ends, begun}, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done() and not ended.done() and unlisted:
                return True
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return False
        finally:
            stopping.cancel()
            begun.cancel()

    def _note(self, informer: Informer, path: str, watching: bool, unlisted: set[str]) -> None:
        """Take in that kopf read something.

        Bookmarks stay with kopf; that a stream begins, every few minutes, is heard of it. A listing
        of what was listed before, or synced without it, means that there was a gap.
        """
        if watching:
            informer.heard()
            return
        if informer.synced or path in self._listed:
            informer.relisted.set()
        self._listed.add(path)
        unlisted.discard(path)

    async def _operate(
        self,
        informers: Sequence[Informer],
        loop: asyncio.AbstractEventLoop,
        flags: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
        ready: threading.Event,
        note_read: Callable[[str, bool], None],
    ) -> None:
        flag = asyncio.Event()
        flags.append((asyncio.get_running_loop(), flag))
        ready.set()
        namespaces = sorted({scope for informer in informers for scope in informer.namespaces})
        async with _Sessions(self._config, note_read, self._pause) as sessions:
            await kopf.operator(
                registry=_build_registry(informers, sessions, loop, flag),
                settings=_build_settings(informers),
                standalone=True,
                clusterwide=not namespaces,
                namespaces=namespaces,
                stop_flag=flag,
            )


class _Sessions:
    """The sessions that kopf talks by.

    They are ours: a kopf that is stopped while it looks at what the server has opens others that it
    never closes, and those of its own know neither our TLS context nor a proxy.

    Args:
        config: Where the API server is and how to log in.
        read: Told the path of each read that succeeds, and whether it is a watch.
        pause: Waits before a stream after streams that ended at once.
    """

    def __init__(
        self, config: ConnectionConfig, read: Callable[[str, bool], None], pause: Pause
    ) -> None:
        self._config = config
        self._read = read
        self._pause = pause
        self._pace = Pace()
        self._opened: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_EXIT_SECONDS)
        for session in self._opened:
            await session.close()
        if self._config.server.startswith("https:"):
            # The streams close politely, which takes a round trip that the loop must see.
            await asyncio.sleep(_GOODBYE_SECONDS)

    async def login(self) -> kopf.AiohttpSession:
        """Open a session with the credentials of now; kopf asks again when they are refused."""
        config = self._config
        authorization = await config.authorization()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=config.ssl_context() or True),
            headers={"Authorization": authorization} if authorization else None,
            proxy=config.proxy or None,
            trust_env=False,
            trace_configs=[self._build_trace()],
        )
        # kopf closes those whose credentials were refused.
        self._opened = [each for each in self._opened if not each.closed] + [session]
        return kopf.AiohttpSession(
            server=config.server, default_namespace=config.namespace, aiohttp_session=session
        )

    def _build_trace(self) -> aiohttp.TraceConfig:
        async def note(_: object, __: object, params: aiohttp.TraceRequestEndParams) -> None:
            if params.method == "GET" and params.response.ok:
                self._read(params.url.path, "watch" in params.url.query)

        async def slow_down(_: object, __: object, params: aiohttp.TraceRequestStartParams) -> None:
            if "watch" in params.url.query:
                delay = self._pace.begin(params.url.path, time.monotonic())
                if delay:
                    await self._pause(delay)

        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(slow_down)
        trace.on_request_end.append(note)
        return trace


def _build_registry(
    informers: Sequence[Informer],
    sessions: _Sessions,
    loop: asyncio.AbstractEventLoop,
    flag: asyncio.Event,
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: object) -> kopf.AiohttpSession:
        return await sessions.login()

    @kopf.on.cleanup(registry=registry)
    async def stop_waiting(**_: object) -> None:
        # A kopf that gives up would wait five seconds for its own task that waits for the flag.
        flag.set()

    for informer in informers:
        kind = informer.kind
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(
            _build_handler(informer, loop)
        )
    return registry


class _NullDiffBase(kopf.DiffBaseStorage):
    """Remember nothing: the runtime is level-triggered and needs no last-handled state."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class _NullProgress(kopf.ProgressStorage):
    """Remember nothing: raw event handlers make no progress."""

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Purge nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""

    def clear(self, *, essence: Any) -> Any:
        return essence


def _build_settings(informers: Sequence[Informer]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True  # The manager waits for the kinds to be served.
    settings.persistence.finalizer = _UNUSED_FINALIZER
    settings.persistence.diffbase_storage = _NullDiffBase()
    settings.persistence.progress_storage = _NullProgress()
    settings.watching.server_timeout = STREAM_SECONDS
    # An expired continue token ends kopf's operator, and so does losing a streamed first listing.
    settings.watching.chunk_size = None
    settings.watching.initial_streaming = False
    settings.queueing.worker_limit = None
    settings.networking.request_timeout = 30
    # kopf would send SIGKILL to the process; how long an end may take is for the manager to say.
    settings.process.ultimate_exiting_timeout = None
    for informer in informers:
        if informer.label_selector:
            kind = informer.kind
            selectors = settings.watching.label_selectors
            selectors[kind.group, kind.version, kind.plural] = informer.label_selector
    return settings


def _build_handler(informer: Informer, loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    async def deliver(event: Any, **_: object) -> None:
        # The copy detaches the object from kopf, which keeps and changes its own.
        with contextlib.suppress(RuntimeError):  # As above.
            loop.call_soon_threadsafe(_deliver, informer, event["type"], dict(event["object"]))

    return deliver


def _deliver(informer: Informer, event_type: str | None, manifest: Manifest) -> None:
    if event_type == "DELETED":
        informer.remove(manifest)
        return
    informer.put(manifest)


def _finish(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
