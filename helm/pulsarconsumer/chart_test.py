"""Tests of the chart of the operator pulsarconsumer."""

from typing import Any

from helm.suite import ChartSuite
from libs.common.testing.helm import render_notes
from operators.pulsarconsumer.app.metrics import METRICS as APP_METRICS
from operators.pulsarconsumer.metrics import METRICS
from operators.pulsarconsumer.settings import Settings


class TestPulsarConsumerChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "pulsarconsumer"
    settings = Settings
    metrics = METRICS
    workload_metrics = APP_METRICS

    def test_notes_warn_of_a_policy_that_keeps_brokers_away(self) -> None:
        closed: dict[str, Any] = {"networkPolicy": {"enabled": True}}
        egress = [{"ports": [{"port": 8080}]}]

        assert "admin API of your brokers" in render_notes(self.chart, closed)
        closed["networkPolicy"]["extraEgress"] = egress
        assert "admin API of your brokers" not in render_notes(self.chart, closed)
        assert "admin API of your brokers" not in render_notes(self.chart)
