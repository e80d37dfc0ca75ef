"""What the app measures: counted in plain numbers for each message, rendered at each scrape.

Counters and histograms of the Prometheus client cost more for each message than its receipt does.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from libs.common.metric_specs import MetricSpec
from libs.common.metrics import Metrics
from operators.pulsarconsumer.app import metrics as specs

_COUNTED: Final = (
    (specs.RECEIVED, ("topic", "retry")),
    (specs.HANDLED, specs.RESULTS),
    (specs.BROKER_ERRORS, specs.OPERATIONS),
)


class Meters:
    """Count messages and time handlers; threads may share it."""

    def __init__(self, metrics: Metrics) -> None:
        """Begin the counters at 0.

        Args:
            metrics: Where the gauges of METRICS are declared; what is counted here is added.
        """
        self._lock = threading.Lock()
        self._counts = {spec.name: dict.fromkeys(values, 0) for spec, values in _COUNTED}
        self._received = self._counts[specs.RECEIVED.name]
        self._handled = self._counts[specs.HANDLED.name]
        self._errors = self._counts[specs.BROKER_ERRORS.name]
        self._ages = _Buckets(specs.MESSAGE_AGE.buckets)
        self._seconds = _Buckets(specs.HANDLE_TIME.buckets)
        self._running: dict[int, float] = {}
        metrics.gauge(specs.IN_FLIGHT).set_function(lambda: len(self._running))
        self.connected = metrics.gauge(specs.CONNECTED)
        self.waiting = metrics.gauge(specs.WAITING)
        metrics.registry.register(_Collector(self))

    def receive(self, source: str, publish_time: int) -> None:
        """Count a message and its age; publish_time is in milliseconds since 1970."""
        age = time.time() - publish_time / 1000
        with self._lock:
            self._received[source] += 1
            self._ages.add(max(0.0, age))

    def settle(self, result: str) -> None:
        """Count a message by what became of it."""
        with self._lock:
            self._handled[result] += 1

    def fail(self, operation: str) -> None:
        """Count a request to the broker that failed."""
        with self._lock:
            self._errors[operation] += 1

    def begin(self) -> None:
        """Note that this thread calls the handler."""
        self._running[threading.get_ident()] = time.monotonic()

    def end(self) -> None:
        """Note that the call has ended."""
        seconds = time.monotonic() - self._running.pop(threading.get_ident())
        with self._lock:
            self._seconds.add(seconds)

    def longest_call(self) -> float:
        """Return the seconds that the oldest call of the handler has been under way; 0 for none."""
        started = min(self._running.copy().values(), default=None)
        return 0.0 if started is None else time.monotonic() - started

    def collect(self) -> Iterator[Metric]:
        """Render what was counted."""
        with self._lock:
            families: list[Metric] = []
            for spec, _ in _COUNTED:
                counter = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
                for value, count in self._counts[spec.name].items():
                    counter.add_metric([value], count)
                families.append(counter)
            for spec, buckets in (
                (specs.MESSAGE_AGE, self._ages),
                (specs.HANDLE_TIME, self._seconds),
            ):
                families.append(buckets.render(spec))
        yield from families


class _Buckets:
    """Count values by upper bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def render(self, spec: MetricSpec) -> HistogramMetricFamily:
        family = HistogramMetricFamily(spec.name, spec.help)
        total = 0
        cumulative: list[tuple[str, float]] = []
        for bound, count in zip([*self._bounds, None], self._counts, strict=True):
            total += count
            cumulative.append(("+Inf" if bound is None else repr(bound), total))
        family.add_metric([], buckets=cumulative, sum_value=self._sum)
        return family


class _Collector:
    """Show Prometheus what was counted."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def collect(self) -> Iterable[Metric]:
        return self._meters.collect()
