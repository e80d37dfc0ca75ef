"""Gauges that the process exports for each PrometheusJmxExporter."""

from __future__ import annotations

from typing import Final

from libs.common.conditions import find_condition
from libs.common.kinds import Key, Manifest
from libs.common.metrics import Metrics
from operators.jmxexporter.metrics import BREAKER, FAILING, PODS
from operators.jmxexporter.reasons import ConditionType, Reason

_STATES: Final = ("instrumented", "pending", "failed")


def show(metrics: Metrics, key: Key, status: Manifest) -> None:
    """Set the gauges of an exporter from its status."""
    for state in _STATES:
        count = status.get(f"{state}Pods") or 0
        metrics.gauge(PODS).labels(key.namespace, key.name, state).set(count)
    failing = [each for each in status["failures"] if each["reason"] == Reason.SCRAPE_FAILED]
    metrics.gauge(FAILING).labels(key.namespace, key.name).set(len(failing))
    degraded = find_condition({"status": status}, ConditionType.DEGRADED)
    is_open = degraded is not None and degraded["status"] == "True"
    metrics.gauge(BREAKER).labels(key.namespace, key.name).set(float(is_open))


def forget(metrics: Metrics, key: Key) -> None:
    """Remove the gauges of a deleted exporter."""
    for gauge in (PODS, FAILING, BREAKER):
        labels = {"object_namespace": key.namespace, "object": key.name}
        metrics.gauge(gauge).remove_by_labels(labels)
