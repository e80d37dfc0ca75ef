"""Receives, handles and finishes messages in threads until it is stopped.

A thread for each topic subscribes and receives; lanes handle. A topic that cannot be reached does
not stop the others. On `stop` nothing more is begun, what is begun is finished, and the rest is
unacknowledged, so that the broker gives it to others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pulsar
import structlog

from libs.common.telemetry import Telemetry
from operators.pulsarconsumer.app.acknowledger import MessageAcknowledger
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.core.rate import RateLimit
from operators.pulsarconsumer.app.core.retry import Strategy
from operators.pulsarconsumer.app.held_messages import HeldMessages
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.lanes import Lanes
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.processing import Fatal, Processor
from operators.pulsarconsumer.app.received import RawMessage, Received
from operators.pulsarconsumer.app.schemas import Payloads
from operators.pulsarconsumer.app.settings import Settings
from operators.pulsarconsumer.app.source import (
    SUBSCRIBE_ERRORS,
    Source,
    build_sources,
    describe,
)
from operators.pulsarconsumer.app.streams import MessageStream

_WATCH_SECONDS: Final = 0.05
_FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 15.0
"""Longest time between two attempts to subscribe."""
_PAUSE_SECONDS: Final = 0.1
HOLDUP_SECONDS: Final = 0.05
"""A call that takes longer does not keep the thread of a topic from receiving."""
_LONG_CALL_SECONDS: Final = 0.2
"""A call that takes longer is recorded in the journal."""
_CAREFUL_SECONDS: Final = 600.0
"""How long each call is recorded after a crash."""
_COPY_SECONDS: Final = 2.0
"""Least time to store the copies of messages whose handler timed out."""
_UNEXPECTED: Final = "Unhandled error, exiting"

log = structlog.get_logger("worker")


class Worker:
    """Consume as the settings say; `run` in a thread, `stop` from any other."""

    def __init__(
        self,
        settings: Settings,
        handler: Callable[[Any], object],
        stream: MessageStream,
        meters: Meters,
        telemetry: Telemetry,
    ) -> None:
        """Take what does the work.

        Args:
            settings: What to consume and how.
            handler: Called from threads with a message, or with a list for handler_batch.
            stream: Where the lines of messages go.
            meters: What is measured.
            telemetry: Where spans go.
        """
        self._settings = settings
        self._meters = meters
        self._connection = Connection(settings)
        self._held = HeldMessages(settings.held_messages, settings.held_bytes)
        self._journal = Journal(settings.journal_folder)
        payloads = Payloads(settings, lambda: self._connection.client()._client)  # noqa: SLF001
        for id_, attempts in self._journal.attempts.items():
            self._held.remember(id_, attempts)
        for id_ in self._journal.copied:
            self._held.copied(id_)
        acknowledger = MessageAcknowledger(
            settings,
            meters,
            self._held,
            self._journal,
            self._connection,
            pending=self._pending,
        )
        self._processor = Processor(
            settings,
            handler,
            stream,
            payloads,
            acknowledger,
            self._held,
            self._journal,
            meters,
            telemetry,
            publish=self._connection.publish if settings.output_topic else None,
        )
        self._acknowledger = acknowledger
        self._whole = settings.handler_batch
        self._lanes = Lanes[Any](
            self._processor.process_list if self._whole else self._processor.process,
            settings.max_in_flight,
            self._group_of if settings.keeps_order else None,
            head=_head if self._whole else lambda unit: unit,
            park=self._park,
            fail=self._fail,
        )
        meters.slots = self._lanes.slots
        self.sources = build_sources(
            settings, self._connection, payloads, acknowledger.count_attempts
        )
        """The consumers, one a topic."""
        if self._journal.copied:
            # The process before was perhaps killed before the broker had its acknowledgments.
            for source in self.sources:
                self._held.watch_redeliveries(source, time.monotonic())
        rate = settings.rate_limit_per_second
        self._rate = RateLimit(rate, time.monotonic()) if rate else None
        self._rate_lock = threading.Lock()
        self._renewal = threading.Condition()
        self._renewal_due = False
        self._opening = 0
        self._pumps: dict[Source, threading.Thread] = {}
        self._giving_up: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._deadline = 0.0
        self.failure = ""
        """Why the process has to end with an error; empty while it has not."""
        meters.connected.set_function(lambda: self.check_ready() is None)

    def run(self) -> None:
        """Consume until `stop`, or until something fails permanently: see `failure`."""
        for source in self.sources:
            self._start(source)
        try:
            started = time.monotonic()
            while not self._stopping.wait(_WATCH_SECONDS):
                self._watch(started)
        except Exception as err:
            log.exception(_UNEXPECTED)
            self._end(f"{type(err).__name__}: {err}")
        self._finish()

    def stop(self, deadline: float) -> None:
        """Begin nothing more; what is begun has until a time of the monotonic clock to end."""
        self._deadline = deadline
        # Without a handler, the line in the log is the work: what has one is acknowledged.
        if self._settings.handler or self.failure:
            self._lanes.stop()
        self._stopping.set()

    @property
    def has_messages(self) -> bool:
        """Whether there is a consumer, which may hold messages, or some are handled."""
        return any(source.is_open for source in self.sources) or bool(self._lanes.pending())

    def check_ready(self) -> str | None:
        """Say why no messages can be received, or nothing if some can."""
        if self._stopping.is_set():
            return "the app is stopping"
        topics = [source for source in self.sources if not source.is_retry]
        if any(source.is_connected for source in topics):
            return None
        return "; ".join(f"{source.name}: {source.problem}" for source in topics)

    def check_alive(self) -> str | None:
        """Say why the process has to be restarted, or nothing if it has not."""
        return self.failure or None

    # Threads of topics.

    def _start(self, source: Source, *, is_open: bool = False) -> None:
        """Start the thread of a topic, or the one that takes its place."""
        pump = self._pumps[source] = threading.Thread(
            target=self._pump,
            args=(source,),
            kwargs={"is_open": is_open},
            name=source.name,
            daemon=True,
        )
        pump.start()

    def _pump(self, source: Source, *, is_open: bool) -> None:
        """Receive messages of a topic, and have them handled, until the app stops.

        It ends as well when another thread has taken its place.
        """
        try:
            while not self._stopping.is_set():
                if (is_open or self._open(source)) and not self._receive(source):
                    return
                is_open = False
                if not self._stopping.is_set():
                    self._close(source)
        except Exception as err:
            log.exception(_UNEXPECTED)
            self._end(f"{type(err).__name__}: {err}")

    def _open(self, source: Source) -> bool:
        """Subscribe, again and again until it succeeds or the app stops."""
        delay = _FIRST_RETRY_SECONDS
        while not self._stopping.is_set():
            try:
                self._subscribe(source)
            except SUBSCRIBE_ERRORS as err:
                self._meters.fail("subscribe")
                source.mark_refused(f"not subscribed: {describe(err)}")
                log.warning(
                    "Cannot subscribe",
                    topic=source.name,
                    error=describe(err),
                    retry_seconds=delay,
                )
                self._stopping.wait(delay)
                delay = min(2 * delay, LAST_RETRY_SECONDS)
                continue
            self._held.restart_watch(source, time.monotonic())
            name = self._settings.subscription_name
            log.info("Consuming", topic=source.name, subscription=name)
            return True
        return False

    def _subscribe(self, source: Source) -> None:
        """Subscribe once; raises what `open` raises.

        After a refusal, the client is replaced, because its credentials may be old, unless a topic
        uses it. Other topics that subscribe at that time would be interrupted, so the next
        attempt waits for them. Without the wait, attempts might overlap indefinitely.
        """
        with self._renewal:
            while self._renewal_due and not self._stopping.is_set():
                is_used = any(each.is_open for each in self.sources)
                if self._opening and not is_used:
                    self._renewal.wait(_PAUSE_SECONDS)
                    continue
                self._renewal_due = False
                if not is_used:
                    self._connection.renew()
            self._opening += 1
        try:
            source.open()
        except SUBSCRIBE_ERRORS:
            self._renewal_due = True
            raise
        finally:
            with self._renewal:
                self._opening -= 1
                self._renewal.notify_all()

    def _receive(self, source: Source) -> bool:
        """Receive until the connection is broken or the app stops.

        Returns:
            Whether it is still this thread that receives.
        """
        broken = self._stopping.is_set
        while not broken():
            now = time.monotonic()
            if source.check(now):
                log.warning("Subscribing again", topic=source.name, problem=source.problem)
                return True
            if self._held.is_full(source) or self._acknowledger.is_paused(now):
                self._stopping.wait(_PAUSE_SECONDS)
                continue
            try:
                batch = source.receive()
            except pulsar.Timeout:
                if self._held.is_watching and source.is_connected:
                    self._held.note_empty(source, time.monotonic())
                continue
            except pulsar.PulsarException as err:
                if not broken():
                    self._meters.fail("receive")
                    log.warning("Cannot receive", topic=source.name, error=describe(err))
                return True
            if self._held.is_watching or source.may_repeat:
                batch = self._sort_out(source, batch)
            if batch and not self._submit(source, self._processor.accept(source, batch)):
                return False
        return True

    def _sort_out(self, source: Source, batch: Sequence[RawMessage]) -> Sequence[RawMessage]:
        """Leave out messages that come again while they are handled, or after that."""
        new, done = self._held.sort_out(batch, self._pending(), copies=source.is_retry)
        redelivered = len(batch) - len(new)
        self._held.note_received(source, len(batch), redelivered, time.monotonic())
        for raw in done:
            try:
                source.acknowledge(raw)
            except pulsar.PulsarException as err:
                log.debug(
                    "Cannot acknowledge a redelivered message", topic=source.name, error=str(err)
                )
        return new

    def _submit(self, source: Source, taken: list[Received]) -> bool:
        """Hand messages over, and handle them while that is quick.

        It returns although others have to be handled first if the app stops or the connection has
        to be replaced: handlers that are busy must not delay that.

        Returns:
            Whether it is still this thread that receives.
        """

        def give_up() -> bool:
            return self._stopping.is_set() or source.check(time.monotonic())

        if self._rate is not None:
            for unit in [taken] if self._whole else taken:
                if not self._wait_turn(source, len(taken) if self._whole else 1):
                    return True  # The broker sends the others again.
                self._lanes.submit([unit], give_up)
            return True
        return self._lanes.submit([taken] if self._whole else taken, give_up, lender=source)

    def _wait_turn(self, source: Source, count: int) -> bool:
        """Wait as the rate limit asks, or until the app stops.

        Returns:
            False if the connection has to be replaced first.
        """
        assert self._rate is not None
        now = time.monotonic()
        with self._rate_lock:
            until = now + max(self._rate.reserve(now) for _ in range(count))
        # What is shown in the log is handled even if the app stops.
        while (left := until - time.monotonic()) > 0 and not self._stopping.is_set():
            if source.check(time.monotonic()):
                return False
            self._stopping.wait(min(left, _PAUSE_SECONDS))
        return True

    def _close(self, source: Source) -> None:
        """Close a consumer; the broker has back what was not acknowledged."""
        self._held.watch_redeliveries(source, time.monotonic())
        source.close("the connection was lost")
        self._lanes.purge(lambda unit: _head_of(unit).source is source)
        self._held.forget(source, self._pending())

    # The thread that watches.

    def _watch(self, started: float) -> None:
        now = time.monotonic()
        due = self._held.pop_due(now)
        if due:
            # In lists, messages that need no order are tried again together.
            together = self._whole and not self._settings.keeps_order
            units: list[Any] = [due] if together else [[each] for each in due]
            # This thread never waits for a handler.
            self._lanes.submit(units if self._whole else due, lambda: True)
        self._lanes.nudge()
        self._meters.count()
        for source in self.sources:
            if source.is_open and not source.is_connected:
                self._held.watch_redeliveries(source, now)
        if self._journal.careful and now - started > _CAREFUL_SECONDS:
            self._journal.careful = False
        self._watch_calls(now)

    def _watch_calls(self, now: float) -> None:
        """Receive in another thread while a call holds one up, and record calls that take long.

        The app ends if one does not end.
        """
        limit = self._settings.handler_timeout_seconds
        for slot in self._lanes.slots():
            unit, began = slot.item, slot.began
            if unit is None or not began or now - began < HOLDUP_SECONDS:
                continue
            if slot.item is not unit or slot.began != began:
                continue  # It continued in the meantime.
            source = self._lanes.detach(slot)
            if isinstance(source, Source):
                self._start(source, is_open=True)
            if now - began < _LONG_CALL_SECONDS:
                continue
            if not self._whole:
                self._journal.begin(slot.thread, _head_of(unit).identity)
                if slot.began != began:
                    self._journal.end(slot.thread)
                    continue
            if limit and now - began > limit:
                giving_up = threading.Thread(
                    target=self._give_up, args=(unit, slot.thread, now - began), daemon=True
                )
                self._giving_up.append(giving_up)
                giving_up.start()
                self._end(f"the handler has not ended for {now - began:.0f} s")

    def _give_up(self, unit: Any, thread: int, seconds: float) -> None:
        """Finish the messages of a call that does not return; only a restart ends the call.

        A broker that does not respond may delay the copies, and must not delay the restart.
        """
        for message in unit if self._whole else (unit,):
            waits = self._processor.time_out(message, seconds)
            if waits and self._settings.retry_strategy is Strategy.RETRY_TOPIC:
                # No copy could be stored. A restart forgets it, and the journal does not.
                self._journal.begin(thread, message.identity)
            else:
                self._journal.end(thread)

    def _finish(self) -> None:
        """Wait for what is under way, no longer than the drain may take, and close."""

        def left() -> float:
            return max(0.0, self._deadline - time.monotonic())

        def join() -> None:
            for pump in self._pumps.values():
                pump.join(min(5.0, left()))

        if not self._lanes.stopped:
            join()
        # Threads of topics handle messages themselves while that is quick.
        if not self._lanes.wait_idle(left()):
            log.error("Handlers did not end in time; their messages go back to the broker")
        self._lanes.stop()
        join()
        for thread in self._giving_up:
            thread.join(max(_COPY_SECONDS, left()))
        self._journal.close()
        # First: a copy of a message that goes back to the broker would be a duplicate.
        self._connection.stop()
        for source in self.sources:
            source.close("the app is stopping")
        self._connection.close()

    # Threads of lanes.

    def _fail(self, err: BaseException) -> None:
        if isinstance(err, Fatal):
            log.error("Exiting", reason=str(err))
            self._end(str(err))
        else:
            log.error(_UNEXPECTED, exc_info=err)
            self._end(f"{type(err).__name__}: {err}")

    def _group_of(self, unit: Any) -> str:
        """Return what keeps its order: the messages of a key, or of a partition."""
        message = _head_of(unit)
        if message.source.is_retry:
            return ""
        if self._settings.orders_by_key and not self._whole:
            key = message.ordering_key or message.key
            if key:
                return str(key)
        return str(message.raw.topic_name())

    def _park(self, unit: Any) -> None:
        for message in unit if self._whole else (unit,):
            self._held.keep(message)

    def _pending(self) -> list[Received]:
        units = self._lanes.pending()
        return [message for unit in units for message in unit] if self._whole else units

    def _end(self, failure: str) -> None:
        self.failure = failure
        if not self._stopping.is_set():
            self.stop(time.monotonic() + self._settings.drain_timeout_seconds)


def _head(unit: list[Received]) -> Received:
    return unit[0]


def _head_of(unit: Any) -> Received:
    return unit if isinstance(unit, Received) else _head(unit)
