"""Tests of the metrics as a Prometheus server would see them."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.common.metric_specs import FRAMEWORK_METRICS, MetricKind, MetricSpec
from libs.common.metrics import Metrics

PODS_CREATED = MetricSpec(
    "podset_pods_created_total", MetricKind.COUNTER, "Total number of pods created.", ("namespace",)
)


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def metrics(clock: Time) -> Metrics:
    return Metrics([PODS_CREATED], clock=clock, process=False)


def test_counters_of_a_controller_begin_at_zero(metrics: Metrics) -> None:
    metrics.controller("podset", 4)

    for result in ("success", "error", "requeue", "requeue_after"):
        name = "controller_runtime_reconcile_total"
        assert metrics.value(name, controller="podset", result=result) == 0
    for name in (
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_terminal_reconcile_errors_total",
        "controller_runtime_reconcile_panics_total",
        "controller_runtime_reconcile_timeouts_total",
        "controller_runtime_active_workers",
        "controller_runtime_reconcile_time_seconds_count",
    ):
        assert metrics.value(name, controller="podset") == 0, name
    workers = metrics.value("controller_runtime_max_concurrent_reconciles", controller="podset")
    assert workers == 4


def test_reconciles_are_counted_by_their_end(metrics: Metrics) -> None:
    controller = metrics.controller("podset")
    controller.observe_reconcile("success", 0.2)
    controller.observe_reconcile("error", 0.3, terminal=True)
    controller.observe_reconcile("error", 0.4, panic=True)
    controller.observe_reconcile("error", 300, timeout=True)

    def value(name: str, **labels: str) -> float | None:
        return metrics.value(f"controller_runtime_{name}", controller="podset", **labels)

    assert value("reconcile_total", result="success") == 1
    assert value("reconcile_total", result="error") == 3
    assert value("reconcile_errors_total") == 3
    assert value("terminal_reconcile_errors_total") == 1
    assert value("reconcile_panics_total") == 1
    assert value("reconcile_timeouts_total") == 1
    assert value("reconcile_time_seconds_bucket", le="0.25") == 1
    assert value("reconcile_time_seconds_bucket", le="60.0") == 3


def test_queue_tells_depth_latency_and_running_work(metrics: Metrics, clock: Time) -> None:
    queue = metrics.queue("podset")

    def value(name: str, **labels: str) -> float | None:
        return metrics.value(f"workqueue_{name}", name="podset", controller="podset", **labels)

    queue.added("a")
    queue.added("a")
    queue.added("b", priority=-100)
    assert value("adds_total") == 2
    assert (value("depth", priority="0"), value("depth", priority="-100")) == (1, 1)

    clock.now += 2
    queue.started("a")
    queue.added("b", priority=0)
    assert value("queue_duration_seconds_sum") == 2
    assert (value("depth", priority="0"), value("depth", priority="-100")) == (1, 0)

    clock.now += 3
    queue.started("b")
    clock.now += 1
    assert value("unfinished_work_seconds") == 5
    assert value("longest_running_processor_seconds") == 4

    queue.done("a")
    queue.done("b")
    queue.retried()
    assert value("work_duration_seconds_sum") == 5
    assert value("longest_running_processor_seconds") == 0
    assert value("retries_total") == 1
    assert value("depth", priority="0") == 0


def test_removed_key_leaves_the_depth(metrics: Metrics) -> None:
    queue = metrics.queue("podset")
    queue.added("a")
    queue.removed("a")
    queue.removed("a")

    depth = metrics.value("workqueue_depth", name="podset", controller="podset", priority="0")
    assert depth == 0


def test_requests_are_counted_by_code_method_and_host(metrics: Metrics) -> None:
    client = metrics.client("10.0.0.1:443")
    client.observe_request("GET", 200, 0.01)
    client.observe_request("GET", None, 30)
    client.retried("GET", None)

    name = "rest_client_requests_total"
    assert metrics.value(name, code="200", method="GET", host="10.0.0.1:443") == 1
    assert metrics.value(name, code="<error>", method="GET", host="10.0.0.1:443") == 1
    name = "rest_client_request_duration_seconds_count"
    assert metrics.value(name, verb="GET", host="10.0.0.1:443") == 2


def test_leader_status_follows_the_election(metrics: Metrics) -> None:
    leader = metrics.leader("podset")

    def status() -> float | None:
        return metrics.value("leader_election_master_status", name="podset")

    assert status() == 0
    leader.set_leading(True)
    assert status() == 1
    leader.set_leading(False)
    assert status() == 0


def test_cache_tells_its_size_and_the_age_of_the_last_event(metrics: Metrics) -> None:
    cache = metrics.cache("pods")
    cache.count_objects(lambda: 7)
    cache.swept(2)
    cache.handler_failed()
    cache.watch_age(lambda: 9.0)

    assert metrics.value("operator_watch_last_event_age_seconds", resource="pods") == 9
    assert metrics.value("operator_cache_objects", resource="pods") == 7
    assert metrics.value("operator_cache_swept_total", resource="pods") == 2
    assert metrics.value("operator_mapper_errors_total", resource="pods") == 1


def test_operator_declares_metrics_of_its_own(metrics: Metrics) -> None:
    metrics.counter(PODS_CREATED).labels("default").inc()

    assert metrics.value("podset_pods_created_total", namespace="default") == 1
    assert PODS_CREATED in metrics.describe()


def test_undeclared_metric_is_refused_with_its_name() -> None:
    with pytest.raises(LookupError, match="podset_pods_created_total: is not declared as a count"):
        Metrics(process=False).counter(PODS_CREATED)


def test_registries_of_two_processes_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.leader("podset").set_leading(True)

    assert second.value("leader_election_master_status", name="podset") is None


def test_page_parses_and_has_process_and_gc_metrics() -> None:
    metrics = Metrics()
    metrics.controller("podset")
    metrics.queue("podset")
    families = {f.name for f in text_string_to_metric_families(metrics.render().decode())}

    assert {"process_resident_memory_bytes", "python_gc_collections"} <= families
    assert not [name for name in families if name.endswith("_created")]


@pytest.mark.parametrize("spec", FRAMEWORK_METRICS, ids=lambda spec: spec.name)
def test_declaration_follows_the_naming_rules(spec: MetricSpec) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]+", spec.name)
    assert spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER)
    assert spec.help.endswith(".")


@pytest.mark.parametrize(
    ("name", "buckets", "first", "last"),
    [
        ("controller_runtime_reconcile_time_seconds", 40, 0.005, 60.0),
        ("workqueue_queue_duration_seconds", 12, 1e-8, 1000.0),
        ("workqueue_work_duration_seconds", 12, 1e-8, 1000.0),
    ],
)
def test_buckets_are_those_of_controller_runtime(
    name: str, buckets: int, first: float, last: float
) -> None:
    spec = next(spec for spec in FRAMEWORK_METRICS if spec.name == name)

    assert (len(spec.buckets), spec.buckets[0], spec.buckets[-1]) == (buckets, first, last)


def test_process_that_reconciles_nothing_has_its_own_metrics_alone() -> None:
    text = Metrics([PODS_CREATED], process=False, framework=False).render().decode()

    assert PODS_CREATED.name in text
    assert "controller_runtime" not in text
    assert "operator_" not in text
