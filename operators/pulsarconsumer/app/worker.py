"""Receives, handles and finishes messages in threads until it is stopped.

docs/explanation/consumer-states.md says why each thread exists.

All messages are in one `Memory`, which alone changes their states. On `stop`, no further messages
are started, and started messages are finished. The others stay unacknowledged, so that the broker
redelivers them to other consumers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
    Origin,
    find_delay,
    find_owner,
    parse_origin,
)
from operators.pulsarconsumer.app.core.rate import RateLimit
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.memory import Memory, Unit
from operators.pulsarconsumer.app.message_log import MessageLog
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.pool import HandlerThreads
from operators.pulsarconsumer.app.processing import Fatal, Processor
from operators.pulsarconsumer.app.received import RawMessage, Received, read_properties, read_text
from operators.pulsarconsumer.app.schemas import Payloads
from operators.pulsarconsumer.app.settings import Settings
from operators.pulsarconsumer.app.source import Source, build_sources, describe
from operators.pulsarconsumer.app.streams import MessageStream
from operators.pulsarconsumer.app.subscriber import Subscriber

_WATCH_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.1
_CAREFUL_SECONDS: Final = 600.0
"""Time after a crash in which each call is recorded."""
_COPIES_SECONDS: Final = 1.0
"""Minimum time for storing the last copies, and for closing their client."""
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

        The handler is called from threads with a message, or with a list for handler_batch.
        """
        self._settings = settings
        self._meters = meters
        self._connection = Connection(settings)
        # Some refusals of copies close the connection.
        self._publishing = Connection(settings)
        self._memory = Memory(settings.held_messages, settings.held_bytes)
        self._journal = Journal(settings.journal_folder)
        payloads = Payloads(settings)
        self._log = MessageLog(settings, payloads, stream)
        for id_, attempts in self._journal.attempts.items():
            self._memory.remember_attempts(id_, attempts)
        for id_ in self._journal.copied:
            self._memory.redeliveries.remember_finished(id_)
        self._attempts = AttemptLog(settings, self._connection, meters)
        for id_ in self._journal.interrupted:
            self._attempts.add(id_)
        self._acknowledger = MessageAcknowledger(
            settings, meters, self._memory, self._journal, self._publishing, self._attempts
        )
        processor = Processor(
            settings,
            handler,
            payloads,
            self._acknowledger,
            self._memory,
            self._journal,
            meters,
            telemetry,
            self._publishing.publish if settings.output_topic else None,
        )
        self._threads = HandlerThreads(
            self._memory, processor.process, settings.max_in_flight, self._fail
        )
        self.sources = build_sources(settings, self._connection, payloads)
        """The consumers, one per topic."""
        if self._journal.copied:
            # The previous process may have been killed before the broker got its acknowledgments,
            # so expect redeliveries.
            for source in self.sources:
                self._memory.redeliveries.watch(source, time.monotonic(), crashed=True)
        rate = settings.rate_limit_per_second
        self._rate = RateLimit(rate, time.monotonic()) if rate else None
        self._rate_lock = threading.Lock()
        self._others: set[tuple[str, str]] = set()
        self._pumps: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._subscriber = Subscriber(self._connection, self.sources, meters, self._stopping)
        self._calls = CallWatch(settings, self._threads, processor, self._journal, self._end)
        self._deadline = 0.0
        self.failure = ""
        """Why the process must exit with an error; empty if it must not."""
        meters.in_flight.set_function(lambda: len(self._threads.running()))
        meters.oldest_call.set_function(self._measure_oldest_call)
        meters.connected.set_function(lambda: self.check_ready() is None)

    def run(self) -> None:
        """Consume until `stop` or a permanent failure; see `failure`."""
        self._attempts.start()
        for source in self.sources:
            pump = threading.Thread(
                target=self._pump, args=(source,), name=source.name, daemon=True
            )
            self._pumps.append(pump)
            pump.start()
        try:
            started = time.monotonic()
            while not self._stopping.wait(_WATCH_SECONDS):
                self._watch(started)
        except Exception as err:  # noqa: BLE001  # It ends the app.
            self._fail(err)
        self._finish()

    def stop(self, deadline: float) -> None:
        """Start no further messages; running handlers have until a monotonic time to end."""
        self._deadline = deadline
        # Without a handler, logging a message completes its handling, so all logged messages are
        # acknowledged.
        if self._settings.handler or self.failure:
            self._memory.stop()
        self._stopping.set()

    @property
    def has_messages(self) -> bool:
        """Whether a consumer exists, which may hold messages, or messages are being handled."""
        return any(source.is_open for source in self.sources) or len(self._memory) > 0

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

    def _pump(self, source: Source) -> None:
        """Receive messages of a topic until the app stops."""
        try:
            while not self._stopping.is_set():
                if self._open(source):
                    self._receive(source)
                if not self._stopping.is_set():
                    self._close(source)
        except Exception as err:  # noqa: BLE001  # It ends the app.
            self._fail(err)

    def _open(self, source: Source) -> bool:
        """Subscribe, with retries until it succeeds or the app stops."""
        if not self._subscriber.subscribe(source):
            return False
        self._memory.redeliveries.restart(source, time.monotonic())
        self._attempts.catch_up()
        log.info("Consuming", topic=source.name, subscription=self._settings.subscription_name)
        return True

    def _receive(self, source: Source) -> None:
        """Receive until the connection is broken or the app stops."""
        broken = self._stopping.is_set
        while not broken():
            now = time.monotonic()
            if source.check(now):
                log.warning("Subscribing again", topic=source.name, problem=source.problem)
                return
            self._ask(source, now)
            is_full = self._memory.is_full(source)
            if is_full or self._memory.is_paused(now):
                if is_full and source.is_connected:
                    self._settle_redeliveries(source, [], self._memory.note_full(source, now))
                self._stopping.wait(_PAUSE_SECONDS)
                continue
            try:
                batch = source.receive(many=self._rate is None and self._threads.is_fast)
            except pulsar.Timeout:
                if source.is_connected:
                    repeated, gone = self._memory.note_empty(source, time.monotonic())
                    self._settle_redeliveries(source, repeated, gone)
                continue
            except pulsar.PulsarException as err:
                if not broken():
                    self._meters.fail("receive")
                    log.warning("Cannot receive", topic=source.name, error=describe(err))
                return
            if source.is_retry and not (batch := self._leave_others(source, batch)):
                continue
            if self._attempts.has_repeats and any(raw.redelivery_count() for raw in batch):
                self._attempts.catch_up()
            if self._memory.redeliveries.is_order(source):
                # If the cursor was moved back, dead letters are handled again as well.
                self._attempts.table.forget_dead_letters()
            new, repeated, gone = self._memory.sort_out(source, batch)
            self._settle_redeliveries(source, repeated, gone)
            if new:
                self._submit(source, self._accept(source, new))

    def _accept(self, source: Source, new: Mapping[str, RawMessage]) -> list[Received]:
        """Build messages and log them; keep copies that came before their delay is over."""
        now = time.time()
        ages = [now - raw.publish_timestamp() / 1000 for raw in new.values()]
        self._meters.receive(source.label, ages)
        taken = [self._build(source, raw, identity) for identity, raw in new.items()]
        self._log.write(taken, now)
        if not source.is_retry:
            return taken
        due: list[Received] = []
        for message in taken:
            raw = message.raw
            left = find_delay(read_properties(raw), raw.publish_timestamp()) - time.time()
            if left > 0:
                self._memory.delay(message, time.monotonic() + left)
            else:
                due.append(message)
        return due

    def _build(self, source: Source, raw: RawMessage, identity: str) -> Received:
        message = Received(source, raw, identity)
        if source.is_retry:
            message.attempt = parse_origin(read_properties(raw), Origin("", "")).attempt
            return message
        message.attempt = self._acknowledger.count_attempts(identity) + 1
        settings = self._settings
        if settings.keeps_order:
            key = ""
            if settings.orders_by_key and not settings.handler_batch:
                key = read_text(raw.ordering_key) or read_text(raw.partition_key)
            message.group = key or raw.topic_name()
        return message

    def _ask(self, source: Source, now: float) -> None:
        """Ask the broker which of the messages in memory it still has, if it is time."""
        if not (source.redelivers_in_order and source.is_durable):
            return
        redeliveries = self._memory.redeliveries
        if redeliveries.must_ask(source) and source.is_connected:
            redeliveries.ask(source, now)
            source.ask_again()

    def _settle_redeliveries(
        self, source: Source, repeated: Sequence[RawMessage], gone: Sequence[Received]
    ) -> None:
        """Acknowledge messages that were finished before, and return those that are given up."""
        for raw in repeated:
            self._acknowledge_quietly(source, raw)
        for message in gone:
            # If the broker has it after all, it must not stay unacknowledged here.
            source.send_back(message.raw)
        if gone:
            log.warning(
                "Giving up messages that the broker does not deliver any more: they were skipped,"
                " expired or deleted, or another consumer has them",
                topic=source.name,
                messages=len(gone),
            )

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
            origin = (properties.get(REAL_TOPIC, ""), properties.get(REAL_SUBSCRIPTION, ""))
            if origin not in self._others and len(self._others) < _MOST_OTHERS:
                self._others.add(origin)
                log.warning(
                    "Leaving copies of other consumers, or of a former topic",
                    topic=source.name,
                    other_topic=origin[0],
                    other_subscription=origin[1],
                    copies_are_of=owner.value,
                )
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

    def _submit(self, source: Source, taken: list[Received]) -> None:
        """Let messages be handled; wait while too many wait already.

        If the app stops or the connection must be replaced, this returns before the messages are
        taken: busy handlers must not delay either.
        """

        def give_up() -> bool:
            return self._stopping.is_set() or source.check(time.monotonic())

        units = [[message] for message in taken]
        if self._settings.handler_batch:
            # A list contains messages of one partition if their order matters.
            lists: dict[str, Unit] = {}
            for message in taken:
                lists.setdefault(message.group, []).append(message)
            units = list(lists.values())
        if self._rate is None:
            self._threads.submit(units, give_up)
            return
        for unit in units:
            if not self._wait_turn(source, len(unit)):
                return  # The broker redelivers the others.
            self._threads.submit([unit], give_up)

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
        self._memory.redeliveries.watch(source, time.monotonic())
        source.close("the connection was lost")
        self._memory.close(source)

    # The supervising thread.

    def _watch(self, started: float) -> None:
        now = time.monotonic()
        # For handlers of lists, messages without an order are retried together.
        together = self._settings.handler_batch and not self._settings.keeps_order
        for message in self._memory.pop_due(now, self._attempts.is_early, together=together):
            message.source.send_back(message.raw)
        self._threads.nudge()
        self._acknowledger.copier.check(now)
        for source in self.sources:
            if source.is_connected:
                self._memory.redeliveries.note_connected(source)
            elif source.is_open:
                # Not the time before the check: a message that was acknowledged in between would
                # count as acknowledged after the loss, and not be handled again.
                self._memory.redeliveries.watch(source, time.monotonic())
                source.expect_message()
        if self._journal.careful and now - started > _CAREFUL_SECONDS:
            self._journal.careful = False
        self._calls.check(now)

    def _measure_oldest_call(self) -> float:
        started = min(self._threads.running(), default=None)
        return 0.0 if started is None else time.monotonic() - started

    def _finish(self) -> None:
        """Wait for running handlers until the drain time-out, and close."""

        def left() -> float:
            return max(0.0, self._deadline - time.monotonic())

        def join() -> None:
            for pump in self._pumps:
                pump.join(min(5.0, left()))

        if not self._memory.is_stopped:
            join()
        if not self._memory.wait_idle(left()):
            log.error("Handlers did not end in time; their messages go back to the broker")
        self._memory.stop()
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
        until = time.monotonic() + max(_COPIES_SECONDS, left())
        for thread in (closing, *self._acknowledger.copier.threads, *self._attempts.threads):
            thread.join(max(0.0, until - time.monotonic()))

    def _fail(self, err: BaseException) -> None:
        if isinstance(err, Fatal):
            log.error("Exiting", reason=str(err))
            self._end(str(err))
        else:
            log.error(_UNEXPECTED, exc_info=err)
            self._end(f"{type(err).__name__}: {err}")

    def _end(self, failure: str) -> None:
        self.failure = failure
        if not self._stopping.is_set():
            self.stop(time.monotonic() + self._settings.drain_timeout_seconds)
