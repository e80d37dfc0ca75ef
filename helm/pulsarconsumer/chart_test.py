"""Tests of the chart of the operator pulsarconsumer."""

from helm.suite import ChartSuite
from operators.pulsarconsumer.metrics import METRICS
from operators.pulsarconsumer.settings import Settings


class TestPulsarConsumerChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "pulsarconsumer"
    settings = Settings
    metrics = METRICS
