"""Records Events, which `kubectl describe` shows to people.

Recording never blocks and never fails: an Event goes into a bounded queue that a separate task
empties; Events that cannot be written are dropped and counted. Equal Events are aggregated into one
with a count, as in client-go, and a token bucket limits the number of different Events of an
object.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol

import structlog

from libs.common.clock import Clock, SystemClock, Timer
from libs.common.errors import (
    AlreadyExists,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from libs.common.event_manifest import (
    EventType,
    Reporter,
    build_event,
    build_series,
    render_micro_time,
)
from libs.common.kinds import EVENT, Key, Kind, Manifest, key_of
from libs.common.metric_specs import EVENTS
from libs.common.metrics import Metrics

# Burst and refill of client-go's spam filter: 25 different Events of an object at once, then one
# every five minutes.
_BURST: Final = 25.0
_REFILL_PER_SECOND: Final = 1 / 300
_BUCKETS: Final = 4096
_QUEUE: Final = 1000
_SERIES: Final = 1000
_TRIES: Final = 3
_RETRY_SECONDS: Final = 0.5
# The first repetition is written immediately, further ones at most this often.
_REFRESH_SECONDS: Final = 60.0

type Result = Literal["created", "patched", "dropped", "failed"]
_RETRIABLE: Final = (ServerError, TooManyRequests, UnknownOutcome, Unreachable)

log = structlog.get_logger("events")


class EventClient(Protocol):
    """The methods of a client that the recorder uses."""

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create an object; raises AlreadyExists."""

    async def patch(self, kind: Kind, key: Key, operations: Mapping[str, Any]) -> Manifest:
        """Merge a patch into an object; raises NotFound."""


@dataclass(slots=True)
class _Series:
    """An Event and its count."""

    manifest: Manifest
    last: datetime
    count: int = 1
    """Occurrences in this process since the Event was created or found."""
    base: int = 0
    """Occurrences before that."""
    sent: int = 0
    """The count that the API server knows."""
    exists: bool = False
    sent_at: float = float("-inf")
    timer: Timer | None = field(default=None, repr=False)


