"""Measurements of the app: appended to lists for each message or receipt, and counted later.

For each message, counters and histograms of the Prometheus client would cost more than its receipt,
and a lock would cost more than the append. Appending to a list needs no lock.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from libs.common.metric_specs import MetricSpec
from libs.common.metrics import Metrics
from operators.pulsarconsumer.app import metrics as specs
from operators.pulsarconsumer.app.core.slot import Slot

_SOURCES: Final = ("topic", "retry")
_COUNTED: Final = (
    (specs.RECEIVED, _SOURCES),
    (specs.HANDLED, specs.RESULTS),
    (specs.BROKER_ERRORS, specs.OPERATIONS),
)


class Meters:
    """The counters of messages and the durations of handlers; thread-safe."""

    def __init__(self, metrics: Metrics) -> None:
        """Start the counters at 0.

        Args:
            metrics: Registry with the gauges of METRICS, to which these counters are added.
        """
        self._lock = threading.Lock()
        self._counts = {spec.name: dict.fromkeys(values, 0) for spec, values in _COUNTED}
        self._ages = _Buckets(specs.MESSAGE_AGE.buckets)
        self._seconds = _Buckets(specs.HANDLE_TIME.buckets)
        # Measurements that are not counted yet.
        self._new_ages: dict[str, list[tuple[int, float, float]]] = {
            source: [] for source in _SOURCES
        }
        self._new_seconds: list[float] = []
        self._new_results: dict[str, list[None]] = {result: [] for result in specs.RESULTS}
        self._new_errors: list[str] = []
        self.took = self._new_seconds.append
        """Records the duration of a call of the handler in seconds."""
        self.settle: Mapping[str, Callable[[None], None]] = {
            result: noted.append for result, noted in self._new_results.items()
        }
        """Functions by result; each records that the handling of a message ended with it."""
        self.fail = self._new_errors.append
        """Records a failed request to the broker."""
        self.slots: Callable[[], Iterable[Slot[Any]]] = tuple
        """Returns the slots of the threads."""
        metrics.gauge(specs.IN_FLIGHT).set_function(lambda: len(self.running()))
        metrics.gauge(specs.OLDEST_CALL).set_function(self.longest_call)
        self.connected = metrics.gauge(specs.CONNECTED)
        self.waiting = metrics.gauge(specs.WAITING)
        self.waiting_copies = metrics.gauge(specs.WAITING_COPIES)
        metrics.registry.register(_Collector(self))

    def receive(self, source: str, count: int, first: float, last: float) -> None:
        """Record messages of a source that were received together.

        Args:
            source: Label of the source.
            count: Number of messages.
            first: Seconds since the first one was published.
            last: Seconds since the last one was published. The other times are assumed to be spread
                evenly, because reading the time of a message costs as much as reading its payload.
        """
        self._new_ages[source].append((count, first, last))

    def running(self) -> list[float]:
        """Return the start times of the running calls of the handler."""
        return [began for slot in self.slots() if (began := slot.began)]

    def longest_call(self) -> float:
        """Return the seconds since the start of the oldest running call of the handler, or 0."""
        started = min(self.running(), default=None)
        return 0.0 if started is None else time.monotonic() - started

    def count(self) -> None:
        """Count the recorded measurements; called often, so that the lists stay short."""
        with self._lock:
            self._count()

    def _count(self) -> None:
        received = self._counts[specs.RECEIVED.name]
        for source, noted in self._new_ages.items():
            for count, first, last in _take(noted):
                received[source] += count
                self._ages.add_between(count, first, last)
        self._seconds.add(_take(self._new_seconds))
        for result, seconds in self._new_results.items():
            self._counts[specs.HANDLED.name][result] += len(_take(seconds))
        for operation in _take(self._new_errors):
            self._counts[specs.BROKER_ERRORS.name][operation] += 1

    def collect(self) -> Iterator[Metric]:
        """Render the counts as metrics."""
        with self._lock:
            self._count()
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


def _take[T](noted: list[T]) -> list[T]:
    """Remove and return the entries of a list to which other threads append."""
    taken = noted[:]
    # The copy above and this deletion are each atomic; entries appended in between remain.
    del noted[: len(taken)]
    return taken


class _Buckets:
    """Counts of values by upper bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, values: list[float]) -> None:
        """Count values that are not negative."""
        if not values:
            return
        # Most values fall into the same bucket as the first one, so only the others are looked up.
        number = bisect_left(self._bounds, values[0])
        low = self._bounds[number - 1] if number else -1.0
        high = self._bounds[number] if number < len(self._bounds) else math.inf
        others = [value for value in values if not low < value <= high]
        self._counts[number] += len(values) - len(others)
        for value in others:
            self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += sum(values)

    def add_between(self, count: int, first: float, last: float) -> None:
        """Count values that are spread evenly from the first to the last."""
        number = bisect_left(self._bounds, first)
        if number == bisect_left(self._bounds, last):
            self._counts[number] += count
        else:
            step = (last - first) / (count - 1)
            for at in range(count):
                self._counts[bisect_left(self._bounds, first + at * step)] += 1
        # The clocks of two machines differ, so values can be negative; but a decreasing sum would
        # look like a restart.
        self._sum += count * max(0.0, (first + last) / 2)

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
    """A Prometheus collector of the counts."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def collect(self) -> Iterable[Metric]:
        return self._meters.collect()
