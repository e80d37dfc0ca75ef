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
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pulsar
import structlog

from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.core.states import State
from operators.pulsarconsumer.app.received import Copy, Received
from operators.pulsarconsumer.app.source import describe

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""Maximum time until another copy is sent to a topic that refused one."""
_SEND_SECONDS: Final = 6.0
"""Time after which a request is aborted; more than the time-out of the client."""
_MOST_THREADS: Final = 16
_DELAY_SECONDS: Final = 600.0
"""Time for which a topic that refused a delay receives copies without delay."""

log = structlog.get_logger("copier")


@dataclass(slots=True, eq=False)
class _Circuit:
    """The state of a topic: closed (pause 0), or open until a time, when one copy is sent."""

    waiting: deque[tuple[Received, Copy]] = field(default_factory=deque)
    began: dict[Received, float] = field(default_factory=dict)
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
        stored: Called after the broker has stored the copy of a message.
        failed: Called with the operation of each copy that may not be stored.
        monotonic: Returns seconds of a monotonic clock.
    """

    def __init__(
        self,
        connection: Connection,
        threads: int,
        stored: Callable[[Received, Copy], None],
        failed: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize; threads start with the first copy."""
        self._connection, self._stored, self._failed = connection, stored, failed
        self._threads = min(threads, _MOST_THREADS)
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._circuits: dict[str, _Circuit] = {}
        self._is_stopped = False
        self.threads: list[threading.Thread] = []
        """Threads that end after `stop`."""

    def send(self, message: Received, copy: Copy) -> bool:
        """Send the copy of a message as soon as its topic accepts it, while it is not given up.

        Returns:
            False if the app is stopping.
        """
        with self._changed:
            if self._is_stopped:
                return False
            circuit = self._circuits.setdefault(copy.topic, _Circuit())
            circuit.waiting.append((message, copy))
            if circuit.threads < min(self._threads, len(circuit.waiting) + len(circuit.began)):
                circuit.threads += 1
                name = f"copies-{copy.operation}"
                thread = threading.Thread(target=self._run, args=(circuit,), name=name, daemon=True)
                self.threads.append(thread)
                thread.start()
            self._changed.notify_all()
        return True

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
            circuits = self._circuits.values()
            self._changed.wait_for(
                lambda: all(each.pause or not (each.waiting or each.began) for each in circuits),
                seconds,
            )
            self._is_stopped = True
            self._changed.notify_all()

    def _run(self, circuit: _Circuit) -> None:
        while True:
            with self._changed:
                taken = self._take(circuit)
                if taken is None:
                    return
            message, copy = taken
            error: Exception | None = None
            try:
                self._store(circuit, message, copy)
            except Exception as err:  # noqa: BLE001  # Otherwise, no further copy would be sent.
                error = err
            self._settle(circuit, message, copy, error)

    def _take(self, circuit: _Circuit) -> tuple[Received, Copy] | None:
        """Return the next copy when the topic may be tried; None if the app stops."""
        while not self._is_stopped:
            left = circuit.closed_at - self._monotonic()
            is_probing = circuit.pause > 0 and bool(circuit.began)
            if circuit.waiting and left <= 0 and not is_probing:
                message, copy = circuit.waiting.popleft()
                if message.state is not State.COPIED:
                    continue
                circuit.began[message] = self._monotonic()
                return message, copy
            self._changed.wait(left if circuit.waiting and left > 0 else None)
        return None

    def _store(self, circuit: _Circuit, message: Received, copy: Copy) -> None:
        delay = copy.delay
        if delay and self._monotonic() < circuit.without_delay_until:
            delay = 0.0
        try:
            self._connection.send_copy(copy.topic, message.raw, copy.properties, delay)
        except (pulsar.Timeout, pulsar.AlreadyClosed):
            if not delay or self._is_stopped:
                raise
            # Brokers can limit delays (maxDeliveryDelayInMillis). The client then sends the copy
            # again and again, until `check` closes the producer.
            circuit.began[message] = self._monotonic()
            # The consumer of the copy keeps it until it is due.
            self._connection.send_copy(copy.topic, message.raw, copy.properties)
            circuit.without_delay_until = self._monotonic() + _DELAY_SECONDS
            log.warning(
                "Delay refused, so consumers keep copies in memory until they are due",
                topic=copy.topic,
                delay_seconds=round(copy.delay, 3),
            )

    def _settle(
        self, circuit: _Circuit, message: Received, copy: Copy, error: Exception | None
    ) -> None:
        if error is None:
            self._stored(message, copy)
        elif not self._is_stopped:
            self._failed(copy.operation)
        with self._changed:
            circuit.began.pop(message, None)
            if error is None:
                if circuit.pause:
                    log.info("Copies are stored again", topic=copy.topic)
                circuit.pause = circuit.closed_at = 0.0
            else:
                # At the end, so that one message that is too large stops no others for long.
                circuit.waiting.append((message, copy))
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
