"""What the app measures: noted in lists for each message, counted from time to time.

Counters and histograms of the Prometheus client cost more for each message than its receipt does,
and a lock for each costs more than the note. To append to a list needs none.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        self._new_ages: dict[str, list[float]] = {source: [] for source in _SOURCES}
        self._new_seconds: list[float] = []
        self._new_results: list[str] = []
        self._new_errors: list[str] = []
        self.took = self._new_seconds.append
        """Notes the seconds that a call of the handler took."""
        self.settle = self._new_results.append
        """Notes what became of a message."""
        self.fail = self._new_errors.append
        """Notes a request to the broker that failed."""
        self.slots: Callable[[], Iterable[Slot[Any]]] = tuple
        """Returns what threads work on."""
        metrics.gauge(specs.IN_FLIGHT).set_function(lambda: len(self.running()))
        metrics.gauge(specs.OLDEST_CALL).set_function(self.longest_call)
        self.connected = metrics.gauge(specs.CONNECTED)
        self.waiting = metrics.gauge(specs.WAITING)
        metrics.registry.register(_Collector(self))

    def receive(self, source: str, ages: Iterable[float]) -> None:
        """Note messages of a source, each by the seconds since it was published."""
        self._new_ages[source].extend(ages)

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
            ages = _take(noted)
            received[source] += len(ages)
            self._ages.add(ages)
        self._seconds.add(_take(self._new_seconds))
        for spec, noted_words in (
            (specs.HANDLED, self._new_results),
            (specs.BROKER_ERRORS, self._new_errors),
        ):
            for word, number in Counter(_take(noted_words)).items():
                self._counts[spec.name][word] += number

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
        """Count values, which are sorted for it."""
        values.sort()
        below = 0
        for number, bound in enumerate(self._bounds):
            up_to = bisect_right(values, bound, below)
            self._counts[number] += up_to - below
            below = up_to
        self._counts[-1] += len(values) - below
        # Clocks of two machines differ, and a sum that falls would look like a restart.
        self._sum += sum(values[bisect_right(values, 0.0) :])

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
