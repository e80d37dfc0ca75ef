"""Tests of the chart of the operator pulsarconsumer."""

from helm.suite import ChartSuite
from operators.pulsarconsumer.app.metrics import METRICS as APP_METRICS
from operators.pulsarconsumer.metrics import METRICS
from operators.pulsarconsumer.settings import Settings


class TestPulsarConsumerChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "pulsarconsumer"
    settings = Settings
    metrics = METRICS
    workload_metrics = APP_METRICS
