"""What the app measures: noted in lists, for each message or each receipt, and counted later.

Counters and histograms of the Prometheus client cost more for each message than its receipt does,
and a lock for each costs more than the note. To append to a list needs none.
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
        """Begin the counters at 0.

        Args:
            metrics: Where the gauges of METRICS are declared; what is counted here is added.
        """
        self._lock = threading.Lock()
        self._counts = {spec.name: dict.fromkeys(values, 0) for spec, values in _COUNTED}
        self._ages = _Buckets(specs.MESSAGE_AGE.buckets)
        self._seconds = _Buckets(specs.HANDLE_TIME.buckets)
        # What was noted, and is not counted yet.
        self._new_ages: dict[str, list[tuple[int, float, float]]] = {
            source: [] for source in _SOURCES
        }
        self._new_seconds: list[float] = []
        self._new_results: dict[str, list[None]] = {result: [] for result in specs.RESULTS}
        self._new_errors: list[str] = []
        self.took = self._new_seconds.append
        """Notes the seconds that a call of the handler took."""
        self.settle: Mapping[str, Callable[[None], None]] = {
            result: noted.append for result, noted in self._new_results.items()
        }
        """By result, what notes that a message ended with it."""
        self.fail = self._new_errors.append
        """Notes a request to the broker that failed."""
        self.slots: Callable[[], Iterable[Slot[Any]]] = tuple
        """Returns what threads work on."""
        metrics.gauge(specs.IN_FLIGHT).set_function(lambda: len(self.running()))
        metrics.gauge(specs.OLDEST_CALL).set_function(self.longest_call)
        self.connected = metrics.gauge(specs.CONNECTED)
        self.waiting = metrics.gauge(specs.WAITING)
        metrics.registry.register(_Collector(self))

    def receive(self, source: str, count: int, first: float, last: float) -> None:
        """Note messages of a source that came together.

        Args:
            source: Where they came from.
            count: How many came.
            first: Seconds since the first was published.
            last: Seconds since the last was published. The others are taken to be spread evenly
                between the two: to read the time of each costs as much as to read its payload.
        """
        self._new_ages[source].append((count, first, last))

    def running(self) -> list[float]:
        """Return when the calls of the handler began that are under way."""
        return [began for slot in self.slots() if (began := slot.began)]

    def longest_call(self) -> float:
        """Return the seconds that the oldest call of the handler has been under way; 0 for none."""
        started = min(self.running(), default=None)
        return 0.0 if started is None else time.monotonic() - started

    def count(self) -> None:
        """Count what was noted; called often enough for the lists to stay short."""
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
        """Render what was counted."""
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
    """Take what was noted so far out of a list to which other threads append."""
    taken = noted[:]
    # Each of the two is one step of the interpreter; what came in between stays.
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
        # Most calls are as quick as the first, so only the others are looked up.
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
        # Clocks of two machines differ, and a sum that falls would look like a restart.
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