class EventRecorder:
    """Records the Events of one process."""

    def __init__(
        self,
        client: EventClient,
        controller: str,
        instance: str,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Initialize; the first Event starts the task.

        Args:
            client: Client that writes the Events.
            controller: The `reportingController`: the id of the operator.
            instance: The `reportingInstance`: the name of the pod.
            metrics: Metrics that count written and dropped Events.
            clock: For tests.
        """
        self._client = client
        self._reporter = Reporter(controller, instance)
        self._clock = clock or SystemClock()
        self._counter = metrics.counter(EVENTS) if metrics else None
        self._series: OrderedDict[Key, _Series] = OrderedDict()
        self._queue: OrderedDict[Key, _Series] = OrderedDict()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def event(
        self,
        kind: Kind,
        regarding: Mapping[str, Any],
        event_type: EventType,
        reason: str,
        note: str,
        *,
        action: str = "",
        related: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an Event; returns immediately and never raises.

        Args:
            kind: Kind of the object that the Event is about.
            regarding: That object.
            event_type: `Warning` if a person should look at it, else `Normal`.
            reason: Why, in UpperCamel; the same words as in conditions.
            note: One sentence for people, at most 1024 bytes.
            action: The action that was taken, in UpperCamel.
            related: Another object that is involved, such as the pod that was created.
        """
        try:
            now = self._clock.now()
            manifest = build_event(
                self._reporter,
                kind,
                regarding,
                event_type,
                reason,
                note,
                now,
                action=action,
                related=related,
            )
            self._record(manifest, now)
        except Exception:
            log.exception("Event dropped", reason=reason)
            self._count("dropped")

    async def close(self, timeout: float = 2.0) -> None:
        """Write the queued Events within a time in seconds, and stop."""
        self._closed = True
        for key, series in self._series.items():
            if series.count != series.sent:
                self._enqueue(key, series)
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            log.warning("Dropped the remaining Events at shutdown", events=len(self._queue))
        await self.abandon()

    async def abandon(self) -> None:
        """Stop immediately and discard the queued Events."""
        self._closed = True
        for series in self._series.values():
            if series.timer is not None:
                series.timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait_idle(self) -> None:
        """Wait until the queue is empty."""
        await self._idle.wait()

    # The following methods decide what is written.

    def _record(self, manifest: Manifest, now: datetime) -> None:
        if self._closed:
            self._count("dropped")
            return
        key = key_of(manifest)
        series = self._series.get(key)
        if series is not None:
            self._series.move_to_end(key)
            series.count += 1
            series.last = now
            self._schedule(key, series)
            return
        regarding = manifest["regarding"]
        subject = regarding.get("uid") or f"{regarding.get('namespace')}/{regarding['name']}"
        if len(self._queue) >= _QUEUE or not self._take_token(subject):
            self._count("dropped")
            return
        series = self._series[key] = _Series(manifest, now)
        while len(self._series) > _SERIES:
            _, oldest = self._series.popitem(last=False)
            if oldest.timer is not None:
                oldest.timer.cancel()
        self._enqueue(key, series)

    def _schedule(self, key: Key, series: _Series) -> None:
        """Write a repetition now, or as soon as enough time has passed since the last write."""
        if key in self._queue or series.timer is not None:
            return
        wait = series.sent_at + _REFRESH_SECONDS - self._clock.monotonic()
        if wait <= 0 or series.base + series.sent <= 1:
            self._enqueue(key, series)
            return

        def due() -> None:
            series.timer = None
            self._enqueue(key, series)

        series.timer = self._clock.call_later(wait, due)

    def _take_token(self, subject: str) -> bool:
        now = self._clock.monotonic()
        tokens, at = self._buckets.pop(subject, (_BURST, now))
        tokens = min(_BURST, tokens + (now - at) * _REFILL_PER_SECOND)
        taken = tokens >= 1
        self._buckets[subject] = (tokens - 1 if taken else tokens, now)
        if len(self._buckets) > _BUCKETS:
            self._buckets.popitem(last=False)
        return taken

    def _enqueue(self, key: Key, series: _Series) -> None:
        self._queue[key] = series
        self._idle.clear()
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name="events")

    def _count(self, result: Result) -> None:
        if self._counter is not None:
            self._counter.labels(result).inc()

    # The following methods write the Events.

    async def _work(self) -> None:
        while True:
            while self._queue:
                key, series = self._queue.popitem(last=False)
                await self._send(key, series)
            self._wake.clear()
            self._idle.set()
            await self._wake.wait()

    async def _send(self, key: Key, series: _Series) -> None:
        error: Exception | None = None
        for attempt in range(_TRIES):
            try:
                self._count(await self._write(key, series))
            except _RETRIABLE as err:
                error = err
                await self._clock.sleep(_RETRY_SECONDS * 2**attempt)
            except Exception as err:  # noqa: BLE001 nothing that is wrong with an event may hurt
                error = err
                break
            else:
                return
        self._count("failed")
        # An Event that could not be written is written when it occurs again.
        self._series.pop(key, None)
        # A namespace that is being deleted accepts no Events; this is expected.
        level = "debug" if isinstance(error, Forbidden) else "warning"
        getattr(log, level)("Cannot write an Event", event_name=str(key), error=str(error))

    async def _write(self, key: Key, series: _Series) -> Result:
        if not series.exists:
            return await self._create(key, series)
        count = series.count
        try:
            await self._patch(key, series, count)
        except NotFound:
            # The API server deletes Events after an hour; start again with the occurrences that
            # were not written.
            series.manifest["eventTime"] = render_micro_time(series.last)
            series.count, series.base, series.sent = series.count - series.sent, 0, 0
            series.exists = False
            return await self._create(key, series)
        self._sent(series, count)
        return "patched"

    async def _create(self, key: Key, series: _Series) -> Result:
        count = series.count
        more = {"series": build_series(count, series.last)} if count > 1 else {}
        result: Result = "created"
        try:
            await self._client.create(EVENT, series.manifest | more)
        except AlreadyExists:
            found = await self._find(key)
            # An Event with the same time is ours: the response to the create was lost.
            if found.get("eventTime") != series.manifest["eventTime"]:
                series.base = int((found.get("series") or {}).get("count") or 1)
                await self._patch(key, series, count)
                result = "patched"
        self._sent(series, count)
        return result

    async def _find(self, key: Key) -> Manifest:
        try:
            # An empty patch returns the object and needs no permission to read Events.
            return await self._client.patch(EVENT, key, {})
        except NotFound:
            return {}

    async def _patch(self, key: Key, series: _Series, count: int) -> None:
        body = {"series": build_series(series.base + count, series.last)}
        await self._client.patch(EVENT, key, body)

    def _sent(self, series: _Series, count: int) -> None:
        series.exists = True
        series.sent = count
        series.sent_at = self._clock.monotonic()
