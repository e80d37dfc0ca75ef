"""Receives, handles and finishes messages in threads until it is stopped.

One thread for each topic subscribes and receives messages; the threads of the lanes handle them. An
unreachable topic does not block the others. On `stop`, no further messages are started, and started
messages are finished. The others stay unacknowledged, so that the broker redelivers them to other
consumers.
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
from operators.pulsarconsumer.app.attempt_log import AttemptLog
from operators.pulsarconsumer.app.call_watch import CallWatch
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.core.headers import (
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    CopyOwner,
    find_delay,
    find_owner,
)
from operators.pulsarconsumer.app.core.rate import RateLimit
from operators.pulsarconsumer.app.held_messages import HeldMessages
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.lanes import Lanes
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.processing import Fatal, Processor
from operators.pulsarconsumer.app.received import RawMessage, Received, read_properties
from operators.pulsarconsumer.app.schemas import Payloads
from operators.pulsarconsumer.app.settings import Settings
from operators.pulsarconsumer.app.source import (
    Source,
    build_sources,
    describe,
)
from operators.pulsarconsumer.app.streams import MessageStream
from operators.pulsarconsumer.app.subscriber import Subscriber

_WATCH_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.1
_CAREFUL_SECONDS: Final = 600.0
"""Time after a crash in which each call is recorded."""
_COPIES_SECONDS: Final = 1.0
"""Minimum time for storing the last copies, and maximum time for closing their client."""
_ATTEMPTS_SECONDS: Final = 2.0
"""Maximum time for publishing the last attempts."""
_MOST_OTHERS: Final = 100
"""Maximum number of origins of foreign copies that are logged."""
_UNEXPECTED: Final = "Unhandled error, exiting"

log = structlog.get_logger("worker")


class Worker:
    """The consumer according to the settings; call `run` in a thread and `stop` from any other."""

    def __init__(
        self,
        settings: Settings,
        handler: Callable[[Any], object],
        stream: MessageStream,
        meters: Meters,
        telemetry: Telemetry,
    ) -> None:
        """Initialize; nothing is consumed before `run`.

        Args:
            settings: Settings of the app.
            handler: Called from threads with a message, or with a list for handler_batch.
            stream: Stream of the message log.
            meters: Measurements.
            telemetry: Exporter of spans.
        """
        self._settings = settings
        self._meters = meters
        self._connection = Connection(settings)
        # Some refusals of copies close the connection.
        self._publishing = Connection(settings)
        self._held = HeldMessages(settings.held_messages, settings.held_bytes)
        self._journal = Journal(settings.journal_folder)
        payloads = Payloads(settings, lambda: self._connection.client()._client)  # noqa: SLF001
        for id_, attempts in self._journal.attempts.items():
            self._held.remember(id_, attempts)
        for id_ in self._journal.copied:
            self._held.finished(id_)
        self._attempts = AttemptLog(settings, self._connection, meters)
        for id_ in self._journal.interrupted:
            self._attempts.add(id_)
        acknowledger = MessageAcknowledger(
            settings,
            meters,
            self._held,
            self._journal,
            self._publishing,
            self._attempts,
            wake=lambda: self._ticks.set(),  # noqa: PLW0108  # It is created later.
        )
        self._processor = Processor(
            settings,
            handler,
            stream,
            payloads,
            acknowledger,
            self._held,
            self._journal,
            self._attempts.table,
            meters,
            telemetry,
            publish=self._publishing.publish if settings.output_topic else None,
        )
        self._acknowledger = acknowledger
        self._whole = settings.handler_batch
        self._lanes = Lanes[Any](
            self._processor.process_list if self._whole else self._processor.process,
            settings.max_in_flight,
            self._group_of if settings.keeps_order else None,
            head=_head_of,
            park=self._park,
            fail=self._fail,
        )
        meters.slots = self._lanes.slots
        self.sources = build_sources(
            settings, self._connection, payloads, acknowledger.count_attempts
        )
        """The consumers, one per topic."""
        if self._journal.copied:
            # The previous process may have been killed before the broker got its acknowledgments,
            # so expect redeliveries.
            for source in self.sources:
                self._held.watch_redeliveries(source, time.monotonic(), crashed=True)
        rate = settings.rate_limit_per_second
        self._rate = RateLimit(rate, time.monotonic()) if rate else None
        self._rate_lock = threading.Lock()
        self._others: set[tuple[str, str]] = set()
        self._pumps: dict[Source, threading.Thread] = {}
        self._stopping = threading.Event()
        self._ticks = threading.Event()
        self._subscriber = Subscriber(self._connection, self.sources, meters, self._stopping)
        self._calls = CallWatch(
            settings,
            self._lanes,
            self._processor,
            self._journal,
            replace=lambda source: self._start(source, is_open=True),
            end=self._end,
        )
        self._deadline = 0.0
        self.failure = ""
        """Why the process must exit with an error; empty if it must not."""
        meters.connected.set_function(lambda: self.check_ready() is None)

    def run(self) -> None:
        """Consume until `stop` or a permanent failure; see `failure`."""
        self._attempts.start()
        for source in self.sources:
            self._start(source)
        try:
            started = time.monotonic()
            while not self._stopping.is_set():
                self._ticks.wait(_WATCH_SECONDS)
                self._ticks.clear()
                self._watch(started)
        except Exception as err:
            log.exception(_UNEXPECTED)
            self._end(f"{type(err).__name__}: {err}")
        self._finish()

    def stop(self, deadline: float) -> None:
        """Start no further messages; running handlers have until a monotonic time to end."""
        self._deadline = deadline
        # Without a handler, logging a message completes its handling, so all logged messages are
        # acknowledged.
        if self._settings.handler or self.failure:
            self._lanes.stop()
        self._stopping.set()
        self._ticks.set()

    @property
    def has_messages(self) -> bool:
        """Whether a consumer exists, which may hold messages, or messages are being handled."""
        return any(source.is_open for source in self.sources) or bool(self._lanes.pending())

    def check_ready(self) -> str | None:
        """Return why no messages can be received, or None if some can."""
        if self._stopping.is_set():
            return "the app is stopping"
        topics = [source for source in self.sources if not source.is_retry]
        if any(source.is_connected for source in topics):
            return None
        return "; ".join(f"{source.name}: {source.problem}" for source in topics)

    def check_alive(self) -> str | None:
        """Return why the process must be restarted, or None."""
        return self.failure or None

    # Threads of topics.

    def _start(self, source: Source, *, is_open: bool = False) -> None:
        """Start the thread of a topic, or its replacement."""
        pump = self._pumps[source] = threading.Thread(
            target=self._pump,
            args=(source,),
            kwargs={"is_open": is_open},
            name=source.name,
            daemon=True,
        )
        pump.start()

    def _pump(self, source: Source, *, is_open: bool) -> None:
        """Receive messages of a topic and submit them, until the app stops.

        This ends as well if another thread has replaced this one.
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
        """Subscribe, with retries until it succeeds or the app stops."""
        if not self._subscriber.subscribe(source):
            return False
        self._held.restart_watch(source, time.monotonic())
        self._attempts.catch_up()
        log.info("Consuming", topic=source.name, subscription=self._settings.subscription_name)
        return True

    def _receive(self, source: Source) -> bool:
        """Receive until the connection is broken or the app stops.

        Returns:
            Whether this thread must continue to receive; False if another thread has replaced it.
        """
        broken = self._stopping.is_set
        while not broken():
            now = time.monotonic()
            if source.check(now):
                log.warning("Subscribing again", topic=source.name, problem=source.problem)
                return True
            if source.redelivers_in_order and source.is_durable and self._held.must_ask(source):
                self._ask(source, now)
            if self._held.is_full(source) or self._acknowledger.is_paused(now):
                self._stopping.wait(_PAUSE_SECONDS)
                continue
            try:
                batch = source.receive()
            except pulsar.Timeout:
                if self._held.is_watching and source.is_connected:
                    now = time.monotonic()
                    self._give_up(source, self._held.note_empty(source, now))
                    for raw in self._held.pop_repetitions(source, now):
                        self._acknowledge_quietly(source, raw)
                continue
            except pulsar.PulsarException as err:
                if not broken():
                    self._meters.fail("receive")
                    log.warning("Cannot receive", topic=source.name, error=describe(err))
                return True
            if source.is_retry and not (batch := self._leave_others(source, batch)):
                continue
            if self._attempts.repeats and any(raw.redelivery_count() for raw in batch):
                self._attempts.catch_up_if_known()
            if self._held.is_watching or source.may_repeat:
                batch = self._sort_out(source, batch)
            if batch and not self._submit(source, self._accept(source, batch)):
                return False
        return True

    def _accept(self, source: Source, batch: Sequence[RawMessage]) -> list[Received]:
        """Build messages; keep copies in memory that were delivered before their delay is over."""
        taken = self._processor.accept(source, batch)
        if not source.is_retry:
            return taken
        due: list[Received] = []
        for message in taken:
            seconds = find_delay(read_properties(message.raw), message.raw.publish_timestamp())
            left = seconds - time.time()
            if left > 0:
                self._held.keep(message, time.monotonic() + left)
            else:
                due.append(message)
        return due

    def _ask(self, source: Source, now: float) -> None:
        """Ask the broker which of the messages in memory it still has."""
        if source.is_connected:
            self._held.ask(source, now)
            source.ask_again()

    def _give_up(self, source: Source, gone: list[Received]) -> None:
        """Drop messages that the broker has not redelivered."""
        if not gone:
            return
        log.warning(
            "Giving up messages that the broker does not deliver any more: they were skipped,"
            " expired or deleted, or another consumer has them",
            topic=source.name,
            messages=len(gone),
        )
        identities = {message.identity for message in gone}
        for message in gone:
            self._acknowledger.copier.drop(message.identity)
            # If the broker has it after all, it must not stay unacknowledged here.
            source.send_back(message.raw)

        def is_gone(unit: Any) -> bool:
            messages = unit if self._whole else (unit,)
            return all(message.identity in identities for message in messages)

        self._lanes.purge(is_gone)

    def _leave_others(self, source: Source, batch: Sequence[RawMessage]) -> Sequence[RawMessage]:
        """Return the copies of this consumer; leave those of consumers that share a retry topic."""
        own: list[RawMessage] = []
        for raw in batch:
            properties = read_properties(raw)
            owner = find_owner(
                properties, self._settings.subscription_name, self._settings.consumes
            )
            if owner is CopyOwner.SELF:
                own.append(raw)
                continue
            if len(self._others) < _MOST_OTHERS:
                origin = (properties.get(REAL_TOPIC, ""), properties.get(REAL_SUBSCRIPTION, ""))
                if origin not in self._others:
                    log.warning(
                        "Other consumers use the retry topic as well; set different retry topics",
                        topic=source.name,
                        other_topic=origin[0],
                        other_subscription=origin[1],
                        copies_are_of=owner.value,
                    )
                self._others.add(origin)
            if owner is CopyOwner.OTHER_TOPIC:
                source.send_back(raw)
            else:
                self._acknowledge_quietly(source, raw)
        return own

    @staticmethod
    def _acknowledge_quietly(source: Source, raw: RawMessage) -> None:
        try:
            source.acknowledge(raw)
        except pulsar.PulsarException as err:
            log.debug("Cannot acknowledge a message", topic=source.name, error=str(err))

    def _sort_out(self, source: Source, batch: Sequence[RawMessage]) -> Sequence[RawMessage]:
        """Remove redelivered messages that are being handled or have been handled."""
        if self._held.is_order(source):
            # If the cursor was moved back, dead letters are handled again as well.
            self._attempts.table.forget_dead_letters()
        new, done = self._held.sort_out(source, batch, self._pending())
        now, redelivered = time.monotonic(), len(batch) - len(new)
        self._give_up(source, self._held.note_received(source, len(batch), redelivered, now))
        for raw in done:
            self._acknowledge_quietly(source, raw)
        return new

    def _submit(self, source: Source, taken: list[Received]) -> bool:
        """Submit messages, and handle them in this thread while calls are fast.

        If the app stops or the connection must be replaced, this returns before the messages are
        accepted: busy handlers must not delay either.

        Returns:
            Whether this thread must continue to receive; False if another thread has replaced it.
        """

        def give_up() -> bool:
            return self._stopping.is_set() or source.check(time.monotonic())

        if self._rate is not None:
            for unit in [taken] if self._whole else taken:
                if not self._wait_turn(source, len(taken) if self._whole else 1):
                    return True  # The broker redelivers the others.
                self._lanes.submit([unit], give_up)
            return True
        return self._lanes.submit([taken] if self._whole else taken, give_up, lender=source)

    def _wait_turn(self, source: Source, count: int) -> bool:
        """Wait for the rate limit, or until the app stops.

        Returns:
            False if the connection must be replaced first.
        """
        assert self._rate is not None
        now = time.monotonic()
        with self._rate_lock:
            until = now + max(self._rate.reserve(now) for _ in range(count))
        # Messages in the log are handled even if the app stops.
        while (left := until - time.monotonic()) > 0 and not self._stopping.is_set():
            if source.check(time.monotonic()):
                return False
            self._stopping.wait(min(left, _PAUSE_SECONDS))
        return True

    def _close(self, source: Source) -> None:
        """Close a consumer; the broker redelivers unacknowledged messages."""
        self._held.watch_redeliveries(source, time.monotonic())
        source.close("the connection was lost")
        self._lanes.purge(lambda unit: _head_of(unit).source is source)
        self._held.forget(source)

    # The supervising thread.

    def _watch(self, started: float) -> None:
        now = time.monotonic()
        due = self._held.pop_due(now, self._is_early)
        if due:
            due = [message for message in due if not self._return(message)]
            # For handlers of lists, messages without an order are retried together.
            together = self._whole and not self._settings.keeps_order
            units: list[Any] = [due] if together else [[each] for each in due]
            # This thread must never wait for a handler.
            self._lanes.submit(units if self._whole else due, lambda: True)
        self._lanes.nudge()
        self._acknowledger.copier.check(now)
        self._meters.count()
        for source in self.sources:
            if source.is_connected:
                self._held.note_connected(source)
            elif source.is_open:
                # Not the time before the check: a message that was acknowledged in between would
                # count as acknowledged after the loss, and not be handled again.
                self._held.watch_redeliveries(source, time.monotonic())
        if self._journal.careful and now - started > _CAREFUL_SECONDS:
            self._journal.careful = False
        self._calls.check(now)

    def _is_early(self, message: Received) -> bool:
        # A thread may not have left its item yet, when its copy is stored already.
        working = [item for slot in self._lanes.slots() if (item := slot.item) is not None]
        units = working if self._whole else [working]
        in_hand = any(each is message for unit in units for each in unit)
        return in_hand or self._attempts.is_early(message)

    def _return(self, message: Received) -> bool:
        """Return a message to the broker if it must confirm the message before the next attempt.

        With type Shared, the broker delivers it to any consumer.
        """
        source = message.source
        if source.redelivers_in_order or not source.is_durable or not self._held.is_old(message):
            return False
        if not source.is_connected:
            return False
        self._held.ask(source, time.monotonic())
        self._held.give_back(message)
        source.send_back(message.raw)
        return True

    def _finish(self) -> None:
        """Wait for running handlers until the drain time-out, and close."""

        def left() -> float:
            return max(0.0, self._deadline - time.monotonic())

        def join() -> None:
            for pump in self._pumps.values():
                pump.join(min(5.0, left()))

        if not self._lanes.stopped:
            join()
        # Threads of topics may handle messages themselves, so wait for the lanes as well.
        if not self._lanes.wait_idle(left()):
            log.error("Handlers did not end in time; their messages go back to the broker")
        self._lanes.stop()
        join()
        self._calls.join(left())
        self._journal.close()
        # Stop sending first: a copy of a message that the broker redelivers would be a duplicate.
        self._acknowledger.copier.stop(max(_COPIES_SECONDS, left()))
        self._attempts.stop(_ATTEMPTS_SECONDS)
        self._connection.stop()
        self._publishing.stop()
        for source in self.sources:
            source.close("the app is stopping")
        self._connection.close()
        # Producers of a topic that stores nothing may not close in time.
        closing = threading.Thread(target=self._publishing.close, daemon=True)
        closing.start()
        closing.join(max(_COPIES_SECONDS, left()))

    # Threads of lanes.

    def _fail(self, err: BaseException) -> None:
        if isinstance(err, Fatal):
            log.error("Exiting", reason=str(err))
            self._end(str(err))
        else:
            log.error(_UNEXPECTED, exc_info=err)
            self._end(f"{type(err).__name__}: {err}")

    def _group_of(self, unit: Any) -> str:
        """Return the group whose order is kept: a key or a partition; see `Lanes`."""
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


def _head_of(unit: Any) -> Received:
    return unit if isinstance(unit, Received) else unit[0]
