"""Measurements of the app."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.metrics import Metrics
from operators.pulsarconsumer.app import metrics as specs


class Meters:
    """The counters of messages and the durations of handlers; thread-safe."""

    def __init__(self, metrics: Metrics) -> None:
        """Start the counters at 0."""
        received = metrics.counter(specs.RECEIVED)
        handled = metrics.counter(specs.HANDLED)
        errors = metrics.counter(specs.BROKER_ERRORS)
        self._received = {source: received.labels(source) for source in specs.SOURCES}
        self._handled = {result: handled.labels(result) for result in specs.RESULTS}
        self._errors = {operation: errors.labels(operation) for operation in specs.OPERATIONS}
        self._ages = metrics.histogram(specs.MESSAGE_AGE)
        self.took = metrics.histogram(specs.HANDLE_TIME).observe
        """Records the duration of a call of the handler in seconds."""
        self.in_flight = metrics.gauge(specs.IN_FLIGHT)
        self.oldest_call = metrics.gauge(specs.OLDEST_CALL)
        self.connected = metrics.gauge(specs.CONNECTED)
        self.waiting = metrics.gauge(specs.WAITING)
        self.waiting_copies = metrics.gauge(specs.WAITING_COPIES)

    def receive(self, source: str, ages: Sequence[float]) -> None:
        """Record messages of a source, by the seconds since they were published."""
        self._received[source].inc(len(ages))
        for age in ages:
            # The clocks of two machines differ, but a decreasing sum would look like a restart.
            self._ages.observe(max(0.0, age))

    def settle(self, result: str) -> None:
        """Record that the handling of a message ended with a result."""
        self._handled[result].inc()

    def fail(self, operation: str) -> None:
        """Record a failed request to the broker."""
        self._errors[operation].inc()
