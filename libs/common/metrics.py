"""Metrics under the names that controller-runtime gives them, so its dashboards and alerts work.

A process has one `Metrics` with its own registry; tests can create any number. Metrics are declared
as data (`MetricSpec`): metrics of the framework in metric_specs.py, metrics of an operator in its
`metrics.py`; the reference is generated from both. Counters whose labels are known begin at 0, so
that rates are right from the first scrape.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Final, Literal

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from libs.common import metric_specs as specs
from libs.common.metric_specs import FRAMEWORK_METRICS, MetricKind, MetricSpec

CONTENT_TYPE: Final = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
"""Media type of `Metrics.render()`."""

type Clock = Callable[[], float]
type ReconcileResult = Literal["success", "error", "requeue", "requeue_after"]
RECONCILE_RESULTS: Final[tuple[ReconcileResult, ...]] = (
    "success",
    "error",
    "requeue",
    "requeue_after",
)

# Creation times would double the number of series; client_golang does not export them either.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # not annotated there


class Metrics:
    """All metrics of one process."""

    def __init__(
        self,
        operator_metrics: Iterable[MetricSpec] = (),
        *,
        clock: Clock = time.monotonic,
        process: bool = True,
        framework: bool = True,
    ) -> None:
        """Declare the metrics.

        Args:
            operator_metrics: Metrics of the operator, from its metrics.py.
            clock: Returns seconds, for metrics that measure the time since an event.
            process: Whether to add metrics of the process and of the garbage collector.
            framework: Whether to add metrics of the framework; a process without controllers has
                none.
        """
        self.registry = CollectorRegistry()
        self.clock = clock
        self._specs = (*(FRAMEWORK_METRICS if framework else ()), *operator_metrics)
        self._families: dict[str, Counter | Gauge | Histogram] = {}
        for spec in self._specs:
            self._families[spec.name] = _build_family(spec, self.registry)
        if process:
            prometheus_client.ProcessCollector(registry=self.registry)
            prometheus_client.PlatformCollector(registry=self.registry)
            prometheus_client.GCCollector(registry=self.registry)

    def describe(self) -> list[MetricSpec]:
        """Return every declared metric by name."""
        return sorted(self._specs, key=lambda spec: spec.name)

    def render(self) -> bytes:
        """Render the metrics in Prometheus' text format, of type CONTENT_TYPE."""
        return prometheus_client.generate_latest(self.registry)

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return the current value of a sample such as `workqueue_depth`, or None."""
        return self.registry.get_sample_value(name, labels)

    def counter(self, spec: MetricSpec) -> Counter:
        """Return a declared counter.

        Raises:
            LookupError: The metric is not declared, or has another type.
        """
        return self._find(spec, Counter)

    def gauge(self, spec: MetricSpec) -> Gauge:
        """Return a declared gauge; raises LookupError like counter()."""
        return self._find(spec, Gauge)

    def histogram(self, spec: MetricSpec) -> Histogram:
        """Return a declared histogram; raises LookupError like counter()."""
        return self._find(spec, Histogram)

    def controller(self, name: str, max_concurrent_reconciles: int = 1) -> "ControllerMetrics":
        """Return the metrics of a controller, with counters at 0."""
        return ControllerMetrics(self, name, max_concurrent_reconciles)

    def queue(self, name: str) -> "QueueMetrics":
        """Return the metrics of the work queue of a controller."""
        return QueueMetrics(self, name)

    def client(self, host: str) -> "ClientMetrics":
        """Return the metrics of a client of an API server, which is `host:port`."""
        return ClientMetrics(self, host)

    def leader(self, lease: str) -> "LeaderMetrics":
        """Return the metrics of the election by a Lease."""
        return LeaderMetrics(self, lease)

    def cache(self, resource: str) -> "CacheMetrics":
        """Return the metrics of the watch and cache of a resource such as `pods`."""
        return CacheMetrics(self, resource)

    def _find[T: (Counter, Gauge, Histogram)](self, spec: MetricSpec, kind: type[T]) -> T:
        family = self._families.get(spec.name)
        if not isinstance(family, kind):
            raise LookupError(  # noqa: TRY004 the caller looked for what is not there
                f"metric {spec.name}: is not declared as a {kind.__name__.lower()}; "
                "declare it in the call of Metrics()"
            )
        return family


def _build_family(spec: MetricSpec, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    match spec.kind:
        case MetricKind.COUNTER:
            return Counter(spec.name, spec.help, spec.labels, registry=registry)
        case MetricKind.GAUGE:
            return Gauge(spec.name, spec.help, spec.labels, registry=registry)
        case MetricKind.HISTOGRAM:
            buckets = spec.buckets or Histogram.DEFAULT_BUCKETS
            return Histogram(spec.name, spec.help, spec.labels, registry=registry, buckets=buckets)


class ControllerMetrics:
    """Metrics of one controller."""

    def __init__(self, metrics: Metrics, controller: str, max_concurrent_reconciles: int) -> None:
        """Initialize the counters to 0 and publish the number of workers."""
        total = metrics.counter(specs.RECONCILE_TOTAL)
        self._results = {result: total.labels(controller, result) for result in RECONCILE_RESULTS}
        self._errors = metrics.counter(specs.RECONCILE_ERRORS).labels(controller)
        self._terminal = metrics.counter(specs.TERMINAL_RECONCILE_ERRORS).labels(controller)
        self._panics = metrics.counter(specs.RECONCILE_PANICS).labels(controller)
        self._timeouts = metrics.counter(specs.RECONCILE_TIMEOUTS).labels(controller)
        self._seconds = metrics.histogram(specs.RECONCILE_TIME).labels(controller)
        self._active = metrics.gauge(specs.ACTIVE_WORKERS).labels(controller)
        metrics.gauge(specs.MAX_CONCURRENT_RECONCILES).labels(controller).set(
            max_concurrent_reconciles
        )

    def observe_reconcile(
        self,
        result: ReconcileResult,
        seconds: float,
        *,
        terminal: bool = False,
        panic: bool = False,
        timeout: bool = False,
    ) -> None:
        """Count one reconcile that ended.

        Args:
            result: Result of the reconcile; `error` increases the number of errors as well.
            seconds: How long it took.
            terminal: Whether a retry cannot fix the error.
            panic: Whether the error was unexpected.
            timeout: Whether the reconcile was cancelled because it took too long.
        """
        self._results[result].inc()
        self._seconds.observe(seconds)
        if result == "error":
            self._errors.inc()
        if terminal:
            self._terminal.inc()
        if panic:
            self._panics.inc()
        if timeout:
            self._timeouts.inc()

    def worker_started(self) -> None:
        """Count a worker that started to process a key."""
        self._active.inc()

    def worker_finished(self) -> None:
        """Count a worker that has finished its key."""
        self._active.dec()


class QueueMetrics:
    """Metrics of a work queue; the methods correspond to client-go's queue."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        """Initialize the counters to 0 and compute the ages of running work at each scrape."""
        self._clock = metrics.clock
        self._labels = (name, name)
        self._depth = metrics.gauge(specs.QUEUE_DEPTH)
        self._adds = metrics.counter(specs.QUEUE_ADDS).labels(*self._labels)
        self._latency = metrics.histogram(specs.QUEUE_DURATION).labels(*self._labels)
        self._work = metrics.histogram(specs.QUEUE_WORK_DURATION).labels(*self._labels)
        self._retries = metrics.counter(specs.QUEUE_RETRIES).labels(*self._labels)
        self._added: dict[Hashable, tuple[float, int]] = {}
        self._started: dict[Hashable, float] = {}
        self._depth.labels(*self._labels, "0").set(0)
        unfinished = metrics.gauge(specs.QUEUE_UNFINISHED_WORK).labels(*self._labels)
        unfinished.set_function(lambda: sum(self._ages()))
        longest = metrics.gauge(specs.QUEUE_LONGEST_RUNNING).labels(*self._labels)
        longest.set_function(lambda: max(self._ages(), default=0.0))

    def added(self, key: Hashable, priority: int = 0) -> None:
        """Record that a key became ready to be processed, or that its priority was raised."""
        waiting = self._added.get(key)
        if waiting is None:
            self._adds.inc()
            self._added[key] = (self._clock(), priority)
        elif waiting[1] != priority:
            self._added[key] = (waiting[0], priority)
            self._depth_of(waiting[1]).dec()
        else:
            return
        self._depth_of(priority).inc()

    def removed(self, key: Hashable) -> None:
        """Record that a key left the queue without being processed."""
        if (waiting := self._added.pop(key, None)) is not None:
            self._depth_of(waiting[1]).dec()

    def started(self, key: Hashable) -> None:
        """Record that a worker started to process a key."""
        now = self._clock()
        if (waiting := self._added.pop(key, None)) is not None:
            self._latency.observe(now - waiting[0])
            self._depth_of(waiting[1]).dec()
        self._started[key] = now

    def done(self, key: Hashable) -> None:
        """Record that a worker has finished a key."""
        if (started := self._started.pop(key, None)) is not None:
            self._work.observe(self._clock() - started)

    def retried(self) -> None:
        """Count a key that was requeued with a delay after an error."""
        self._retries.inc()

    def _depth_of(self, priority: int) -> Gauge:
        return self._depth.labels(*self._labels, str(priority))

    def _ages(self) -> list[float]:
        # A scrape may run in another thread than the queue, hence the copy.
        now = self._clock()
        return [now - started for started in self._started.copy().values()]


