"""Sends copies to the retry topic and the dead-letter topic, outside of the threads of handlers.

A topic that is full, forbidden, fenced or has another schema refuses copies, and the client reports
some refusals only after its time-out. So copies have a client and threads of their own, and
consumption continues. After a failure, the copies of a topic wait, and a single one is sent from
time to time until it is stored.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pulsar
import structlog

from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.source import SUBSCRIBE_ERRORS, describe

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""Maximum time until another copy is sent to a topic that refused one."""
_SEND_SECONDS: Final = 6.0
"""Time after which a request is aborted; more than the time-out of the client."""
_MOST_THREADS: Final = 16
_DELAY_SECONDS: Final = 600.0
"""Time for which a topic that refused a delay receives copies without delay."""

log = structlog.get_logger("copier")


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that replaces a message.

    Attributes:
        message: The message; it stays in memory, unacknowledged, until the copy is stored.
        topic: The retry topic or the dead-letter topic.
        properties: Properties of the copy.
        operation: `retry` or `dead_letter`, for metrics.
        result: Result of the handling of the message, for metrics.
        delay: Seconds until the broker delivers the copy.
    """

    message: Received
    topic: str
    properties: Mapping[str, str]
    operation: str
    result: str
    delay: float = 0


@dataclass(slots=True)
class _Circuit:
    """The state of a topic: closed (pause 0), or open until a time, when one copy is sent."""

    waiting: deque[Copy] = field(default_factory=deque)
    began: dict[str, float] = field(default_factory=dict)
    threads: int = 0
    aborted_at: float = 0.0
    pause: float = 0.0
    closed_at: float = 0.0
    without_delay_until: float = 0.0


class Copier:
    """The threads that send copies; thread-safe.

    Args:
        connection: Client for copies only: some refusals close its connection.
        threads: Maximum number of copies that are sent to a topic at a time.
        stored: Called after the broker has stored a copy.
        failed: Called with the operation of each copy that may not be stored.
        monotonic: Returns seconds of a monotonic clock.
    """

    def __init__(
        self,
        connection: Connection,
        threads: int,
        stored: Callable[[Copy], None],
        failed: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize; threads start with the first copy."""
        self._connection, self._stored, self._failed = connection, stored, failed
        self._threads = min(threads, _MOST_THREADS)
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._circuits: dict[str, _Circuit] = {}
        self._pending: dict[str, Copy] = {}
        self._is_stopped = False

    def __len__(self) -> int:
        """Return how many copies are not stored yet."""
        return len(self._pending)

    def send(self, copy: Copy) -> bool:
        """Send a copy as soon as its topic accepts it; return False if the app is stopping.

        If a copy of the message waits already, because the message was redelivered, the later
        delivery is the one to acknowledge.
        """
        identity = copy.message.identity
        with self._changed:
            if self._is_stopped:
                return False
            is_waiting = identity in self._pending
            self._pending[identity] = copy
            if is_waiting:
                return True
            circuit = self._circuits.setdefault(copy.topic, _Circuit())
            circuit.waiting.append(copy)
            if circuit.threads < min(self._threads, len(circuit.waiting) + len(circuit.began)):
                circuit.threads += 1
                name = f"copies-{copy.operation}"
                threading.Thread(target=self._run, args=(circuit,), name=name, daemon=True).start()
            self._changed.notify_all()
        return True

    def drop(self, identity: str) -> None:
        """Do not send the copy of a message that the broker no longer has."""
        with self._changed:
            self._pending.pop(identity, None)

    def wait_stored(self, identity: str, seconds: float) -> bool:
        """Wait until the copy of a message is stored, and return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: identity not in self._pending, seconds)

    def check(self, now: float) -> None:
        """Abort requests that take too long; called often."""
        for topic, circuit in list(self._circuits.items()):
            oldest = min(list(circuit.began.values()), default=now)
            if now - max(oldest, circuit.aborted_at) > _SEND_SECONDS:
                circuit.aborted_at = now
                close = partial(self._connection.close_producer, topic)
                threading.Thread(target=close, name="copies-abort", daemon=True).start()

    def stop(self, seconds: float) -> None:
        """Wait for copies that can be stored, at most for some time, and send no more."""
        with self._changed:
            self._changed.wait_for(self._has_no_chance, seconds)
            self._is_stopped = True
            self._changed.notify_all()

    def _has_no_chance(self) -> bool:
        return all(
            circuit.pause or not (circuit.waiting or circuit.began)
            for circuit in self._circuits.values()
        )

    def _run(self, circuit: _Circuit) -> None:
        while True:
            with self._changed:
                copy = self._take(circuit)
                if copy is None:
                    return
            error: Exception | None = None
            try:
                self._store(circuit, copy)
            except SUBSCRIBE_ERRORS as err:
                error = err
            self._settle(circuit, copy, error)

    def _take(self, circuit: _Circuit) -> Copy | None:
        """Return the next copy when the topic may be tried; None if the app stops."""
        while not self._is_stopped:
            left = circuit.closed_at - self._monotonic()
            is_probing = circuit.pause > 0 and bool(circuit.began)
            if circuit.waiting and left <= 0 and not is_probing:
                identity = circuit.waiting.popleft().message.identity
                if identity not in self._pending:
                    continue
                circuit.began[identity] = self._monotonic()
                return self._pending[identity]
            self._changed.wait(left if circuit.waiting and left > 0 else None)
        return None

    def _store(self, circuit: _Circuit, copy: Copy) -> None:
        delay = copy.delay
        if delay and self._monotonic() < circuit.without_delay_until:
            delay = 0.0
        try:
            self._connection.send_copy(copy.topic, copy.message.raw, copy.properties, delay)
        except (pulsar.Timeout, pulsar.AlreadyClosed):
            if not delay or self._is_stopped:
                raise
            # Brokers can limit delays (maxDeliveryDelayInMillis). The client then sends the copy
            # again and again, until `check` closes the producer.
            circuit.began[copy.message.identity] = self._monotonic()
            # The consumer of the copy keeps it until it is due.
            self._connection.send_copy(copy.topic, copy.message.raw, copy.properties)
            circuit.without_delay_until = self._monotonic() + _DELAY_SECONDS
            log.warning(
                "Delay refused, so consumers keep copies in memory until they are due",
                topic=copy.topic,
                delay_seconds=round(copy.delay, 3),
            )

    def _settle(self, circuit: _Circuit, copy: Copy, error: Exception | None) -> None:
        current = self._pending.get(copy.message.identity)
        if error is None and current is not None:
            # Before others see that nothing is pending: a message is acknowledged then.
            self._stored(current)
        elif error is not None and not self._is_stopped:
            self._failed(copy.operation)
        with self._changed:
            circuit.began.pop(copy.message.identity, None)
            if error is None:
                self._pending.pop(copy.message.identity, None)
                if circuit.pause:
                    log.info("Copies are stored again", topic=copy.topic)
                circuit.pause = circuit.closed_at = 0.0
            else:
                # At the end, so that one message that is too large stops no others for long.
                circuit.waiting.append(copy)
                now = self._monotonic()
                if now >= circuit.closed_at:
                    pause = min(2 * circuit.pause or _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
                    circuit.pause, circuit.closed_at = pause, now + pause
                log.error(
                    "Messages kept unacknowledged: no copy could be stored",
                    topic=copy.topic,
                    error=describe(error),
                    messages=len(circuit.waiting),
                    retry_seconds=circuit.pause,
                )
            self._changed.notify_all()
