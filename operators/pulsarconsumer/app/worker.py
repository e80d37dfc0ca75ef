"""Receives, has handled and settles messages, in threads, until it is told to stop.

A thread for each consumer receives; lanes handle. On `stop` nothing more is begun, what is begun is
finished, and the rest is unacknowledged, so that the broker gives it to others. A session that is
broken for long, or whose credentials no longer hold, is replaced as a whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import pulsar
import structlog

from libs.common.telemetry import Telemetry
from operators.pulsarconsumer.app.client import CredentialsMissing
from operators.pulsarconsumer.app.core.rate import RateLimit
from operators.pulsarconsumer.app.intake import Intake
from operators.pulsarconsumer.app.lanes import build_lanes
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.processing import Fatal, Processor
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.session import Session, Source
from operators.pulsarconsumer.app.settings import Settings, SubscriptionType
from operators.pulsarconsumer.app.settle import Settler
from operators.pulsarconsumer.app.streams import MessageStream

_WATCH_SECONDS: Final = 0.2
_BROKEN_SECONDS: Final = 30.0
"""A session that is not connected for so long is replaced; the client retries by itself before."""
_FIRST_RETRY_SECONDS: Final = 0.5
_LAST_RETRY_SECONDS: Final = 15.0
_UNEXPECTED: Final = "Ending on an error that nobody expected"

type Unit = Received | Sequence[Received]
"""What is handled by one call: a message, or the list that a handler of lists is given."""

log = structlog.get_logger("worker")


class Worker:
    """Consume as the settings say; `run` in a thread, `stop` from any other."""

    def __init__(
        self,
        settings: Settings,
        handler: Callable[[object], object],
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
        self._settler = Settler(settings, meters)
        processor = Processor(settings, handler, stream, self._settler, meters, telemetry)
        self._accept = processor.accept
        self._handle: Callable[[Any], None] = (
            processor.process_list if settings.handler_batch else processor.process
        )
        ordered = settings.subscription_type is not SubscriptionType.SHARED
        self._lanes = build_lanes(self._process, settings.max_in_flight, ordered=ordered)
        self._keyed = ordered and settings.max_in_flight > 1
        rate = settings.rate_limit_per_second
        self._rate = RateLimit(rate, time.monotonic()) if rate else None
        self._rate_lock = threading.Lock()
        self._stopping = threading.Event()
        self._deadline = 0.0
        self._session: Session | None = None
        self._waiting_for = "the first subscription"
        self.failure = ""
        """Why the process has to end with an error; empty while it has not."""
        meters.connected.set_function(lambda: self.check_ready() is None)

    def run(self) -> None:
        """Consume until `stop`, or until something fails for good: see `failure`."""
        try:
            while not self._stopping.is_set():
                session = self._open()
                if session is not None:
                    self._serve(session)
        except Exception as err:
            log.exception(_UNEXPECTED)
            self.failure = f"{type(err).__name__}: {err}"

    def stop(self, deadline: float) -> None:
        """Begin nothing more; what is begun has until a time of the monotonic clock to end."""
        self._deadline = deadline
        self._stopping.set()

    @property
    def is_connected(self) -> bool:
        """Whether there is a session, which may hold messages."""
        return self._session is not None

    def check_ready(self) -> str | None:
        """Say why messages cannot be received, or nothing when they can."""
        if self._stopping.is_set():
            return "the app is stopping"
        session = self._session
        if session is None:
            return f"not subscribed: {self._waiting_for}"
        return None if session.is_connected() else "the broker is not connected"

    def check_alive(self) -> str | None:
        """Say why the process has to be restarted, or nothing when it has not."""
        limit = self._settings.handler_timeout_seconds
        longest = self._meters.longest_call()
        if limit and longest > limit:
            return f"the handler has not ended for {longest:.0f} s"
        return self.failure or None

    def _open(self) -> Session | None:
        """Subscribe, again and again until it succeeds or the app stops."""
        delay = _FIRST_RETRY_SECONDS
        while not self._stopping.is_set():
            session: Session | None = None
            try:
                session = Session(self._settings)
                session.open()
            except (pulsar.PulsarException, CredentialsMissing) as err:
                self._meters.fail("subscribe")
                self._waiting_for = _describe(err)
                log.warning("Failing to subscribe", error=self._waiting_for, retry_seconds=delay)
                if session:
                    session.close()
                self._stopping.wait(delay)
                delay = min(2 * delay, _LAST_RETRY_SECONDS)
                continue
            log.info(
                "Consuming",
                topics=list(self._settings.all_topics) or self._settings.topic_pattern,
                subscription=self._settings.subscription_name,
            )
            return session
        return None

    def _serve(self, session: Session) -> None:
        self._session = session
        pumps = [
            threading.Thread(target=self._pump, args=(source,), name=source.name, daemon=True)
            for source in session.sources
        ]
        for pump in pumps:
            pump.start()
        connected = time.monotonic()
        while not self._stopping.wait(_WATCH_SECONDS) and not session.broken.is_set():
            self._settler.release_due()
            self._meters.count()
            if session.is_connected():
                connected = time.monotonic()
            elif time.monotonic() - connected > _BROKEN_SECONDS:
                log.warning("Replacing a connection that is lost", seconds=_BROKEN_SECONDS)
                session.broken.set()
        self._finish(pumps)
        self._session = None
        self._waiting_for = "the connection was lost"
        session.close()

    def _finish(self, pumps: Sequence[threading.Thread]) -> None:
        """Wait for what is under way, no longer than the drain may take."""

        def left() -> float:
            # A broken session has no deadline of its own, until the app stops.
            return max(0.0, self._deadline - time.monotonic()) if self._stopping.is_set() else 1.0

        def wait(done: Callable[[float], bool]) -> bool:
            while not done(min(1.0, left())):
                if self._stopping.is_set() and not left():
                    return False
            return True

        def joined(pump: threading.Thread, seconds: float) -> bool:
            pump.join(seconds)
            return not pump.is_alive()

        finished = all(wait(partial(joined, pump)) for pump in pumps)
        if not (finished and wait(self._lanes.wait_idle)):
            log.error("Leaving messages to the broker whose handling has not ended in time")

    def _pump(self, source: Source) -> None:
        """Receive, and have handled, until the session ends."""
        broken, stopping = source.session.broken, self._stopping
        intake = Intake(source.consumer, self._settings)
        whole = self._settings.handler_batch
        try:
            while not (stopping.is_set() or broken.is_set()):
                batch = self._accept(source, self._receive(source, intake))
                units: Sequence[Unit] = (batch,) if whole and batch else batch
                for unit in units:
                    if self._rate is not None:
                        self._wait_turn(self._rate, len(batch) if whole else 1)
                    if stopping.is_set():
                        return
                    key = _key_of(unit) or source.name if self._keyed else ""
                    self._lanes.submit(unit, key)
        except Exception as err:
            log.exception(_UNEXPECTED)
            self._end(source, f"{type(err).__name__}: {err}")

    def _receive(self, source: Source, intake: Intake) -> Sequence[pulsar.Message]:
        """Return what came; nothing, too, where the connection is broken."""
        try:
            return intake.receive()
        except pulsar.Timeout:
            return ()
        except pulsar.PulsarException as err:
            if not self._stopping.is_set():
                self._meters.fail("receive")
                log.warning("Failing to receive", source=source.name, error=str(err))
                source.session.broken.set()
            return ()

    def _wait_turn(self, rate: RateLimit, count: int) -> None:
        """Wait as the rate limit asks, or until the app stops."""
        with self._rate_lock:
            seconds = max(rate.reserve(time.monotonic()) for _ in range(count))
        if seconds:
            self._stopping.wait(seconds)

    def _process(self, unit: Unit) -> None:
        try:
            self._handle(unit)
        except Fatal as err:
            log.error("Ending", reason=str(err))
            self._end(_first_of(unit).source, str(err))
        except Exception as err:
            log.exception(_UNEXPECTED)
            self._end(_first_of(unit).source, f"{type(err).__name__}: {err}")

    def _end(self, source: Source, failure: str) -> None:
        self.failure = failure
        source.session.broken.set()
        self._stopping.set()


def _first_of(unit: Unit) -> Received:
    return unit if isinstance(unit, Received) else unit[0]


def _key_of(unit: Unit) -> str:
    message = _first_of(unit)
    return message.ordering_key or message.key


def _describe(err: Exception) -> str:
    text = f"{type(err).__name__}: {err}"
    if isinstance(err, pulsar.Timeout):
        # The client tries again until its time is over, and then no longer knows what it was.
        return f"{text}; the broker cannot be reached, or does not take the credentials"
    return text