class ClientMetrics:
    """Metrics of the requests to one API server."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        """Declare the families; series appear with the first request of each method."""
        self._host = host
        # Look up each time series once, not for each request.
        self._requests = cache(metrics.counter(specs.CLIENT_REQUESTS).labels)
        self._seconds = cache(metrics.histogram(specs.CLIENT_REQUEST_DURATION).labels)
        self._retries = metrics.counter(specs.CLIENT_RETRIES)

    def observe_request(self, method: str, code: int | None, seconds: float) -> None:
        """Count one request.

        Args:
            method: HTTP method in upper case.
            code: HTTP status, or None if no response was received.
            seconds: Time from sending to the end of the response header.
        """
        # The label value of client-go for a request without a response.
        self._requests("<error>" if code is None else str(code), method, self._host).inc()
        self._seconds(method, self._host).observe(seconds)

    def retried(self, method: str, code: int | None) -> None:
        """Count a request that is sent again."""
        self._retries.labels("<error>" if code is None else str(code), method, self._host).inc()


class LeaderMetrics:
    """Metrics of the election by one Lease."""

    def __init__(self, metrics: Metrics, lease: str) -> None:
        """Start as a standby."""
        self._status = metrics.gauge(specs.LEADER_STATUS).labels(lease)
        self._slow = metrics.counter(specs.LEADER_SLOWPATH).labels(lease)
        self._status.set(0)

    def set_leading(self, leading: bool) -> None:
        """Publish whether this process leads."""
        self._status.set(1 if leading else 0)

    def slow_path(self) -> None:
        """Count a renewal that had to read the Lease first, because somebody else changed it."""
        self._slow.inc()


class CacheMetrics:
    """Metrics of the watch and the cache of one resource."""

    def __init__(self, metrics: Metrics, resource: str) -> None:
        """Declare the series of the resource."""
        self._objects = metrics.gauge(specs.CACHE_OBJECTS).labels(resource)
        self._swept = metrics.counter(specs.CACHE_SWEPT).labels(resource)
        self._age = metrics.gauge(specs.WATCH_LAST_EVENT_AGE).labels(resource)
        self._failed = metrics.counter(specs.MAPPER_ERRORS).labels(resource)

    def handler_failed(self) -> None:
        """Count a change that a mapper or projection could not handle."""
        self._failed.inc()

    def watch_age(self, seconds: Clock) -> None:
        """Compute the age of the last event of the watch at each scrape."""
        self._age.set_function(seconds)

    def count_objects(self, count: Callable[[], int]) -> None:
        """Count the objects of the cache at each scrape."""
        self._objects.set_function(count)

    def swept(self, count: int = 1) -> None:
        """Count differences that a sweep found between the cache and the API."""
        self._swept.inc(count)
