"""What the app measures, bound to one registry: cheap enough for each message."""

from __future__ import annotations

import threading
import time

from libs.common.metrics import Metrics
from operators.pulsarconsumer.app import metrics as specs


class Meters:
    """Count messages and time handlers."""

    def __init__(self, metrics: Metrics) -> None:
        """Begin the counters at 0.

        Args:
            metrics: Where METRICS are declared.
        """
        received = metrics.counter(specs.RECEIVED)
        handled = metrics.counter(specs.HANDLED)
        errors = metrics.counter(specs.BROKER_ERRORS)
        self.received = {name: received.labels(name) for name in ("topic", "retry")}
        self.handled = {name: handled.labels(name) for name in specs.RESULTS}
        self.errors = {name: errors.labels(name) for name in specs.OPERATIONS}
        self._seconds = metrics.histogram(specs.HANDLE_TIME)
        self._age = metrics.histogram(specs.MESSAGE_AGE)
        self._running: dict[int, float] = {}
        metrics.gauge(specs.IN_FLIGHT).set_function(lambda: len(self._running))
        self.connected = metrics.gauge(specs.CONNECTED)
        self.waiting = metrics.gauge(specs.WAITING)

    def observe_receipt(self, source: str, publish_time: int) -> None:
        """Count a message and its age; publish_time is in milliseconds since 1970."""
        self.received[source].inc()
        self._age.observe(max(0.0, time.time() - publish_time / 1000))

    def begin(self) -> None:
        """Note that this thread calls the handler."""
        self._running[threading.get_ident()] = time.monotonic()

    def end(self) -> None:
        """Note that the call has ended."""
        self._seconds.observe(time.monotonic() - self._running.pop(threading.get_ident()))

    def longest_call(self) -> float:
        """Return the seconds that the oldest call of the handler has been under way; 0 for none."""
        started = min(self._running.copy().values(), default=None)
        return 0.0 if started is None else time.monotonic() - started
