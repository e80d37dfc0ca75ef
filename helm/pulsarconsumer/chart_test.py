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

    def test_notes_say_what_image_consumers_run(self) -> None:
        named = render_notes(self.chart, {"settings": {"consumerImage": "example.com/app:1"}})
        without = render_notes(self.chart, {"settings": None})

        assert "run the image example.com/app:1 " in named and "consumerImage=" not in named
        assert f"run the image {Settings().consumer_image} " in without
        assert "--set settings.consumerImage=" in without

    def test_notes_warn_of_a_policy_that_keeps_brokers_away(self) -> None:
        closed: dict[str, Any] = {"networkPolicy": {"enabled": True}}
        egress = [{"ports": [{"port": 8080}]}]

        assert "admin API of your brokers" in render_notes(self.chart, closed)
        closed["networkPolicy"]["extraEgress"] = egress
        assert "admin API of your brokers" not in render_notes(self.chart, closed)
        assert "admin API of your brokers" not in render_notes(self.chart)
