"""Gauges of brokers and backlogs, with a series for each PulsarConsumer."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Final

from libs.common.kinds import Key
from libs.common.metrics import Metrics
from libs.common.runtime import Context
from operators.pulsarconsumer.metrics import (
    BACKLOG,
    CONNECTED,
    DEAD_LETTERS,
    DESIRED,
    LOOK_DURATION,
    LOOKS,
    OBJECT_GAUGES,
    OLDEST,
    REACHABLE,
    RETRIES,
)
from operators.pulsarconsumer.report import BrokerProblem, BrokerState

_ANSWERED: Final = "Answered"


class Gauges:
    """The metrics of the operator."""

    def __init__(self) -> None:
        """Start without a registry; the first reconcile passes it."""
        self._metrics: Metrics | None = None
        self._serials: dict[Key, int] = {}

    def use(self, ctx: Context) -> None:
        """Set the registry of the process."""
        self._metrics = ctx.metrics

    def reported(self, problem: BrokerProblem | None, seconds: float) -> None:
        """Count a query of a broker."""
        if self._metrics is not None:
            result = _ANSWERED if problem is None else str(problem.reason)
            self._metrics.counter(LOOKS).labels(result).inc()
            self._metrics.histogram(LOOK_DURATION).observe(seconds)

    def is_new(self, key: Key, serial: int) -> bool:
        """Return whether a query was not counted yet, and record that it is counted."""
        new = self._serials.get(key) != serial
        self._serials[key] = serial
        return new

    def show(self, key: Key, broker_state: BrokerState, replicas: int, now: datetime) -> None:
        """Set the gauges of a PulsarConsumer."""
        if self._metrics is None:
            return
        values = {DESIRED: float(replicas)}
        if broker_state.asked:
            values[REACHABLE] = 0.0 if broker_state.problem is not None else 1.0
        report = broker_state.report
        if report is not None:
            oldest = report.oldest_due
            values[BACKLOG] = float(sum(topic.messages for topic in report.topics))
            values[OLDEST] = 0.0 if oldest is None else max(0.0, now.timestamp() - oldest)
            if report.counted:
                values[CONNECTED] = float(report.consumers)
            values[RETRIES] = float(report.retry.entries if report.retry is not None else 0)
            values[DEAD_LETTERS] = float(report.dead_letters or 0)
        for spec, value in values.items():
            self._metrics.gauge(spec).labels(key.namespace, key.name).set(value)

    def drop(self, key: Key) -> None:
        """Drop the series of a deleted object."""
        self._serials.pop(key, None)
        for spec in OBJECT_GAUGES:
            if self._metrics is not None:
                with contextlib.suppress(KeyError):
                    self._metrics.gauge(spec).remove(key.namespace, key.name)
